"""Index texts by meaning, and find the texts nearest to a query.

`search index MODEL` embeds texts and writes an index. `search query MODEL` embeds each query with the same model, or
with an exported file of it, and prints the nearest texts with the cosine.

examples:
  bertzoo search index minilm --input=help.csv --text_a=section --index=help.index
  bertzoo search query minilm 'How do I pay?' 'Is there a discount?' --index=help.index --top=3
  bertzoo search query minilm.tflite 'How do I pay?' --index=help.index
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from bertzoo.cli.embed import embedding_options, read_texts, text_options, vector_options
from bertzoo.cli.support.options import Parser, json_option, say
from bertzoo.core.errors import UserError, visible


def arguments(parser: Parser) -> None:
    """Declare the command's flags."""
    inputs = parser.group("input")
    inputs.add_argument("what", choices=("index", "query"), help="index: write an index. query: search it")
    inputs.add_argument("model", metavar="MODEL", help="a model that embeds texts, or its exported file")
    text_options(parser, "the texts to index, or the queries (default: lines of standard input)")
    inputs.add_argument("--index", required=True, type=Path, metavar="DIR", help="the index")
    vector_options(parser, "average")
    vectors = parser.group("vectors")
    vectors.add_argument(
        "--precision",
        choices=("float32", "int8", "binary"),
        help="of the stored vectors; binary finds candidates by bits and orders them by int8 vectors (default: int8)",
    )
    parser.group("output").add_argument("--top", type=int, metavar="K", help="texts for a query (default: 5)")
    json_option(parser, "print a JSON array for each query")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Write the index, or print the nearest texts of each query."""
    from bertzoo.export.file_model import open_embedding_model
    from bertzoo.finetuning.embed import DOCUMENT, QUERY
    from bertzoo.finetuning.text_index import build_index, read_index
    from bertzoo.train.step import keep_programs

    foreign = {"index": ("top", "json"), "query": ("precision", "size")}[args.what]
    for name in foreign:
        if (value := getattr(args, name)) not in (None, False, 0):
            raise UserError(f"--{name}={value} does not apply to `search {args.what}`. Leave --{name} out.")
    if args.top is not None and args.top < 1:
        raise UserError(f"--top={args.top} is less than 1. Use 1 or more.")
    keep_programs()
    index = read_index(args.index) if args.what == "query" else None
    model = open_embedding_model(args.model, args.seed, args.batch_size, args.python)
    if index is not None:
        index.check_model(model)
    usual = DOCUMENT if index is None else QUERY
    options, texts = embedding_options(args, model, *usual), read_texts(args)
    if index is None:
        description = build_index(model, texts, args.index, precision=args.precision or "int8", **options)
        say(f"Wrote {args.index}: {description['texts']:,} texts, {description['size']} dimensions.")
        return 0
    options["size"] = index.size if index.size != model.width else 0
    for query, hits in zip(texts, index.search(model.embed(texts, **options), args.top or 5), strict=True):
        if args.json:
            line = json.dumps([hit._asdict() for hit in hits], ensure_ascii=False)
            print("".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line))
            continue
        print(visible(query))
        for hit in hits:
            print(f"    {hit.score:.3f}  {visible(' '.join(hit.text.split())[:200])}")
    return 0
