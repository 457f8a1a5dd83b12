"""What a task is: where its examples come from, what their labels are and how predictions are scored."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

Kind = Literal["classification", "regression", "tokens", "span"]
Label = int | float | tuple[int, ...] | None


class Example(NamedTuple):
    """One or two texts, or the words of one, and what is to be said of them.

    key: what a submission names it by, the row's index; label: the place in the task's labels, of every word where
    there are words; a number under regression; None where it is to be predicted.
    """

    key: str
    text_a: str
    text_b: str | None = None
    label: Label = None
    words: tuple[str, ...] | None = None


class Read(NamedTuple):
    """The examples of a split, and by reason how many malformed rows were passed over as the reference codes do."""

    examples: list[Example]
    skipped: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task by name; `read(split, directory)` raises UserError naming the file and line, or where to put the file.

    labels: in the order of the logits, as the leaderboard spells them; aliases: the label by each other name of it.
    metrics: names of metrics.py. range: of a regression's labels, to which predictions are clipped where they are
    written. symmetric: which text comes first says nothing. dev, test: the splits of either sort; none where there are
    none.
    """

    name: str
    kind: Kind
    metrics: tuple[str, ...]
    read: Callable[[str, Path | str], Read]
    labels: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    pair: bool = False
    symmetric: bool = False
    range: tuple[float, float] | None = None
    train: tuple[str, ...] = ("train",)
    dev: tuple[str, ...] = ("dev",)
    test: tuple[str, ...] = ("test",)


def double_unordered(examples: Sequence[Example]) -> list[Example]:
    """The examples, and after them each with its texts the other way round (ELECTRA's `double_unordered`)."""
    swapped = (
        e._replace(key=str(len(examples) + i), text_a=e.text_b or "", text_b=e.text_a) for i, e in enumerate(examples)
    )
    return [*examples, *swapped]
