"""Directories such as fine-tuning leaves behind."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

Scores = Mapping[str, Mapping[str, float]]


def combine(seeds: Sequence[Scores], how: Any) -> dict[str, dict[str, float]]:
    return {
        split: {name: how([seed[split][name] for seed in seeds]) for name in scores}
        for split, scores in seeds[0].items()
    }


def results(task: str, seeds: Sequence[Scores], **changes: Any) -> dict[str, Any]:
    """What results.json holds of seeds with these scores."""
    entries = [
        {"seed": i, "epoch": 2, "step": 20, "score": next(iter(next(iter(scores.values())).values())), "scores": scores}
        | {"collapsed": False, "history": []}
        for i, scores in enumerate(seeds)
    ]
    whole = {
        "version": 1,
        "task": task,
        "model": {"kind": "squeezebert", "parameters": 51_093_504},
        "from": "runs/first",
        "config": {"task": task, "epochs": 3, "train_rows": 0},
        "examples": {"train": 100, "dev": 50},
        "skipped": {"train": {}},
        "seeds": entries,
        "median": combine(seeds, median),
        "min": combine(seeds, min),
        "max": combine(seeds, max),
    }
    return whole | changes


def begin(path: Path, task: str) -> Path:
    """A run that has no results yet."""
    path.mkdir(parents=True)
    (path / "config.toml").write_text(f'task = "{task}"\nepochs = 3\n')
    return path


def finish(path: Path, task: str, *seeds: Scores, **changes: Any) -> Path:
    """A run with results."""
    begin(path, task)
    (path / "results.json").write_text(json.dumps(results(task, seeds, **changes)))
    return path


def dev(**scores: float) -> Scores:
    """One seed's scores on a development set."""
    return {"dev": scores}


def mnli(matched: float, mismatched: float) -> Scores:
    return {f"dev_{n}": {"accuracy": v} for n, v in (("matched", matched), ("mismatched", mismatched))}


# SqueezeBERT's row of its Table 2 without bells and whistles, as runs; of a mean of two columns, two that have it.
TABLE_2 = {
    "mnli": mnli(82.3, 82.9),
    "qqp": dev(accuracy=90.9, f1=87.9),
    "qnli": dev(accuracy=90.5),
    "sst2": dev(accuracy=92.0),
    "cola": dev(matthews=53.7),
    "stsb": dev(pearson=89.6, spearman=89.2),
    "mrpc": dev(accuracy=88.2, f1=91.4),
    "rte": dev(accuracy=71.8),
}


def glue(path: Path, **changes: Any) -> Path:
    """A directory of runs of all these tasks."""
    for task, scores in TABLE_2.items():
        finish(path / task, task, scores, **changes)
    return path
