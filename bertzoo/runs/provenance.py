"""What a run was trained on: its corpus, which is found again, and its tokenizer, of which it keeps a copy."""

import hashlib
import logging
import shutil
from pathlib import Path
from typing import Any

from bertzoo.core import atomic
from bertzoo.core.errors import CorpusError
from bertzoo.core.paths import is_url, on_disk
from bertzoo.data.corpus import manifest, remote
from bertzoo.data.corpus.corpus import Corpus
from bertzoo.data.tokenizers import tokenizer
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.runs import facts

_LOG = logging.getLogger(__name__)


def keep(corpus: Corpus, directory: Path) -> dict[str, Any]:
    """Copy the corpus's tokenizer into a run's directory; what run.json says of both."""
    kept, saved = directory / facts.TOKENIZER, corpus.directory / "tokenizer"
    contents = {name: (saved / name).read_bytes() for name in tokenizer.files(corpus.tokenizer.config.kind)}
    shutil.rmtree(kept, ignore_errors=True)  # which may be another corpus's, of a run that had no checkpoint
    kept.mkdir()
    for name, data in contents.items():
        atomic.write_bytes(kept / name, data)
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    return {"corpus": corpus.address, "corpus_sha256": corpus.hash, facts.TOKENIZER: hashes}


def kept_tokenizer(directory: Path, said: dict[str, Any], run: str) -> Tokenizer | None:
    """The copy in a run's directory, None where there is none; raises CorpusError where it is damaged.

    said: what run.json says; run: what a person calls the run.
    """
    kept, hashes = directory / facts.TOKENIZER, said.get(facts.TOKENIZER, {})
    if not hashes or not all((kept / name).is_file() for name in hashes):
        return None
    for name, digest in hashes.items():
        if hashlib.sha256((kept / name).read_bytes()).hexdigest() != digest:
            raise CorpusError(
                f"{run}/{facts.TOKENIZER}/{name} is damaged, its hash is not the one in {facts.NAME}: put back a copy, "
                "or remove it, and that of the corpus is read"
            )
    return tokenizer.load(kept)


def find_corpus(own: Path | str, said: dict[str, Any], run: str, where: str | None) -> Corpus:
    """The corpus of a run, copied here where it is behind a URL: `where` a person says, else the run's `own`, else
    where run.json has `said` that it is.

    Raises CorpusError where it is not there, or where it is not the one that run.json names.
    """
    known = said.get("corpus_sha256")
    if where is not None:
        if known is None:
            raise CorpusError(
                f"{run} does not say which corpus it was trained on, so that --corpus={where} cannot be compared with "
                f"it; put it back where it was{', ' + said['corpus'] if said else ''}"
            )
        return _opened(where, said, run)
    if isinstance(own, Path) and (own / manifest.NAME).is_file() and known in (None, manifest.read(own).hash):
        return Corpus.open(own)
    if not said:
        raise CorpusError(f"{run} has not begun to train: it has no {facts.NAME}")
    address = said["corpus"]
    if not is_url(address) and not (Path(address) / manifest.NAME).is_file():
        remedy = "put it back" if known is None else "say with --corpus where it is"
        raise CorpusError(f"the corpus that {run} was trained on is no longer at {address}: {remedy}")
    return _opened(address, said, run)


def check(where: str, found: str, said: dict[str, Any], run: str) -> None:
    """Raise CorpusError unless the hash `found` of the corpus at `where` is the one in run.json, if that has one."""
    known = said.get("corpus_sha256", found)
    if found != known:
        raise CorpusError(
            f"{where} is not the corpus that {run} was trained on: its hash is {found}, that of the run's {known}"
        )


def _opened(where: str, said: dict[str, Any], run: str) -> Corpus:
    path = None if is_url(where) else on_disk(where, "the corpus", "write :// after the protocol")
    found = remote.read_manifest(where) if path is None else manifest.read(path)
    check(where, found.hash, said, run)  # before it is copied
    return remote.open_corpus(where, _LOG.warning) if path is None else Corpus.open(path)
