"""Index texts by meaning, and find the texts nearest to a query.

`search index MODEL` embeds texts and writes an index. `search query MODEL` embeds each query with the same model, or
with an exported file of it, and prints the nearest texts with the cosine.

examples:
  bertzoo search index minilm --input=help.csv --text_a=section --index=help.index
  bertzoo search query minilm 'How do I pay?' 'Is there a discount?' --index=help.index --top=3
  bertzoo search query minilm.tflite 'How do I pay?' --index=help.index
"""

import json
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Literal

from bertzoo.cli.embed import TextFlags, embedding_options, read_texts, vector_option
from bertzoo.cli.support import json_field, log
from bertzoo.core.errors import visible
from bertzoo.core.options import option, reject


@dataclass(frozen=True)
class SearchAction:
    what: Literal["index", "query"] = option("index: write an index. query: search it")


@dataclass(frozen=True)
class SearchFlags(TextFlags, SearchAction):
    """The command's flags; `what` comes first."""

    text: tuple[str, ...] = option(
        "the texts to index, or the queries (default: lines of standard input)", (), metavar="TEXT"
    )
    _: KW_ONLY
    index: Path = option("the index", metavar="DIR")
    long: Literal["cut", "average"] = vector_option(
        "of a text with more tokens than the model takes: embed the beginning, or average its pieces", "average"
    )
    precision: Literal["float32", "int8", "binary"] | None = vector_option(
        "of the stored vectors; binary finds candidates by bits and orders them by int8 vectors (default: int8)", None
    )
    top: int | None = option("texts for a query (default: 5)", None, group="output", metavar="K", least=1)
    json: bool = json_field("print a JSON array for each query")


def main(options: SearchFlags) -> int:
    from bertzoo.export.file_model import open_embedding_model
    from bertzoo.finetuning.embed import DOCUMENT, QUERY, build_index, read_index
    from bertzoo.train.step import keep_programs

    reject(options, ("top", "json") if options.what == "index" else ("precision", "size"), f"`search {options.what}`")
    keep_programs()
    index = read_index(options.index) if options.what == "query" else None
    model = open_embedding_model(options.model, options.seed, options.batch_size, options.python)
    if index is not None:
        index.check_model(model)
    usual = DOCUMENT if index is None else QUERY
    arguments = embedding_options(options, model, *usual)
    texts = read_texts(options.text, options.input, options.text_a)
    if index is None:
        description = build_index(model, texts, options.index, precision=options.precision or "int8", **arguments)
        log(f"Wrote {options.index}: {description['texts']:,} texts, {description['size']} dimensions.")
        return 0
    arguments["size"] = index.size if index.size != model.width else 0
    for query, hits in zip(texts, index.search(model.embed(texts, **arguments), options.top or 5), strict=True):
        if options.json:
            line = json.dumps([hit._asdict() for hit in hits], ensure_ascii=False)
            print("".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line))
            continue
        print(visible(query))
        for hit in hits:
            print(f"    {hit.score:.3f}  {visible(' '.join(hit.text.split())[:200])}")
    return 0
