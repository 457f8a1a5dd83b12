"""Tasks that predict labels, numbers or word tags: their files, labels and metrics, and their examples."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bertzoo.core.errors import UserError

Kind = Literal["classification", "multi_label", "regression", "tokens", "entities", "span", "texts"]
Label = int | float | tuple[Any, ...] | None


class Example(NamedTuple):
    """One or two texts, or the words of a text, and their label.

    key: index of the row, as in submissions.
    label: None if unknown. Else, by kind of task: an index in the task's labels (classification), a tuple of such
    indices, one per word (tokens), a tuple of `entities.Entity`, the spans of text_a (entities), a tuple with 1 or 0
    for each of the task's labels (multi_label), or a number (regression), or the similarity of two texts (texts).
    negatives: texts that resemble text_b and are no partners of text_a (texts).
    """

    key: str
    text_a: str
    text_b: str | None = None
    label: Label = None
    words: tuple[str, ...] | None = None
    negatives: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The one or two texts of the example that are not empty."""
        return tuple(filter(None, (self.text_a, self.text_b)))


class SplitExamples(NamedTuple):
    """The examples of a split: each an Example or a `squad.Question`.

    skipped: number of malformed rows that were skipped, by reason.
    ambiguous: number of questions whose answer occurs more than once in the paragraph.
    hidden: whether the questions lack answers, so that predictions cannot be scored.
    """

    examples: list[Any]
    skipped: Mapping[str, int] = {}
    ambiguous: int = 0
    hidden: bool = False


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task with labels.

    read: (split, directory) -> the split's examples. It raises UserError if a file is missing (naming its path) or
    damaged (naming file and line).
    metrics: names in `METRICS` (metrics.py).
    labels: in the order of the logits, as the leaderboard spells them.
    aliases: {name of a label on the hub (Hugging Face): label}, such as {"positive": "1"}.
    pair: whether examples have two texts.
    symmetric: whether the order of the two texts is irrelevant.
    range: limits of a regression's labels, to which predictions are clipped.
    train, dev, test: names of the data sets that form the split, such as dev_matched and dev_mismatched; empty if the
    task has no such split.
    """

    name: str
    kind: Kind
    metrics: tuple[str, ...]
    read: Callable[[str, Path | str], SplitExamples]
    labels: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    pair: bool = False
    symmetric: bool = False
    range: tuple[float, float] | None = None
    train: tuple[str, ...] = ("train",)
    dev: tuple[str, ...] = ("dev",)
    test: tuple[str, ...] = ("test",)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Readable names of the labels: the name in `aliases`, or the label itself if it has no name there."""
        names = {label: name for name, label in self.aliases.items()}
        return tuple(names.get(label, label) for label in self.labels)

    def data_sets(self, split: str) -> tuple[str, ...]:
        """Return the names of the data sets that form `split`: train, dev or test.

        Any other `split` is itself the name of a data set, the only one returned. Raises UserError if the task has no
        such split.
        """
        sets = {"train": self.train, "dev": self.dev, "test": self.test}
        names = sets.get(split, (split,))
        if not names:
            splits = ", ".join(name for name, data_sets in sets.items() if data_sets)
            advice = "Name a file with --input." if self.name == "own" else f"Use {splits}."
            raise UserError(f"{self.name} has no {split} set. {advice}")
        return names


def double_unordered(examples: Sequence[Example]) -> list[Example]:
    """Return the examples, followed by copies with the two texts swapped (ELECTRA's `double_unordered`)."""
    swapped = (
        e._replace(key=str(len(examples) + i), text_a=e.text_b or "", text_b=e.text_a) for i, e in enumerate(examples)
    )
    return [*examples, *swapped]
