"""Read and write tokenised corpora behind URLs.

Reading: ArrayRecord and memory maps need files on disk, so every host copies the whole corpus to the user's cache. All
processes of the host share this copy. The copy's directory is named after the manifest's hash.

Writing: `claim` reserves a remote folder, and `upload` copies a finished corpus from a local directory into it.
"""

import json
import logging
from pathlib import Path

from bertzoo.core import atomic, paths
from bertzoo.core.errors import CorpusError
from bertzoo.core.remote import RemoteFolder, check_room, transfer_files
from bertzoo.data.corpus.manifest import NAME, SETTINGS, Manifest, check_same_settings, parse_manifest
from bertzoo.data.corpus.reader import Corpus
from bertzoo.data.corpus.shard import FileRecord
from bertzoo.data.tokenizers import tokenizer

_LOG = logging.getLogger(__name__)


def read_remote_manifest(folder: RemoteFolder) -> Manifest:
    """Return the manifest of the corpus in a remote folder; raises CorpusError if it is missing or damaged."""
    return parse_manifest(folder.read_bytes(NAME), f"{folder.url}/{NAME}")


def open_remote_corpus(url: str) -> Corpus:
    """Open this machine's copy of the corpus behind a URL; makes or repairs the copy if necessary.

    Raises CorpusError if the corpus is damaged or cannot be read, or the disk has no room for the copy.
    """
    folder = RemoteFolder.at(url)
    manifest = read_remote_manifest(folder)
    directory = paths.cache_folder("corpora") / manifest.hash
    with atomic.wait_for(directory):
        if (directory / NAME).is_file():
            try:
                return Corpus.open(directory, url)
            except CorpusError:
                _LOG.info(f"{directory} is damaged; copying the damaged files from {url} again")
        _download(folder, manifest, directory)
        atomic.write_json(directory / NAME, manifest.raw)
        return Corpus.open(directory, url)


def _download(folder: RemoteFolder, manifest: Manifest, directory: Path) -> None:
    """Download and check each file that `directory` lacks, or whose hash differs from the manifest's."""
    (directory / "tokenizer").mkdir(parents=True, exist_ok=True)
    missing = [record for record in manifest.files if not record.matches(directory)]
    size = sum(record.bytes for record in missing)
    _LOG.info(f"copying {folder.url} to {directory}: {len(missing):,} files, {size / 1e6:,.1f} MB")
    check_room(directory, size, folder.url)
    advice = "and repeat the `bertzoo tokenize` that wrote the corpus."

    def download(record: FileRecord) -> None:
        folder.download(record.file, directory / record.file)
        if not record.matches(directory):
            (directory / record.file).unlink()
            raise CorpusError(
                f"{folder.url}/{record.file} is damaged: its SHA-256 is not the manifest's. Delete this file {advice}"
            )

    transfer_files(download, missing)
    for name in _tokenizer_files(manifest):
        folder.download(name, directory / name)
    if tokenizer.fingerprint(directory / "tokenizer") != manifest.tokenizer_sha256:
        raise CorpusError(
            f"{folder.url}/tokenizer is damaged: its hash differs from the manifest's. Delete this folder {advice}"
        )


def _tokenizer_files(manifest: Manifest) -> list[str]:
    return [f"tokenizer/{name}" for name in tokenizer.files(manifest.settings["tokenizer"]["kind"])]


def claim(folder: RemoteFolder, settings: dict[str, object]) -> Manifest | None:
    """Reserve a folder for a corpus with these settings; return the manifest if the folder holds this corpus complete.

    Raises CorpusError if the folder holds anything else or cannot be written.
    """
    if not folder.has_file(SETTINGS):
        if folder.file_sizes():
            raise CorpusError(f"{folder.url} is not empty and holds no tokenised corpus. Choose another destination.")
        folder.write_bytes(SETTINGS, (json.dumps(settings, indent=1) + "\n").encode())
        return None
    check_same_settings(settings, folder.read_bytes(SETTINGS), folder.url)
    if not folder.has_file(NAME):
        return None
    manifest, sizes = read_remote_manifest(folder), folder.file_sizes()
    complete = all(sizes.get(record.file) == record.bytes for record in manifest.files)
    return manifest if complete and all(map(folder.has_file, _tokenizer_files(manifest))) else None


def upload(corpus: Corpus, folder: RemoteFolder) -> None:
    """Copy a local corpus into a remote folder; the manifest is copied last."""
    records = corpus.manifest.files
    size = sum(record.bytes for record in records)
    _LOG.info(f"uploading to {folder.url}: {len(records):,} files, {size / 1e6:,.1f} MB")
    names = [record.file for record in records] + _tokenizer_files(corpus.manifest)
    transfer_files(lambda name: folder.upload(corpus.directory / name, name), names)
    folder.write_bytes(NAME, (corpus.directory / NAME).read_bytes())
