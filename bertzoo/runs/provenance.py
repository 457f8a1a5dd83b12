"""Record the provenance of a run: `run.json` with software, devices and corpus, and a copy of the tokenizer."""

import hashlib
import logging
import platform
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertzoo.core import atomic
from bertzoo.core.documents import read_json
from bertzoo.core.errors import CorpusError, UserError
from bertzoo.core.paths import is_url, on_disk
from bertzoo.core.version import __version__

if TYPE_CHECKING:
    from bertzoo.data.corpus.reader import Corpus
    from bertzoo.data.tokenizers.vocabulary import Tokenizer

_LOG = logging.getLogger(__name__)
RUN_JSON = "run.json"
TOKENIZER = "tokenizer"  # a folder beside run.json, and the key in run.json that holds the folder's file hashes
_MODEL = {"path": str, "parameters_sha256": str, "step?": int, "license?": str, "language?": str, "base_model?": str}
_RECORD = {
    "corpus?": str,
    "corpus_sha256?": str,
    f"{TOKENIZER}?": {str: str},
    "examples_sha256?": {str: str},
    "from?": _MODEL,
    "teacher?": _MODEL,
}


def write_run_json(directory: Path, record: dict[str, Any]) -> None:
    """Write run.json, replacing the old one."""
    atomic.write_json(directory / RUN_JSON, record, indent=2)


def read_run_json(directory: Path, run: str) -> dict[str, Any]:
    """Return the contents of run.json, or {} before the run has begun; raises UserError if it is damaged.

    run: the run's name in errors.
    """
    path = directory / RUN_JSON
    if not path.is_file():
        return {}
    try:
        return read_json(path, _RECORD)
    except ValueError as error:
        raise UserError(
            f"{run}/{RUN_JSON} is damaged ({error}). Restore a copy, or remove it and resume the run, which writes a "
            "new one."
        ) from error


def software() -> dict[str, str | None]:
    """Return the versions of bertzoo (with its git commit), Python and libraries for run.json."""
    return {
        "bertzoo": __version__,
        "git": git_revision(),
        "python": platform.python_version(),
        "jax": version("jax"),
        "flax": version("flax"),
        "optax": version("optax"),
    }


def git_revision(*beside: str) -> str | None:
    """Return the commit of the checkout that holds the package, or None outside a checkout.

    The suffix "+changes" marks uncommitted changes to the package or to the sibling folders `beside`.
    """
    here = Path(__file__).parents[1]
    folders = [str(here), *(str(here.parent / name) for name in beside)]

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(here), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        if not git("ls-files", "--error-unmatch", __file__):
            return None
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--", *folders) else "")
    except (OSError, subprocess.CalledProcessError):  # no git, or an installed package
        return None


def copy_tokenizer(corpus: "Corpus", directory: Path) -> dict[str, Any]:
    """Copy the corpus's tokenizer into a run's directory; return the entries of run.json for corpus and tokenizer."""
    from bertzoo.data.tokenizers import tokenizer

    copy, original = directory / TOKENIZER, corpus.directory / "tokenizer"
    contents = {name: (original / name).read_bytes() for name in tokenizer.files(corpus.tokenizer.config.kind)}
    shutil.rmtree(copy, ignore_errors=True)  # a run without a checkpoint may have had another corpus
    copy.mkdir()
    for name, data in contents.items():
        atomic.write_bytes(copy / name, data)
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    return {"corpus": corpus.address, "corpus_sha256": corpus.hash, TOKENIZER: hashes}


def read_tokenizer(directory: Path, record: dict[str, Any], run: str) -> "Tokenizer | None":
    """Return the run's copy of its tokenizer, or None without one; raises CorpusError if it is damaged.

    record: the contents of run.json; run: the run's name in errors.
    """
    from bertzoo.data.tokenizers import tokenizer

    copy, hashes = directory / TOKENIZER, record.get(TOKENIZER, {})
    if not hashes or not all((copy / name).is_file() for name in hashes):
        return None
    for name, digest in hashes.items():
        if hashlib.sha256((copy / name).read_bytes()).hexdigest() != digest:
            raise CorpusError(
                f"{run}/{TOKENIZER}/{name} is damaged: its hash differs from the one in {RUN_JSON}. Restore a copy, "
                "or remove the file to read the corpus's tokenizer instead."
            )
    return tokenizer.load(copy)


