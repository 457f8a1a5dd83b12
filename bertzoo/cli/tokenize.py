"""Turn text into a tokenised corpus, to use as --data.source.

SRC is a comma-separated list of files, directories or globs, on this machine or at gs://, s3:// or another URL of
fsspec. A file is text with blank lines between documents, .jsonl or .parquet; text and .jsonl files may end in .gz, .xz
or .zst. Other sources are tfds:NAME/CONFIG, embedded:python (prose of this Python installation) and mixture (the
[[data.mixture]] tables of a config).

examples:
  bertzoo tokenize 'text/*.txt.xz' corpus --data.tokenizer.vocab_size=30522
  bertzoo tokenize wiki.jsonl.zst corpus --config=squeezebert --data.tokenizer.path=vocab.txt --workers=8
  bertzoo tokenize 'gs://bucket/*.jsonl.gz' gs://bucket/corpus --config=squeezebert
"""

import json
import time
from dataclasses import dataclass

from bertzoo.api.options import TokenizeOptions
from bertzoo.cli.support import json_field, tokenising
from bertzoo.data.settings import CorpusConfig

_DROPPED = {
    "duplicate": "documents that equal an earlier one",
    "short": "documents of fewer than data.minimum_tokens tokens",
    "left_out": "documents that the weight of their source leaves out",
    "empty_sentences": "sentences without a token",
}


def config() -> type:
    return CorpusConfig


@dataclass(frozen=True, kw_only=True)
class TokenizeFlags(TokenizeOptions):
    json: bool = json_field("print the counts as one JSON document")


def main(options: TokenizeFlags) -> int:
    from bertzoo.api.training import write_corpus

    start = time.monotonic()
    manifest = write_corpus(options, tokenising())
    if options.json:
        counts = {name: split.counts for name, split in manifest.splits.items()}
        more = {name: manifest.raw[name] for name in ("dropped", "parts") if name in manifest.raw}
        print(json.dumps({"directory": str(options.destination), "hash": manifest.hash, "splits": counts, **more}))
        return 0
    for name, split in manifest.splits.items():
        print(f"{name}: {split}")
    for source in manifest.raw.get("parts", ()):
        numbers = f"{source['documents']:,} documents, {source['tokens']:,} tokens"
        print(f"{source['source']}, weight {source['weight']:g}: {numbers}")
    for reason, number in manifest.raw["dropped"].items():
        print(f"dropped: {number:,} {_DROPPED[reason]}")
    print(f"Wrote {options.destination} in {time.monotonic() - start:.1f} s.")
    print(f"Pretrain on it with --data.source={options.destination}")
    return 0
