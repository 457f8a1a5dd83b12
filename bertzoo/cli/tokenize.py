"""Turn text into a tokenised corpus, which pretraining then reads as its --data.source.

SRC is files, directories or globs of text (blank lines between documents), .jsonl (both plain, .gz, .xz or .zst) or
.parquet, here or behind gs://, s3:// or whatever else fsspec reads; tfds:NAME/CONFIG, a data set that TensorFlow
Datasets has prepared; embedded:python, the prose in this Python installation; several of these, separated by commas; or
mixture, which stands for the [[data.mixture]] tables of a config: sources with weights. DST is a new directory; one
that holds a part of the same corpus is completed. It may be behind gs://, s3:// and so on too: the corpus is then made
in this machine's cache and uploaded. The options --data.* are those of a pretraining config, and --config takes them
from one.

examples:
  bertzoo tokenize 'text/*.txt.xz' corpus --data.tokenizer.vocab_size=30522
  bertzoo tokenize wiki.jsonl.zst corpus --config=squeezebert --data.tokenizer.path=vocab.txt --workers=8
  bertzoo tokenize 'gs://bucket/fineweb/*.parquet' corpus --data.text_field=text
  bertzoo tokenize 'gs://bucket/*.jsonl.gz' /shared/corpus --runner=FlinkRunner --runner_options='--parallelism=64'
  bertzoo tokenize 'text/*.txt.xz' gs://bucket/corpus --config=squeezebert
  bertzoo tokenize mixture corpus --config=squeezebert --config=wikipedia_and_web.toml
"""

import argparse
import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bertzoo.cli.support.options import say, tokenising, workers_option
from bertzoo.core import config as loader
from bertzoo.core.errors import UserError
from bertzoo.core.paths import is_url, on_disk
from bertzoo.data.settings import CorpusConfig, Data

if TYPE_CHECKING:
    from bertzoo.data.corpus.manifest import Manifest

_OF_ROWS = ("data.packing", "data.masking")
_DROPPED = {
    "duplicate": "documents that equal an earlier one",
    "short": "documents of fewer than data.minimum_tokens tokens",
    "left_out": "documents that the weight of their source leaves out",
    "empty_sentences": "sentences without a token",
}


def config() -> type:
    """The class of the config."""
    return CorpusConfig


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument("source", metavar="SRC", help="the text")
    parser.add_argument("destination", metavar="DST", type=_destination, help="the directory of the corpus, or a URL")
    parser.add_argument(
        "--config", action="append", default=[], help="a pretraining config to take [data] from; repeatable"
    )
    workers_option(parser)
    parser.add_argument(
        "--runner", default="", help="let Apache Beam tokenise, such as DirectRunner; DST is shared by all"
    )
    parser.add_argument("--runner_options", default="", metavar="'--a=1 --b=2'", help="options of the runner's own")
    parser.add_argument("--json", action="store_true", help="print the counts as one JSON document")


def _destination(text: str) -> str | Path:
    if text.startswith(("file:", "local:")):
        return on_disk(text, "DST =", "name the directory itself")
    return text if is_url(text) else on_disk(text, "DST =", "write :// after the protocol")


def settings(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> Data:
    """What to tokenise and how; raises UserError for an option that cannot change a corpus."""
    for key, _ in overrides:
        if key == "data.source":
            raise UserError("--data.source and SRC say the same thing; give SRC alone")
        if key.startswith(_OF_ROWS):
            raise UserError(f"--{key} changes the rows and not the corpus; give it to `bertzoo pretrain`")
    cls: type = CorpusConfig
    if args.config:
        from bertzoo.runs.pretrain_config import Pretrain

        cls = Pretrain
    return replace(loader.load(cls, args.config, overrides).data, source=args.source)


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Tokenise, and print the counts."""
    if args.runner and args.workers:
        raise UserError(
            f"--workers={args.workers} and --runner={args.runner} exclude each other; the runner has its own"
        )
    if args.runner_options and not args.runner:
        raise UserError("--runner_options are of a --runner; name it")
    start = time.monotonic()
    contents = _tokenize(args, settings(args, overrides))
    counts = {name: _counts(contents, name) for name in contents.splits}
    if args.json:
        told = {name: contents.raw[name] for name in ("dropped", "parts") if name in contents.raw}
        print(json.dumps({"directory": str(args.destination), "hash": contents.hash, "splits": counts, **told}))
        return 0
    for name, numbers in counts.items():
        print(f"{name}: " + ", ".join(f"{number:,} {what}" for what, number in numbers.items()))
    for part in contents.raw.get("parts", ()):
        numbers = f"{part['documents']:,} documents, {part['tokens']:,} tokens"
        print(f"{part['source']}, weight {part['weight']:g}: {numbers}")
    for reason, number in contents.raw["dropped"].items():
        print(f"dropped: {number:,} {_DROPPED[reason]}")
    print(f"Wrote {args.destination} in {time.monotonic() - start:.1f} s.")
    print(f"Pretrain on it with --data.source={args.destination}")
    return 0


def _tokenize(args: argparse.Namespace, data: Data) -> "Manifest":
    from bertzoo.data.corpus.tokenize import tokenize, tokenize_to_url

    with tokenising() as progress:
        if isinstance(args.destination, str):
            if args.runner:
                raise UserError(
                    f"DST = {args.destination} is a URL, but what a --runner's workers write into is a directory that "
                    "all of them see: mount the bucket and name its directory"
                )
            return tokenize_to_url(data, args.destination, workers=args.workers, progress=progress, tell=say)
        options = shlex.split(args.runner_options)
        return tokenize(
            data, args.destination, workers=args.workers, progress=progress, runner=args.runner, runner_options=options
        ).manifest


def _counts(contents: "Manifest", split: str) -> dict[str, int]:
    record = contents.splits[split]
    return {"documents": record.documents, "sentences": record.sentences, "tokens": record.tokens}