def check_local(address: str, what: str, run: str, advice: str) -> str:
    """Return an address from a run's run.json; raises UserError if it is a URL, because a stranger may have written it.

    what: the noun for the address in the error. advice: the error's last words, which follow the URL.
    """
    if is_url(address):
        raise UserError(
            f"{run}/{RUN_JSON} names the {what} {address}, but bertzoo reads a URL only if the command names it. "
            f"{advice}"
        )
    return address


def find_corpus(default: Path | str, record: dict[str, Any], run: str, where: str | None) -> "Corpus":
    """Open the corpus of a run; a corpus behind a URL is first copied to this machine.

    Opens the corpus at `where` if set, else in the run's own folder `default`, else at the address in run.json
    (`record`). If that address is a URL outside the run's bucket, only this machine's copy is opened. Raises UserError
    if the corpus is missing or is not the one in run.json.
    """
    from bertzoo.data.corpus import manifest, remote
    from bertzoo.data.corpus.reader import Corpus

    expected = record.get("corpus_sha256")
    if where is not None:
        if expected is None:
            address = f" at {record['corpus']}" if "corpus" in record else ""
            raise CorpusError(
                f"{run} does not record its corpus's hash, so nothing proves that --corpus={where} is its corpus. "
                f"Restore the corpus{address} and leave --corpus out."
            )
        return _open_corpus(where, record, run)
    own = isinstance(default, Path) and (default / manifest.NAME).is_file()
    if own and expected in (None, manifest.read_manifest(Path(default)).hash):
        return Corpus.open(Path(default))
    if not record:
        raise CorpusError(f"{run} has not started to train: it has no {RUN_JSON}. Run `bertzoo pretrain` first.")
    if (address := record.get("corpus")) is None:
        raise CorpusError(f"{run}/{RUN_JSON} does not name the run's corpus. Restore a copy of {RUN_JSON}.")
    if is_url(address):
        if address.split("/")[:3] == str(default).split("/")[:3]:
            return _open_corpus(address, record, run)
        if expected and (copy := remote.find_copy(expected, address)) is not None:
            return copy
        advice = (
            f"If you trust it, add --corpus={address}. To use the run without --corpus, copy the corpus's folder "
            f"tokenizer/ into {run}."
        )
        check_local(address, "corpus", run, advice)
    if not (Path(address) / manifest.NAME).is_file():
        remedy = "Restore it." if expected is None else "Name its new place with --corpus."
        raise CorpusError(f"the corpus of {run} is no longer at {address}. {remedy}")
    return _open_corpus(address, record, run)


def check_corpus(where: str, digest: str, record: dict[str, Any], run: str) -> None:
    """Raise CorpusError if the hash in run.json differs from `digest`, the hash of the corpus at `where`.

    record: the contents of run.json. run: the run's name in the error.
    """
    expected = record.get("corpus_sha256", digest)
    if digest != expected:
        raise CorpusError(
            f"{where} is not the corpus of {run}: its hash is {digest}, the run recorded {expected}. Name the corpus "
            "that the run was trained on."
        )


def _open_corpus(where: str, record: dict[str, Any], run: str) -> "Corpus":
    from bertzoo.data.corpus import manifest, remote
    from bertzoo.data.corpus.reader import Corpus

    path = None if is_url(where) else on_disk(where, "the corpus", "Write :// after the protocol.")
    contents = remote.read_remote_manifest(where) if path is None else manifest.read_manifest(path)
    check_corpus(where, contents.hash, record, run)  # before copying it
    return remote.open_remote_corpus(where, _LOG.warning) if path is None else Corpus.open(path)
