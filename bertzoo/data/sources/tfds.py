"""Read the documents of a data set prepared by TensorFlow Datasets, by index and without TensorFlow."""

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

from bertzoo.core.errors import CorpusError, needs_extra
from bertzoo.data.sources.text import record_document

PREFIX = "tfds:"
SPLIT = "train"
# TensorFlow Datasets would look up a namespace (huggingface:glue) on the network, and options may hold URLs.
_NAME = re.compile(r"\w+(/[\w.-]+)?(:\d[\d.*]*)?")
ROWS = 1 << 17  # examples in one range


def ranges(dataset: str, text_field: str) -> Iterator[tuple[str, Callable[[], Iterator[str]]]]:
    """Yield name and reader of each range of ROWS examples in the training split of `NAME[/CONFIG][:VERSION]`.

    Raises CorpusError as `open_split` does, or if the split is empty.
    """
    count = len(open_split(dataset))
    if not count:
        raise CorpusError(f"{PREFIX}{dataset} has no examples in the split {SPLIT}. Name a data set with examples.")
    for start in range(0, count, ROWS):
        stop = min(start + ROWS, count)
        yield f"{PREFIX}{dataset}[{start}:{stop}]", functools.partial(_documents, dataset, text_field, start, stop)


def _documents(dataset: str, text_field: str, start: int, stop: int) -> Iterator[str]:
    """Yield the texts of the feature `text_field`; raises CorpusError naming an example without text."""
    examples = open_split(dataset)
    for index in range(start, stop):
        place, example = f"{PREFIX}{dataset}[{index}]", examples[index]
        text = example.get(text_field)
        if isinstance(text, bytes):
            try:
                text = text.decode()
            except UnicodeDecodeError as error:
                raise CorpusError(
                    f"{place} is not UTF-8 text: {error.reason}. Name another field in text_field."
                ) from error
        if not isinstance(text, str):
            raise CorpusError(f"{place} has no text in {text_field!r}. Set text_field to one of {', '.join(example)}.")
        yield record_document(text, place)


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
