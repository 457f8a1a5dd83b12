"""Load a model for use: a run's parameters, a model directory (model.toml, parameters.safetensors, tokenizer/), or
another project's checkpoint; write model directories; evaluate a run on its held-out text.

Of a model at a URL, the files that `read_model` reads are first copied to the user's cache.
"""

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tomli_w

from bertzoo.conversion import huggingface, sentence_modules, tensorflow1, tensors
from bertzoo.conversion.pretrained import SOURCE, Pretrained, check_vocabulary, inherited
from bertzoo.conversion.tokenizers import VOCABULARY
from bertzoo.core import atomic, config, paths
from bertzoo.core.documents import parse_toml, read_toml
from bertzoo.core.errors import CorpusError, UserError
from bertzoo.core.kinds import CONFIG, kind_of, kind_of_run
from bertzoo.core.paths import Location, is_url, location, missing_model
from bertzoo.core.remote import RemoteFolder, check_room, mirror
from bertzoo.core.version import __version__
from bertzoo.data.corpus.reader import unigram_losses
from bertzoo.data.tokenizers import tokenizer as saved
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.heads import Head, MaskedLanguageModel, NoHead, ReplacedTokens, parameter_shapes
from bertzoo.models import Model
from bertzoo.models.replaced import generator_config
from bertzoo.objectives import PROJECTIONS, MaskedObjective, Replaced, ReplacedObjective
from bertzoo.runs import experiments
from bertzoo.runs.configs import Recipe, TrainingConfig
from bertzoo.runs.experiments import RunBatches
from bertzoo.runs.kinds import CHECKPOINTS
from bertzoo.runs.provenance import TOKENIZER
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.train import checkpoint, contents, sharding, state
from bertzoo.train.checkpoint import restore_params
from bertzoo.train.state import named
from bertzoo.train.step import evaluate, make_eval_step

_LOG = logging.getLogger(__name__)

Tree = Mapping[str, tuple[int, str]]  # path -> (size in bytes, version)
MODEL = "model.toml"  # the file that marks a model directory
PARAMETERS = "parameters.safetensors"
# Endings of files beside a model that no reader opens: other projects' weights, logs and pictures.
_UNREAD = (".h5", ".msgpack", ".ot", ".onnx", ".tflite", ".pt", ".pth", ".gguf", ".jsonl", ".png", ".svg", ".meta")


@contextmanager
def local_model(path: Location) -> Iterator[Path]:
    """Yield a model's path on this machine; UserErrors raised in the with block name a URL in `path` instead of it.

    A model at a URL is copied, unless this machine has a copy of the same files. Other processes of this machine that
    need the copy wait until the with block ends. Raises UserError if there is no model, the URL cannot be read, the
    disk is too small, or the model changes while it is copied.
    """
    path = location(path, "the model", "Write :// after the protocol, or copy the model to this machine.")
    if isinstance(path, Path):
        yield path
        return
    folder, inside, tree = _find(path)
    home = paths.cache_folder("models") / _digest(path)
    directory = home / _digest(tree)
    with atomic.wait_for(home):
        _copy(path, folder, tree, directory)
        try:
            yield directory / inside
        except UserError as error:
            raise UserError(str(error).replace(str(directory), folder.url)) from error


def _copy(url: str, folder: RemoteFolder, tree: Tree, directory: Path) -> None:
    """Copy the files in `tree` of the remote `folder` to `directory`, unless they are there; url: the model's."""
    sizes = {path: size for path, (size, _) in tree.items()}
    if all((directory / path).is_file() and (directory / path).stat().st_size == sizes[path] for path in sizes):
        _LOG.info(f"{url} is unchanged; using its copy in {directory}")
        return
    home = directory.parent
    shutil.rmtree(home, ignore_errors=True)  # a copy of an earlier version
    _LOG.info(f"copying {url} to {directory}: {len(tree):,} files, {sum(sizes.values()) / 1e6:,.1f} MB")
    check_room(home.parent, sum(sizes.values()), url)
    with atomic.new_directory(directory) as temporary:
        mirror(folder, sizes, temporary)
        after = folder.list_tree()
        if changed := sorted(path for path, state in tree.items() if after.get(path) != state):
            raise CorpusError(f"{folder.url}/{changed[0]} changed while it was copied. Run the same command again.")


