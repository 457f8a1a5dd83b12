"""The hyperparameters that the papers searched and chose, from published.csv."""

from bertzoo.finetuning.results.published import paper_values


def settings(paper: str, table: str) -> dict[str, dict[str, list[str]]]:
    """The values searched or chosen, by task as the paper spells it, and by name."""
    found: dict[str, dict[str, list[str]]] = {}
    for value in paper_values():
        if (value.paper, value.table, value.metric) == (paper, table, "hyperparameter"):
            name = value.section.split(": ")[1]
            for task in value.variant.split(": ")[1].split(", "):
                found.setdefault(task, {}).setdefault(name, []).append(value.value)
    return found
