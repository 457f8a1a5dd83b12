"""Copy a model at a URL to the user's cache: only the files that `load_model.read_model` reads."""

import hashlib
import logging
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from bertzoo.conversion import huggingface, sentence_modules, tensorflow1, variables
from bertzoo.conversion.tokenizers import VOCABULARY
from bertzoo.core import atomic, lock, paths
from bertzoo.core.documents import parse_toml, read_json
from bertzoo.core.errors import CorpusError, UserError
from bertzoo.core.kinds import CONFIG, kind_of
from bertzoo.core.remote import RemoteFolder, check_room, transfer_files
from bertzoo.runs.kinds import CHECKPOINTS as _CHECKPOINTS
from bertzoo.runs.provenance import TOKENIZER
from bertzoo.train import checkpoint, contents

_LOG = logging.getLogger(__name__)

Tree = Mapping[str, tuple[int, str]]  # path -> (size in bytes, version)
MODEL = "model.toml"  # the file that marks a model directory
_RECORD = "copy.json"  # written last; a copy without it is incomplete
# Endings of files beside a model that no reader opens: other projects' weights, logs and pictures.
_UNREAD = (".h5", ".msgpack", ".ot", ".onnx", ".tflite", ".pt", ".pth", ".gguf", ".jsonl", ".png", ".svg", ".meta")
_NONE, _MODULE = re.compile(""), re.compile(r"(\d+_\w+)?")  # folders beside config.json, and those of modules.json


class ModelCopy(NamedTuple):
    """A copy, on this machine, of a model at a URL.

    directory: copy of the folder at `url`. inside: path of the model in the folder, "." if the folder itself is the
    model.
    """

    directory: Path
    url: str
    inside: str

    @property
    def path(self) -> Path:
        """The model's path on this machine."""
        return self.directory / self.inside

    def rename(self, text: str) -> str:
        """Return `text` with `url` in place of the path `directory`."""
        return text.replace(str(self.directory), self.url)


@contextmanager
def local_copy(url: str) -> Iterator[ModelCopy]:
    """Copy the new and changed files of the model at `url`, and yield the copy.

    Other processes of this machine that need the copy wait until the with block ends. An incomplete copy is never read
    as a model. Raises UserError if there is no model, the URL cannot be read, the disk is too small, or the model
    changes while it is copied.
    """
    folder, inside, tree = _find(url)
    home = paths.cache_folder("models") / hashlib.sha256(url.encode()).hexdigest()[:32]
    with lock.wait_for(home):
        _refresh(folder, tree, home, url)
        yield ModelCopy(home / "files", folder.url, inside)


def _find(url: str) -> tuple[RemoteFolder, str, Tree]:
    """Return the remote folder that holds the model at `url`, the model's path in the folder, and the files to copy."""
    parent, _, name = url.rpartition("/")
    if name.isdecimal() and parent.endswith(f"/{_CHECKPOINTS}"):
        folder = RemoteFolder.at(parent.removesuffix(f"/{_CHECKPOINTS}"))
        tree = folder.list_tree()
        if CONFIG in tree and _is_complete(tree, name):
            return folder, f"{_CHECKPOINTS}/{name}", _select(tree, name)
        raise UserError(f"{url} is not a complete checkpoint of a run. Name the run or another of its checkpoints.")
    folder = RemoteFolder.at(url)
    tree = folder.list_tree()
    index = any("/" not in path and path.endswith(variables.INDEX) for path in tree)
    if index or {MODEL, huggingface.CONFIG, CONFIG, sentence_modules.MODULES} & tree.keys():
        return folder, ".", _select(tree, *_parts(folder, tree))
    if not tree and folder.path.strip("/").count("/"):
        beside = RemoteFolder.at(parent)
        names = {path: state for path, state in beside.list_tree().items() if "/" not in path}
        if f"{name}{variables.INDEX}" in names:
            needed = (tensorflow1.CONFIG, VOCABULARY)
            return beside, name, {n: s for n, s in names.items() if n.startswith(f"{name}.") or n in needed}
    state = "is not a run, a checkpoint, a model directory, a Hugging Face directory or a TensorFlow 1 checkpoint"
    raise UserError(f"{url} {state if tree else 'does not exist'}. Name a URL that holds a model.")


