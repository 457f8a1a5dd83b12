"""Turn text into a tokenised corpus, to use as --data.source.

SRC is a comma-separated list of files, directories or globs, on this machine or at gs://, s3:// or another URL of
fsspec. A file is text with blank lines between documents, .jsonl or .parquet; text and .jsonl files may end in .gz, .xz
or .zst. Other sources are tfds:NAME/CONFIG, embedded:python (prose of this Python installation) and mixture (the
[[data.mixture]] tables of a config).

examples:
  bertzoo tokenize 'text/*.txt.xz' corpus --data.tokenizer.vocab_size=30522
  bertzoo tokenize wiki.jsonl.zst corpus --config=squeezebert --data.tokenizer.path=vocab.txt --workers=8
  bertzoo tokenize 'gs://bucket/*.jsonl.gz' /shared/corpus --runner=FlinkRunner --runner_options='--parallelism=64'
"""

import argparse
import json
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from bertzoo.cli.support.options import Parser, json_option, tokenising, workers_option
from bertzoo.core.paths import is_url, on_disk
from bertzoo.data.settings import CorpusConfig, Data, corpus_settings

_DROPPED = {
    "duplicate": "documents that equal an earlier one",
    "short": "documents of fewer than data.minimum_tokens tokens",
    "left_out": "documents that the weight of their source leaves out",
    "empty_sentences": "sentences without a token",
}


def config() -> type:
    """Return CorpusConfig, the class of the config."""
    return CorpusConfig


def arguments(parser: Parser) -> None:
    """Declare the command's flags."""
    inputs = parser.group("input")
    inputs.add_argument("source", metavar="SRC", help="the text to tokenise")
    inputs.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="CONFIG",
        help="a pretraining config whose [data] applies; repeatable (default: none)",
    )
    parser.group("output").add_argument(
        "destination", metavar="DST", type=_destination, help="the directory or URL of the corpus, new or unfinished"
    )
    json_option(parser, "print the counts as one JSON document")
    workers_option(parser)
    speed = parser.group("speed")
    speed.add_argument(
        "--runner",
        default="",
        metavar="NAME",
        help="an Apache Beam runner such as DirectRunner; all its workers must see DST (default: none)",
    )
    speed.add_argument(
        "--runner_options", default="", metavar="'--a=1 --b=2'", help="options of --runner (default: none)"
    )


def _destination(text: str) -> str | Path:
    if text.startswith(("file:", "local:")):
        return on_disk(text, "DST =", "Name the directory itself.")
    return text if is_url(text) else on_disk(text, "DST =", "Write :// after the protocol.")


def settings(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> Data:
    """Return the [data] settings of the command line."""
    if not args.config:
        return corpus_settings(args.source, overrides)
    from bertzoo.runs.configs import Pretrain

    return corpus_settings(args.source, overrides, args.config, Pretrain)


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Write the corpus and print its counts."""
    from bertzoo.data.corpus.tokenize import write_corpus

    start, data = time.monotonic(), settings(args, overrides)
    options = {"workers": args.workers, "runner": args.runner, "runner_options": shlex.split(args.runner_options)}
    with tokenising() as progress:
        manifest = write_corpus(data, args.destination, **options, progress=progress)
    if args.json:
        counts = {name: split.counts for name, split in manifest.splits.items()}
        more = {name: manifest.raw[name] for name in ("dropped", "parts") if name in manifest.raw}
        print(json.dumps({"directory": str(args.destination), "hash": manifest.hash, "splits": counts, **more}))
        return 0
    for name, split in manifest.splits.items():
        print(f"{name}: {split}")
    for part in manifest.raw.get("parts", ()):
        numbers = f"{part['documents']:,} documents, {part['tokens']:,} tokens"
        print(f"{part['source']}, weight {part['weight']:g}: {numbers}")
    for reason, number in manifest.raw["dropped"].items():
        print(f"dropped: {number:,} {_DROPPED[reason]}")
    print(f"Wrote {args.destination} in {time.monotonic() - start:.1f} s.")
    print(f"Pretrain on it with --data.source={args.destination}")
    return 0