def _find(url: str) -> tuple[RemoteFolder, str, Tree]:
    """Return the remote folder that holds the model at `url`, the model's path in the folder, and the files to copy."""
    parent, _, name = url.rpartition("/")
    if name.isdecimal() and parent.endswith(f"/{CHECKPOINTS}"):
        folder = RemoteFolder.at(parent.removesuffix(f"/{CHECKPOINTS}"))
        tree = folder.list_tree()
        if CONFIG in tree and _is_complete(tree, name):
            return folder, f"{CHECKPOINTS}/{name}", _select(tree, name)
        raise UserError(f"{url} is not a complete checkpoint of a run. Name the run or another of its checkpoints.")
    folder = RemoteFolder.at(url)
    tree = folder.list_tree()
    index = any("/" not in path and path.endswith(tensorflow1.INDEX) for path in tree)
    if index or {MODEL, huggingface.CONFIG, CONFIG, sentence_modules.MODULES} & tree.keys():
        return folder, ".", _select(tree, *_newest(folder, tree))
    if not tree and folder.path.strip("/").count("/"):
        folder = RemoteFolder.at(parent)
        names = {path: state for path, state in folder.list_tree().items() if "/" not in path}
        if f"{name}{tensorflow1.INDEX}" in names:
            needed = (tensorflow1.CONFIG, VOCABULARY)
            return folder, name, {n: s for n, s in names.items() if n.startswith(f"{name}.") or n in needed}
    state = "is not a run, a checkpoint, a model directory, a Hugging Face directory or a TensorFlow 1 checkpoint"
    raise UserError(f"{url} {state if tree else 'does not exist'}. Name a URL that holds a model.")


def _is_complete(tree: Tree, step: str) -> bool:
    """Return whether the checkpoint of `step` has orbax's commit marker or, if copied from a disk, a manifest."""
    return bool(
        {f"{CHECKPOINTS}/{step}{contents.SUFFIX}", f"{CHECKPOINTS}/{step}/{checkpoint.COMMITTED}"} & tree.keys()
    )


def _newest(folder: RemoteFolder, tree: Tree) -> tuple[str | None, str | None]:
    """Return the newest complete checkpoint's step and the folder of a finished run's model; each None if absent."""
    steps = {path.split("/")[1] for path in tree if path.startswith(f"{CHECKPOINTS}/") and path.count("/") > 1}
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
    folders += [f"{CHECKPOINTS}/{step}/"] * (step is not None) + [f"{model}/"] * (model is not None)
    training = f"{CHECKPOINTS}/{step}/{checkpoint.TRAINING}/"
    safe = {path.rpartition("/")[0] for path in tree if path.endswith(".safetensors")}  # here readers skip pickles
    inner = re.compile(r"(\d+_\w+)?" if sentence_modules.MODULES in tree else "")  # folders of modules.json
    return {
        path: state
        for path, state in tree.items()
        if path in (f"{CHECKPOINTS}/{step}{contents.SUFFIX}", f"{CHECKPOINTS}/{contents.RUN}")
        or (path.startswith(tuple(folders)) and not path.startswith(training))
        or (
            inner.fullmatch(folder := path.rpartition("/")[0])
            and not path.endswith(_UNREAD)
            and not (folder in safe and path.endswith(".bin"))
        )
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True, kw_only=True)
class LoadedRun:
    """A run with the parameters of one checkpoint, on one device.

    `objective` and `params` include neither padding of the vocabulary nor the teacher of a student.
    """

    recipe: Recipe
    run: RunDirectory
    objective: MaskedObjective | ReplacedObjective
    params: Any
    step: int
    tokenizer: Tokenizer


