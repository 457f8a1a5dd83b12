"""A model that embeds texts: vectors of texts, and scores on pairs and similarities."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bertzoo.conversion.pretrained import source_number
from bertzoo.core.errors import ConfigError
from bertzoo.finetuning.embedding import STSB, text_split
from bertzoo.finetuning.saved_model import SavedModel, Unlabelled
from bertzoo.finetuning.task_kind import Say
from bertzoo.finetuning.text_split import TextSplit
from bertzoo.tasks.custom import CustomFiles
from bertzoo.tasks.encode import encode
from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.task import Example

_PART = 4096  # texts that are encoded at once


class TextFiles(NamedTuple):
    """Files of texts: STS-B's, or the user's own, which `files` describes."""

    name: str
    files: CustomFiles | None


@dataclass(frozen=True, kw_only=True)
class EmbeddingModel(SavedModel):
    """A model that maps a text to a vector."""

    def embed(self, texts: Sequence[str], batch_size: int = 0) -> np.ndarray:
        """Return the vectors of texts, (N,E) float32. batch_size: as in `runner`; it does not affect the vectors."""
        return np.concatenate([part for part, _ in self.embed_parts(texts, batch_size)])

    def embed_parts(self, texts: Sequence[str], batch_size: int = 0) -> Iterator[tuple[np.ndarray, int]]:
        """Yield the vectors of the next texts, (n,E) float32, and how many of these were cut to `max_length`."""
        runner = None
        for start in range(0, len(texts), _PART):
            examples = [Example(str(i), text) for i, text in enumerate(texts[start : start + _PART])]
            rows = encode(examples, self.tokenizer, self.max_length, "texts", self.padding)
            if runner is None or self.file is None:
                runner = self.runner([rows], batch_size)
            slots, outputs = runner.run_all(rows)
            vectors = rows.restore(slots, [output["embedding"] for output in outputs])
            yield vectors.astype(np.float32), int(rows.cut.sum())

    def fit(self, longest: int) -> "EmbeddingModel":
        """Return a copy with rows of at most `longest` tokens."""
        return replace(self, max_length=min(self.max_length, longest))

    def task(self, name: str = "", data_dir: str = "") -> TextFiles:
        """Return the files of the task `name`, by default the model's own; raises ConfigError for another task."""
        name = name or self.task_name or STSB
        if name == "own":
            self.check_columns()
            return TextFiles(name, self.recipe.own.with_usual_files(data_dir) if data_dir else self.recipe.own)
        if name != STSB:
            raise ConfigError(f"{self.path} embeds texts, and task = {name} has labels. Use stsb or own.")
        return TextFiles(name, None)

    def for_task(self, task: TextFiles, tell: Say = lambda line: None) -> "EmbeddingModel":
        """Return the model itself, which serves every task."""
        return self

    def read_examples(
        self, task: TextFiles, split: str, directory: str, tell: Say
    ) -> tuple[dict[str, list[Example]], dict[str, dict[str, int]]]:
        """Return the examples of a split by the name of the data set; raises UserError for texts without partners."""
        if task.files is None:
            read = GLUE[STSB].read(split, directory)
            examples, skipped = read.examples, {split: read.skipped} if read.skipped else {}
        else:
            examples, skipped = task.files.read_texts(split, directory), {}
        if any(example.label is None and example.text_b is None for example in examples):
            raise Unlabelled(split, f"the {split} set of {task.name} has single texts, so it cannot be scored.")
        if task.files is None and any(example.label is None for example in examples):
            raise Unlabelled(split, f"the {split} set of {task.name} has no scores, so it cannot be scored.")
        return {split: examples}, skipped

    def encode_split(self, task: TextFiles, examples: Sequence[Example], name: str) -> TextSplit:
        """Encode the texts of examples."""
        scale = 5.0 if task.files is None else source_number(self.pretrained.source, "scale", self.recipe.scale)
        split = text_split(examples, self.tokenizer, self.max_length, self.padding, scale, name)
        return replace(split, sizes=self.pretrained.head.sizes)


def embedding_model(model: SavedModel) -> EmbeddingModel | None:
    """Convert a saved model to an EmbeddingModel, or return None if its head embeds no texts."""
    return EmbeddingModel(**vars(model)) if model.pretrained.head.task_kind == "embedding" else None
