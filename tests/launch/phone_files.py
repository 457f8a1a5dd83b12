"""Exported files with companions, whose outputs are those of the fake phone's model."""

from pathlib import Path

NAMES = ("input_ids", "token_type_ids", "attention_mask")


def described(file: Path) -> Path:
    """The metadata JSON of a file."""
    return file.with_name(f"{file.name}.json")


def row(length: int, tokens: int, label: int | None = None) -> dict:
    """A golden row, or with a label a row of the task, with the outputs of the fake phone's model."""
    ids, mask = [7] * tokens + [0] * (length - tokens), [1] * tokens + [0] * (length - tokens)
    made = {"signature": f"length_{length}", "inputs": dict(zip(NAMES, (ids, [0] * length, mask), strict=True))}
    logits = [float(7 * tokens), float(tokens)]
    return made | ({"outputs": {"logits": logits}} if label is None else {"label": label, "logits": logits})