def load_run(path: Path | str, which: Literal["latest", "best"] | int = "latest") -> LoadedRun:
    """Load a run, or the last of the training runs that it consists of.

    which: the checkpoint, or its step. Raises UserError if there is no such run or checkpoint.
    """
    run = RunDirectory(path)
    if run.bucket is None and (kind := kind_of_run(run.path)):
        if kind.model is not None:
            kind.model_directory(run.path)  # raises for an unfinished run
        run = RunDirectory((kind.training_runs(run.path) or [run.path])[-1])  # without any, loading names the kind
    run.fetch()
    if not run.path.exists():
        raise UserError(missing_model(path))
    recipe = run.load()
    trained = experiments.build_setups(recipe)[-1].objective
    params, step = restore_params(run.checkpoints, state.abstract_params(trained, sharding.one_device()), which)
    objective = recipe.objective.build(recipe.model, recipe.compute)
    params = {name: leaves for name, leaves in params.items() if name != PROJECTIONS}
    return LoadedRun(recipe=recipe, run=run, objective=objective, params=params, step=step, tokenizer=run.tokenizer())


def evaluate_run(loaded: LoadedRun, corpus: str | None = None, stage: int | None = None) -> dict[str, Any]:
    """Return mean losses (nats) and metrics of all held-out rows, and unigram losses of the held-out text (nats).

    corpus: path or URL of the run's corpus, if it has moved.
    stage: index of the training stage whose max_length applies, by default the last.
    Raises UserError if the stage or the corpus does not belong to the run.
    """
    stages = loaded.recipe.stages
    index = len(stages) - 1 if stage is None else stage
    if not 0 <= index < len(stages):
        raise UserError(f"--stage={index} is not a stage of {loaded.run.name}. Use 0 to {len(stages) - 1}.")
    text = loaded.run.open_corpus(corpus)
    batches = RunBatches(loaded.recipe, text, loaded.run.plans)
    rows = batches.stage(index, "heldout").rows
    heldout, eval_step = batches.heldout(index, rows, 1), make_eval_step(loaded.objective)
    means = evaluate(eval_step, loaded.params, None, heldout, sharding.one_device())
    return {"step": loaded.step, "rows": rows, "max_length": stages[index].max_length, **means, **unigram_losses(text)}


@dataclass(frozen=True, kw_only=True)
class ModelTables:
    """Configs of a model and its task head, as stored in model.toml and in the metadata of an exported file."""

    model: Model
    head: Head = field(default_factory=NoHead)


def read_model(path: Location) -> Pretrained:
    """Read the model at a path or URL; a model at a URL is first copied to this machine.

    path: a run, one of its checkpoints, a fine-tuning run (its best seed), RUN/seed-N, a pruning run, a model directory
    or a Hugging Face directory. A TensorFlow 1 checkpoint is named by its directory or by the prefix of its files.
    Raises UserError if the path is none of these, or if the model is damaged.
    """
    with local_model(path) as local:
        model = _reader(local)()
    return _located(model, str(path).rstrip("/")) if is_url(str(path)) else model


def check_model(path: Location) -> None:
    """Raise UserError if `path` is not a model. Reads no parameters, but copies a model at a URL to this machine."""
    with local_model(path) as local:
        _reader(local)


def _located(model: Pretrained, url: str) -> Pretrained:
    source = model.source | ({"path": url} if "path" in model.source else {})
    generator = None if model.generator is None else _located(model.generator, url)
    return replace(model, origin=url, source=source, generator=generator)


def _reader(path: Path) -> Callable[[], Pretrained]:
    if (path / MODEL).is_file():
        return partial(_read_directory, path)
    if (path / huggingface.CONFIG).is_file() or sentence_modules.has_modules(path):
        return partial(huggingface.read_huggingface, path)
    if (path / "model" / MODEL).is_file() and kind_of_run(path.parent):  # a fine-tuning run's seed-N
        return partial(_read_directory, path / "model")
    if kind := kind_of_run(path):
        return partial(_read_run, path) if kind.model is None else partial(_read_directory, kind.model_directory(path))
    if path.name.isdecimal() and path.parent.name == CHECKPOINTS and path.is_dir():
        return partial(_read_run, path.parent.parent, int(path.name))
    if (prefix := tensorflow1.find_checkpoint(path)) is not None:
        return partial(tensorflow1.read_tensorflow, prefix)
    if not path.is_dir():
        raise UserError(missing_model(path))
    raise UserError(
        f"{path} is not a run, a checkpoint, a model directory, a Hugging Face directory or a TensorFlow 1 "
        "checkpoint. Name one of these."
    )


