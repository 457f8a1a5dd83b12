"""Read the documents of a data set prepared by TensorFlow Datasets, by index and without TensorFlow."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bertzoo.core.errors import CorpusError, needs_extra
from bertzoo.data.sources.text import record_document

PREFIX = "tfds:"
SPLIT = "train"
# TensorFlow Datasets would look up a namespace (huggingface:glue) on the network, and options may hold URLs.
_NAME = re.compile(r"\w+(/[\w.-]+)?(:\d[\d.*]*)?")
ROWS = 1 << 17  # examples in one range


@dataclass(frozen=True)
class Range:
    """The examples [start, stop) of a data set, which pieces.py reads like a file of text.

    dataset: `NAME[/CONFIG][:VERSION]`.
    text_field: the feature with the text.
    """

    dataset: str
    text_field: str
    start: int
    stop: int

    @property
    def name(self) -> str:
        """The range's name in messages."""
        return f"{PREFIX}{self.dataset}[{self.start}:{self.stop}]"

    def documents(self) -> Iterator[str]:
        """Yield the texts of the feature `text_field`; raises CorpusError naming an example without text."""
        examples = open_split(self.dataset)
        for index in range(self.start, self.stop):
            place, example = f"{PREFIX}{self.dataset}[{index}]", examples[index]
            text = example.get(self.text_field)
            if isinstance(text, bytes):
                try:
                    text = text.decode()
                except UnicodeDecodeError as error:
                    raise CorpusError(
                        f"{place} is not UTF-8 text: {error.reason}. Name another field in text_field."
                    ) from error
            if not isinstance(text, str):
                raise CorpusError(
                    f"{place} has no text in {self.text_field!r}. Set text_field to one of {', '.join(example)}."
                )
            yield record_document(text, place)


def ranges(dataset: str, text_field: str) -> list[Range]:
    """Cut the training split of a data set, `NAME[/CONFIG][:VERSION]`, into ranges of ROWS examples.

    Raises CorpusError as `open_split` does, or if the split is empty.
    """
    count = len(open_split(dataset))
    if not count:
        raise CorpusError(f"{PREFIX}{dataset} has no examples in the split {SPLIT}. Name a data set with examples.")
    return [Range(dataset, text_field, start, min(start + ROWS, count)) for start in range(0, count, ROWS)]


def open_split(dataset: str) -> Any:
    """Return the examples of the training split, as a sequence; contacts no network.

    Raises CorpusError if the name is wrong or the data set is not prepared on this machine, and UserError without
    TensorFlow Datasets.
    """
    if not _NAME.fullmatch(dataset):
        raise CorpusError(f"{PREFIX}{dataset} is not NAME, NAME/CONFIG or NAME/CONFIG:VERSION. Correct the name.")
    with needs_extra(f"{PREFIX}{dataset}", "tfds"):
        import tensorflow_datasets  # pyright: ignore[reportMissingImports]
    try:
        return tensorflow_datasets.data_source(dataset, split=SPLIT, download=False)
    except Exception as error:  # the library raises many types
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise CorpusError(
            f"{PREFIX}{dataset} cannot be opened ({reason}). Prepare it with `tfds build {dataset}"
            " --file_format=array_record`, and set TFDS_DATA_DIR if it is not in ~/tensorflow_datasets."
        ) from error
