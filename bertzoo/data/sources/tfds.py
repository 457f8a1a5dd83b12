"""The documents of a data set that TensorFlow Datasets has prepared, read by index and without TensorFlow."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bertzoo.core.errors import CorpusError
from bertzoo.data.sources.text import record_document

PREFIX = "tfds:"
SPLIT = "train"
ROWS = 1 << 17  # of one range, the unit that a file is elsewhere


@dataclass(frozen=True)
class Range:
    """Consecutive examples of a data set."""

    dataset: str
    text_field: str
    start: int
    stop: int

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{PREFIX}{self.dataset}[{self.start}:{self.stop}]"

    def documents(self) -> Iterator[str]:
        """The texts of one feature; raises CorpusError naming the example that has none."""
        examples = opened(self.dataset)
        for index in range(self.start, self.stop):
            place, example = f"{PREFIX}{self.dataset}[{index}]", examples[index]
            text = example.get(self.text_field)
            if isinstance(text, bytes):
                try:
                    text = text.decode()
                except UnicodeDecodeError as error:
                    raise CorpusError(f"{place} is not UTF-8 text: {error.reason}") from error
            if not isinstance(text, str):
                raise CorpusError(
                    f"{place} has no text in {self.text_field!r}, of {', '.join(example)}: name another in text_field"
                )
            yield record_document(text, place)


def ranges(dataset: str, text_field: str) -> list[Range]:
    """The training split of `NAME[/CONFIG][:VERSION]`, in ranges of ROWS.

    Raises CorpusError without TensorFlow Datasets, or where the data set is not prepared on this machine.
    """
    count = len(opened(dataset))
    if not count:
        raise CorpusError(f"{PREFIX}{dataset} holds no example of the split {SPLIT}")
    return [Range(dataset, text_field, start, min(start + ROWS, count)) for start in range(0, count, ROWS)]


def opened(dataset: str, split: str = SPLIT) -> Any:
    """The examples of a split, by index; raises CorpusError as `ranges` does."""
    try:
        import tensorflow_datasets  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise CorpusError(
            f"{PREFIX}{dataset} is read with TensorFlow Datasets, which is missing: "
            "`pip install '.[tfds]'` in the checkout adds it"
        ) from error
    try:
        return tensorflow_datasets.data_source(dataset, split=split, download=False)
    except Exception as error:  # of as many kinds as there are ways for a data set not to be there
        said = " ".join(str(error).split())[:200].rstrip(".")
        raise CorpusError(
            f"{PREFIX}{dataset} cannot be opened ({said}): prepare it with `tfds build {dataset}"
            " --file_format=array_record`, and set TFDS_DATA_DIR where it is not in ~/tensorflow_datasets"
        ) from error
