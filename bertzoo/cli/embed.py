"""Write the vectors of texts.

MODEL is a run that trained vectors (`bertzoo finetune` with head = "embedding"), a directory of sentence-transformers,
or a file that `bertzoo convert` wrote. Two texts are similar if the cosine of their vectors is high. Without --output,
the command prints a JSON array for each text, or the cosines of all pairs with --cosines.

examples:
  bertzoo embed minilm --input=questions.csv --text_a=question --output=vectors.npy
  bertzoo embed runs/search --input=texts.csv --output=bits.npy --size=128 --precision=binary
  bertzoo embed minilm.tflite 'How do I pay?' 'Where can I settle the bill?' --cosines
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertzoo.cli.support.finetuned import model_flags
from bertzoo.cli.support.options import Parser, check_file, say
from bertzoo.core.errors import UserError

_MOST_COSINES = 1000  # texts whose cosines --cosines prints


def arguments(parser: Parser) -> None:
    """Declare the command's flags."""
    inputs, output = parser.group("input"), parser.group("output")
    inputs.add_argument("model", metavar="MODEL", help="a model that embeds texts, or its exported file")
    text_options(parser, "the texts (default: lines of standard input)")
    vector_options(parser)
    output.add_argument("--output", "-o", metavar="NPY", help="a .npy file for the vectors (default: print them)")
    output.add_argument(
        "--precision",
        choices=("float32", "int8", "binary"),
        default="float32",
        help="numbers of a vector: int8 scales each vector to 127, binary keeps the signs as bits",
    )
    output.add_argument("--cosines", action="store_true", help="print the cosine of every two texts instead of vectors")


def text_options(parser: Parser, text: str) -> None:
    """Declare the flags that name texts; `text` is the help of TEXT."""
    inputs = parser.group("input")
    inputs.add_argument("text", nargs="*", default=[], metavar="TEXT", help=text)
    inputs.add_argument(
        "--input", metavar="FILE", help="texts in a TSV, CSV, JSONL, Parquet or .txt file (default: none)"
    )
    inputs.add_argument("--text_a", metavar="COLUMN", help="the column of the texts (default: text)")


def vector_options(parser: Parser, long: str = "cut") -> None:
    """Declare the flags that decide how a model embeds texts. long: the default of --long."""
    group = parser.group("vectors")
    group.add_argument("--size", type=int, default=0, metavar="N", help="first dimensions to keep; 0: all")
    group.add_argument(
        "--prompt", metavar="NAME", help="a prompt that the model records, such as query (default: its default prompt)"
    )
    group.add_argument(
        "--long",
        choices=("cut", "average"),
        default=long,
        help="of a text with more tokens than the model's rows: embed the beginning, or average its pieces",
    )
    model_flags(group)


def read_texts(args: argparse.Namespace) -> list[str]:
    """Return the texts that the flags name; raises UserError if they name two sources."""
    from bertzoo.tasks import inputs, readers

    form = inputs.InputForm()
    if args.input and args.text:
        raise UserError(f"--input={args.input} and TEXT exclude each other, because each names the texts. Keep one.")
    if args.text_a and not args.input:
        raise UserError("--text_a names a column of a table. Add --input=TABLE.")
    if len(args.text) == 1 and os.path.isfile(file := args.text[0]):
        raise UserError(
            f"TEXT = {file} is the name of a file. Read the file with --input={file}, or pass the name itself as a "
            "text on standard input."
        )
    if args.input and args.input.endswith(".txt"):
        if args.text_a:
            raise UserError(f"--text_a={args.text_a} names a column, which --input={args.input} lacks. Leave it out.")
        return readers.read_lines(args.input)
    if args.input:
        return [example.text_a for example in inputs.from_table(args.input, [args.text_a or "text"], form)]
    examples = inputs.from_texts(args.text, form) if args.text else inputs.from_stdin(sys.stdin, form)
    return [example.text_a for example in examples]


def embedding_options(args: argparse.Namespace, model: Any, *usual: str) -> dict[str, Any]:
    """Return the options of `EmbeddingModel.parts` that the flags set. usual: as in `EmbeddingModel.prompt`."""
    if args.size < 0:
        raise UserError(f"--size={args.size} is negative. Use 0 for all dimensions.")
    return {
        "prompt": model.prompt(args.prompt, *usual),
        "size": args.size,
        "long": args.long,
        "batch_size": args.batch_size or 0,
    }


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Write or print the vectors."""
    import numpy as np

    from bertzoo.core import atomic
    from bertzoo.export.file_model import open_embedding_model
    from bertzoo.finetuning.embed import quantised
    from bertzoo.finetuning.text_split import unit_vectors
    from bertzoo.train.step import keep_programs

    if args.output:
        if not args.output.endswith(".npy"):
            raise UserError(f"--output={args.output} must end in .npy. Rename it.")
        check_file(args.output, f"--output={args.output}")
    if args.cosines and (args.output or args.precision != "float32"):
        raise UserError("--cosines prints cosines instead of vectors. Leave --output and --precision out.")
    keep_programs()
    texts = read_texts(args)
    if not texts:
        say("there are no texts")
        return 0
    if args.cosines and len(texts) > _MOST_COSINES:
        raise UserError(
            f"--cosines of {len(texts):,} texts would print {len(texts) ** 2:,} numbers. Use at most "
            f"{_MOST_COSINES:,} texts, or `bertzoo search`."
        )
    model = open_embedding_model(args.model, args.seed, args.batch_size, args.python)
    options = embedding_options(args, model)
    parts, done, longer = [], 0, 0
    for part, count in model.parts(texts, **options):
        done, longer = done + len(part), longer + count
        part = quantised(part, args.precision)
        if args.output or args.cosines:
            parts.append(part)
        else:
            for vector in part:
                print(json.dumps([round(value, 6) for value in vector.tolist()]))
        if len(texts) > len(part):
            say(f"{done:,} of {len(texts):,} texts embedded")
    if longer:
        state = "averaged over their pieces" if args.long == "average" else "cut; --long=average embeds them whole"
        say(f"{longer:,} of {len(texts):,} texts have more than {model.max_length} tokens and were {state}")
    if args.cosines:
        unit = unit_vectors(np.concatenate(parts))
        for row in unit @ unit.T:
            print("  ".join(f"{value:6.3f}" for value in row))
        return 0
    if not args.output:
        return 0
    vectors = np.concatenate(parts)
    with atomic.replacing(Path(args.output)) as temporary, temporary.open("wb") as file:
        np.save(file, vectors)
    say(f"Wrote {args.output}: {len(vectors):,} vectors of {vectors.shape[1]} {vectors.dtype} numbers.")
    return 0
