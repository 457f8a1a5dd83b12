"""Write the vectors of texts.

MODEL is a run that trained vectors (`bertzoo finetune` with head = "embedding"), a directory of sentence-transformers,
or a file that `bertzoo convert` wrote. Two texts are similar if the cosine of their vectors is high. Without --output,
the command prints a JSON array for each text, or the cosines of all pairs with --cosines.

examples:
  bertzoo embed minilm --input=questions.csv --text_a=question --output=vectors.npy
  bertzoo embed runs/search --input=texts.csv --output=bits.npy --size=128 --precision=binary
  bertzoo embed minilm.tflite 'How do I pay?' 'Where can I settle the bill?' --cosines
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from bertzoo.api.options import RunnableOptions
from bertzoo.cli.support import log
from bertzoo.core.atomic import check_file, replacing
from bertzoo.core.errors import UserError
from bertzoo.core.options import option

_MOST_COSINES = 1000  # texts whose cosines --cosines prints
vector_option = partial(option, group="vectors")


@dataclass(frozen=True)
class TextFlags(RunnableOptions):
    """The flags that name a model that embeds texts, the texts, and how the model embeds them."""

    model: str = option("a model that embeds texts, or its exported file", metavar="MODEL")
    text: tuple[str, ...] = option("the texts (default: lines of standard input)", (), metavar="TEXT")
    _: KW_ONLY
    input: str | None = option("texts in a TSV, CSV, JSONL, Parquet or .txt file (default: none)", None, metavar="FILE")
    text_a: str | None = option("the column of the texts (default: text)", None, metavar="COLUMN")
    size: int = vector_option("first dimensions to keep; 0: all", 0, metavar="N")
    prompt: str | None = vector_option(
        "a prompt that the model records, such as query (default: its default prompt)", None, metavar="NAME"
    )
    long: Literal["cut", "average"] = vector_option(
        "of a text with more tokens than the model takes: embed the beginning, or average its pieces", "cut"
    )


@dataclass(frozen=True, kw_only=True)
class EmbedFlags(TextFlags):
    output: str | None = option(
        "a .npy file for the vectors (default: print them)", None, group="output", metavar="NPY", short="-o"
    )
    precision: Literal["float32", "int8", "binary"] = option(
        "number format: int8 scales each vector to 127, binary keeps the signs as bits", "float32", group="output"
    )
    cosines: bool = option("print the cosine of every two texts instead of vectors", False, group="output")


def read_texts(texts: Sequence[str], file: str | None, column: str | None) -> list[str]:
    """Return the texts that TEXT or --input and --text_a name; raises UserError if both do."""
    from bertzoo.tasks import readers

    form = readers.InputForm()
    if file and texts:
        raise UserError(f"--input={file} and TEXT exclude each other, because each names the texts. Keep one.")
    if column and not file:
        raise UserError("--text_a names a column of a table. Add --input=TABLE.")
    if file and file.endswith(".txt"):
        if column:
            raise UserError(f"--text_a={column} names a column, which --input={file} lacks. Leave it out.")
        return readers.read_lines(file)
    if file:
        return [example.text_a for example in readers.from_table(file, [column or "text"], form)]
    examples = readers.from_texts(texts, form) if texts else readers.from_stdin(sys.stdin, form)
    return [example.text_a for example in examples]


def embedding_options(options: TextFlags, model: Any, *usual: str) -> dict[str, Any]:
    """Return the options of `EmbeddingModel.batches` that the flags set. usual: as in `EmbeddingModel.prompt`."""
    return {
        "prompt": model.prompt(options.prompt, *usual),
        "size": options.size,
        "long": options.long,
        "batch_size": options.batch_size or 0,
    }


def main(options: EmbedFlags) -> int:
    import numpy as np

    from bertzoo.export.file_model import open_embedding_model
    from bertzoo.finetuning.embed import quantised, unit_vectors
    from bertzoo.train.step import keep_programs

    if options.output:
        if not options.output.endswith(".npy"):
            raise UserError(f"--output={options.output} must end in .npy. Rename it.")
        check_file(options.output, f"--output={options.output}")
    if options.cosines and (options.output or options.precision != "float32"):
        raise UserError("--cosines prints cosines instead of vectors. Leave --output and --precision out.")
    keep_programs()
    texts = read_texts(options.text, options.input, options.text_a)
    if not texts:
        log("there are no texts")
        return 0
    if options.cosines and len(texts) > _MOST_COSINES:
        raise UserError(
            f"--cosines of {len(texts):,} texts would print {len(texts) ** 2:,} numbers. Use at most "
            f"{_MOST_COSINES:,} texts, or `bertzoo search`."
        )
    model = open_embedding_model(options.model, options.seed, options.batch_size, options.python)
    arguments = embedding_options(options, model)
    blocks, finished, longer = [], 0, 0
    for block, count in model.batches(texts, **arguments):
        finished, longer = finished + len(block), longer + count
        block = quantised(block, options.precision)
        if options.output or options.cosines:
            blocks.append(block)
        else:
            for vector in block:
                print(json.dumps([round(value, 6) for value in vector.tolist()]))
        if len(texts) > len(block):
            log(f"{finished:,} of {len(texts):,} texts embedded")
    if longer:
        state = "averaged over their pieces" if options.long == "average" else "cut; --long=average embeds them whole"
        log(f"{longer:,} of {len(texts):,} texts have more than {model.max_length} tokens and were {state}")
    if options.cosines:
        unit = unit_vectors(np.concatenate(blocks))
        for row in unit @ unit.T:
            print("  ".join(f"{value:6.3f}" for value in row))
    elif options.output:
        vectors = np.concatenate(blocks)
        with replacing(Path(options.output)) as temporary, temporary.open("wb") as file:
            np.save(file, vectors)
        log(f"Wrote {options.output}: {len(vectors):,} vectors of {vectors.shape[1]} {vectors.dtype} numbers.")
    return 0
