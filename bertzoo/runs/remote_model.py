"""Copy a model at a URL to the user's cache: only the files that `load_model.read_model` reads."""

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from bertzoo.conversion import huggingface, sentence_modules, tensorflow1, variables
from bertzoo.conversion.tokenizers import VOCABULARY
from bertzoo.core import atomic, paths
from bertzoo.core.documents import parse_toml
from bertzoo.core.errors import CorpusError, UserError
from bertzoo.core.kinds import CONFIG, kind_of
from bertzoo.core.remote import RemoteFolder, check_room, mirror
from bertzoo.runs.kinds import CHECKPOINTS as _CHECKPOINTS
from bertzoo.runs.provenance import TOKENIZER
from bertzoo.train import checkpoint, contents

_LOG = logging.getLogger(__name__)

Tree = Mapping[str, tuple[int, str]]  # path -> (size in bytes, version)
MODEL = "model.toml"  # the file that marks a model directory
# Endings of files beside a model that no reader opens: other projects' weights, logs and pictures.
_UNREAD = (".h5", ".msgpack", ".ot", ".onnx", ".tflite", ".pt", ".pth", ".gguf", ".jsonl", ".png", ".svg", ".meta")


class ModelCopy(NamedTuple):
    """A copy, on this machine, of the folder at `url`; inside: path of the model in it, "." for the folder itself."""

    directory: Path
    url: str
    inside: str

    @property
    def path(self) -> Path:
        """The model's path on this machine."""
        return self.directory / self.inside


@contextmanager
def local_copy(url: str) -> Iterator[ModelCopy]:
    """Copy the model at `url`, unless this machine has a copy of the same files, and yield the copy.

    Other processes of this machine that need the copy wait until the with block ends. Raises UserError if there is no
    model, the URL cannot be read, the disk is too small, or the model changes while it is copied.
    """
    folder, inside, tree = _find(url)
    home = paths.cache_folder("models") / _digest(url)
    directory = home / _digest(tree)
    with atomic.wait_for(home):
        files = {directory / path: size for path, (size, _) in tree.items()}
        if all(file.is_file() and file.stat().st_size == size for file, size in files.items()):
            _LOG.info(f"{url} is unchanged; using its copy in {directory}")
        else:
            shutil.rmtree(home, ignore_errors=True)  # a copy of an earlier version
            sizes = {path: size for path, (size, _) in tree.items()}
            _LOG.info(f"copying {url} to {directory}: {len(tree):,} files, {sum(sizes.values()) / 1e6:,.1f} MB")
            check_room(home.parent, sum(sizes.values()), url)
            with atomic.new_directory(directory) as temporary:
                mirror(folder, sizes, temporary)
                after = folder.list_tree()
                if changed := sorted(path for path, state in tree.items() if after.get(path) != state):
                    raise CorpusError(
                        f"{folder.url}/{changed[0]} changed while it was copied. Run the same command again."
                    )
        yield ModelCopy(directory, folder.url, inside)


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
    inner = re.compile(r"(\d+_\w+)?" if sentence_modules.MODULES in tree else "")  # folders of modules.json
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


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]