def _read_run(path: Path, which: str | int = "latest") -> Pretrained:
    trained = load_run(path, which)  # pyright: ignore[reportArgumentType] (latest, or a step)
    params = {name: np.asarray(leaf) for name, leaf in named(trained.params).items()}
    recipe = trained.recipe
    origin = trained.run.origin("from") or trained.run.origin("teacher") or {}
    model = Pretrained(
        model=recipe.model,
        head=head_of(recipe),
        params={name: array for name, array in params.items() if not name.startswith("generator/")},
        tokenizer=trained.tokenizer,
        origin=str(path),
        source={
            "format": "run",
            "path": str(path),
            "step": trained.step,
            "sentence": recipe.objective.sentence,
            **inherited(origin),
            "language": recipe.data.language,
        },
        unused={name: array for name, array in params.items() if name.startswith("generator/")},
    )
    width = recipe.objective.generator_width if isinstance(recipe.objective, Replaced) else 0.0
    if not width or (generator := generator_config(recipe.model, width)) is None:
        return model
    weights = {name.removeprefix("generator/"): array for name, array in model.unused.items()}
    weights |= {name: array for name, array in params.items() if name.startswith("embedding/")}
    head = MaskedLanguageModel(pooler=False)
    return replace(model, generator=replace(model, model=generator, head=head, params=weights, unused={}))


def head_of(recipe: TrainingConfig) -> MaskedLanguageModel | ReplacedTokens:
    """Return the head config of the model that `recipe` trains; for replaced token detection, the discriminator's."""
    if isinstance(recipe.objective, Replaced):
        return ReplacedTokens()
    sentence = recipe.objective.sentence != "none"
    return MaskedLanguageModel(sentence=sentence, pooler=sentence)


def _read_directory(path: Path) -> Pretrained:
    file = path / MODEL
    try:
        table = read_toml(file, {"source": SOURCE})
        source = table.pop("source")
        digest, vocab_size = source.pop("parameters_sha256"), source.pop("entries", None)
        tables = config.from_dict(ModelTables, table)
    except ValueError as error:
        raise UserError(f"{file} is damaged: {error}. Convert or train the model again.") from error
    except UserError as error:
        raise UserError(f"{file}: {error}") from error
    parameters = path / PARAMETERS
    if not parameters.is_file():
        raise UserError(f"{parameters} does not exist. Convert or train the model again.")
    shapes, expected = tensors.tensor_shapes(parameters), parameter_shapes(tables.model, tables.head)
    if wrong := sorted(name for name in shapes.keys() | expected if shapes.get(name) != expected.get(name)):
        raise UserError(
            f"{parameters} does not fit the model in {MODEL}: {wrong[0]} has shape {shapes.get(wrong[0])}, not "
            f"{expected.get(wrong[0])}. Convert or train the model again."
        )
    if atomic.file_hash(parameters) != digest:
        raise UserError(
            f"{parameters} is damaged: its hash differs from the one in {MODEL}. Convert or train the model again."
        )
    params = tensors.read_safetensors(parameters, integers=False)
    tokenizer = saved.load(path / TOKENIZER) if (path / TOKENIZER).is_dir() else None
    check_vocabulary(tokenizer, tables.model.vocab_size, str(path), vocab_size)
    return Pretrained(
        model=tables.model, head=tables.head, params=params, tokenizer=tokenizer, origin=str(path), source=source
    )


def write_model(pretrained: Pretrained, directory: Path) -> None:
    """Write model.toml, parameters.safetensors and, if there is a tokenizer, tokenizer/ into an empty directory."""
    tensors.write_safetensors(pretrained.params, directory / PARAMETERS)
    digest = atomic.file_hash(directory / PARAMETERS)
    tables = config.plain(ModelTables(model=pretrained.model, head=pretrained.head))
    source = {**pretrained.source, "bertzoo": __version__, "parameters_sha256": digest}
    if pretrained.tokenizer is not None:
        source["entries"] = pretrained.tokenizer.vocab_size
    (directory / MODEL).write_text(tomli_w.dumps({**tables, "source": source}), encoding="utf-8")
    if pretrained.tokenizer is not None:
        saved.save(pretrained.tokenizer, pretrained.tokenizer.config, directory / TOKENIZER)