def _is_complete(tree: Tree, step: str) -> bool:
    """Return whether the checkpoint of `step` has orbax's commit marker or, if copied from a disk, a manifest."""
    return bool(
        {f"{_CHECKPOINTS}/{step}{contents.SUFFIX}", f"{_CHECKPOINTS}/{step}/{checkpoint.COMMITTED}"} & tree.keys()
    )


def _parts(folder: RemoteFolder, tree: Tree) -> tuple[str | None, str | None]:
    """Return the newest complete checkpoint's step and the folder of a finished run's model; each None if absent."""
    steps = {path.split("/")[1] for path in tree if path.startswith(f"{_CHECKPOINTS}/") and path.count("/") > 1}
    complete = [step for step in steps if step.isdecimal() and _is_complete(tree, step)]
    model = None
    if MODEL not in tree and CONFIG in tree:
        with suppress(UserError, ValueError, OSError):  # the reader of the copy raises the error for it
            kind = kind_of(parse_toml(folder.read_bytes(CONFIG)))
            model = kind.model and kind.model(folder.read_bytes)
    return max(complete, key=int, default=None), model


def _select(tree: Tree, step: str | None, model: str | None = None) -> Tree:
    """Return the files of `tree` that are needed to read the model.

    Only the checkpoint of `step` is needed, without optimiser state, and only the folder `model` of a finished run.
    """
    folders = [f"{TOKENIZER}/"]
    folders += [f"{_CHECKPOINTS}/{step}/"] * (step is not None) + [f"{model}/"] * (model is not None)
    training = f"{_CHECKPOINTS}/{step}/{checkpoint.TRAINING}/"
    safe = {path.rpartition("/")[0] for path in tree if path.endswith(".safetensors")}  # here readers skip pickles
    inner = _MODULE if sentence_modules.MODULES in tree else _NONE
    return {
        path: state
        for path, state in tree.items()
        if path in (f"{_CHECKPOINTS}/{step}{contents.SUFFIX}", f"{_CHECKPOINTS}/{contents.RUN}")
        or (path.startswith(tuple(folders)) and not path.startswith(training))
        or (
            inner.fullmatch(folder := path.rpartition("/")[0])
            and not path.endswith(_UNREAD)
            and not (folder in safe and path.endswith(".bin"))
        )
    }


def _refresh(folder: RemoteFolder, tree: Tree, home: Path, url: str) -> None:
    """Make the copy in `home` equal to the remote files in `tree`: download new and changed ones, delete all others."""
    files, before = home / "files", {}
    with suppress(OSError, ValueError):
        before = read_json(home / _RECORD, {"files": {str: list}})["files"]
    same = {
        path
        for path, state in tree.items()
        if before.get(path) == list(state) and (files / path).is_file() and (files / path).stat().st_size == state[0]
    }
    if same == tree.keys() == before.keys():
        _LOG.info(f"{url} is unchanged; using its copy in {files}")
        return
    (home / _RECORD).unlink(missing_ok=True)
    # Delete first, so that no interrupted copy mixes two models. An empty directory could pass for a newer checkpoint.
    for path in sorted(files.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
        elif path.is_file() and str(path.relative_to(files)) not in same:
            path.unlink()
    try:
        files.mkdir(parents=True, exist_ok=True)
        missing = tree.keys() - same
        size = sum(tree[path][0] for path in missing)
        reused = f", {len(same):,} unchanged" if same else ""
        _LOG.info(f"copying {url} to {files}: {len(missing):,} files, {size / 1e6:,.1f} MB{reused}")
        check_room(home, size, url)

        def download(path: str) -> None:
            (files / path).parent.mkdir(parents=True, exist_ok=True)
            folder.download(path, files / path)
            if (arrived := (files / path).stat().st_size) != tree[path][0]:
                raise CorpusError(
                    f"{folder.url}/{path} arrived with {arrived:,} of its {tree[path][0]:,} bytes. Run it again."
                )

        transfer_files(download, sorted(missing))
        after = folder.list_tree()
        if changed := sorted(path for path, state in tree.items() if after.get(path) != state):
            raise CorpusError(f"{folder.url}/{changed[0]} changed while it was copied. Run the same command again.")
        atomic.write_json(home / _RECORD, {"url": url, "files": tree})
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
