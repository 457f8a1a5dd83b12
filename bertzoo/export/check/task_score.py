"""The metric of a fine-tuned model's task, of a written file beside the model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import numpy as np

from bertzoo.export.check import device_cases
from bertzoo.export.graph.reference import Plain
from bertzoo.export.runtimes import Runtime
from bertzoo.tasks import metrics
from bertzoo.tasks.answers import Answered, Decoding, decode
from bertzoo.tasks.rows import Rows, Slot
from bertzoo.tasks.squad_tasks import SpanTask
from bertzoo.tasks.task import Example, Task
from bertzoo.tasks.windows import Windows

Outputs = Sequence[Mapping[str, np.ndarray]]  # of every slot, of one row


class Quiz(Protocol):
    """Labelled examples of a split of a task, their rows, none longer than the file reads, and how they are scored.

    share: how many examples are asked, and of how many. What is `read` of outputs is scored, and is what an exam has of
    them.
    """

    @property
    def name(self) -> str: ...
    @property
    def split(self) -> str: ...
    @property
    def share(self) -> tuple[int, int]: ...
    @property
    def rows(self) -> "Rows | Windows": ...
    def read(self, slots: Sequence[Slot], outputs: Outputs) -> Any: ...
    def scores(self, read: Any) -> dict[str, float]: ...
    def exam(self, rows: Sequence[device_cases.Exam], read: Any) -> device_cases.Exam: ...


def scored(run: Runtime, plain: Plain, quiz: Quiz, lengths: Sequence[int]) -> tuple[dict[str, Any], device_cases.Exam]:
    """The task, the split, how many examples of how many, and in points the scores of the file and of the model, read
    alike: every row in the shortest length that holds it. And the same examples as a device is asked them.
    """
    reference = jax.jit(
        lambda plain, row: {name: y[None] for name, y in plain(**{name: x[0] for name, x in row.items()}).items()}
    )
    slots = quiz.rows.plan(1, lengths)
    batches = (quiz.rows.batch(slot, 1) for slot in slots)
    given = [{name: batch[name] for name in plain.inputs} for batch in batches]
    read = quiz.read(slots, [run(row) for row in given])
    count, whole = quiz.share
    said = {"task": quiz.name, "split": quiz.split, "of": whole}
    scores = {
        "examples": count,
        "file": quiz.scores(read),
        "model": quiz.scores(quiz.read(slots, [jax.device_get(reference(plain, row)) for row in given])),
    }
    return said | scores, said | quiz.exam(device_cases.asked(slots, given), read)


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Examples with labels or numbers, which `scale` gives of the model's; whole: how many the split has."""

    task: Task
    split: str
    examples: Sequence[Example]
    whole: int
    rows: Rows
    scale: float

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def share(self) -> tuple[int, int]:
        return len(self.examples), self.whole

    def read(self, slots: Sequence[Slot], outputs: Outputs) -> Any:
        """The logits (N,C) of the examples in their order, or of each the tags of its words."""
        logits = [output["logits"] for output in outputs]
        if self.task.kind == "tokens":
            return self.rows.restore_words(slots, [each.argmax(-1) for each in logits])
        return self.rows.restore(slots, logits)

    def scores(self, read: Any) -> dict[str, float]:
        """The task's metrics."""
        if self.task.kind == "regression":
            read = read[:, 0] * self.scale
        elif self.task.kind != "tokens":
            read = read.argmax(-1)
        return metrics.score(self.task, read, [example.label for example in self.examples])

    def exam(self, rows: Sequence[device_cases.Exam], read: Any) -> device_cases.Exam:
        """The examples in their order with what was read of the file here."""
        if self.task.kind == "tokens":
            return device_cases.of_words(self.task, self.rows, self.examples, rows, read)
        return device_cases.of_labels(self.task, self.scale, self.examples, rows, read)


@dataclass(frozen=True, kw_only=True)
class Questions:
    """Questions with their answers, in windows; whole: how many the split has."""

    task: SpanTask
    split: str
    whole: int
    rows: Windows
    decoding: Decoding

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def share(self) -> tuple[int, int]:
        return len(self.rows.questions), self.whole

    def read(self, slots: Sequence[Slot], outputs: Outputs) -> list[Answered]:
        """The answers that outputs are decoded to."""
        return decode(self.rows, device_cases.candidates(self.rows.restore(slots, outputs)), self.decoding)

    def scores(self, read: list[Answered]) -> dict[str, float]:
        """The official ones."""
        return self.task.score(self.rows.questions, read, self.decoding.threshold)

    def exam(self, rows: Sequence[device_cases.Exam], read: list[Answered]) -> device_cases.Exam:
        """The questions in their windows, with the answers that the file gives here."""
        return device_cases.of_questions(self.rows, self.task.nulls, self.decoding, rows, read)
