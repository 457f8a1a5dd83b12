"""The hyperparameters that the papers searched and chose, transcribed into searched.csv."""

import csv
from pathlib import Path


def settings(paper: str, table: str) -> dict[str, dict[str, list[str]]]:
    """The values searched or chosen, by task as the paper spells it, and by name."""
    found: dict[str, dict[str, list[str]]] = {}
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        for value in csv.DictReader(file):
            if (value["paper"], value["table"]) == (paper, table):
                name = value["section"].split(": ")[1]
                for task in value["variant"].split(": ")[1].split(", "):
                    found.setdefault(task, {}).setdefault(name, []).append(value["value"])
    return found
