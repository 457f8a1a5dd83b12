"""Train a student on its teacher (MobileBERT, Sun et al. 2020, §3.6), from the config to the last step."""

import logging
import os
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import flax.traverse_util
import jax
import numpy as np

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core import config
from bertzoo.core.errors import ConfigError
from bertzoo.core.paths import Location
from bertzoo.models.generator import generator_config
from bertzoo.models.partial import stack
from bertzoo.runs import experiments, load_model, training
from bertzoo.runs.configs import Transfer
from bertzoo.runs.experiments import RunBatches, build_experiment
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.runs.warm_start import FREE, WarmStart, check_same_model, match_tokenizer, origin_record
from bertzoo.train import hosts, sharding
from bertzoo.train.experiment import Experiment
from bertzoo.train.state import name_of, named, shapes_of

_LOG = logging.getLogger(__name__)


def transfer(recipe: Transfer, run_dir: str | Path, teacher: Location | None, options: training.Options) -> int:
    """Train a student on its teacher, or resume such a run, and return the number of steps done.

    First the layers' outputs are matched, in one stage for each layer (progressive), in one stage for all (joint), or
    together with the distillation (auxiliary). The stages of the distillation follow. In a run of several processes,
    every process calls this function.

    teacher: path or URL of the teacher. None stands for the teacher in the run.json of a resumed run.
    Raises UserError if the config does not fit the run, teacher, corpus or devices, and Stopped after a signal.
    """
    run = RunDirectory(run_dir)

    def find() -> tuple[str, dict | None]:
        if begun := run.latest() is not None:
            run.fetch()
        return run.model_path("teacher", teacher, begun)

    path, record = hosts.share("the teacher", find)
    training.check_apart(path, run, "--teacher", "Give the student a directory of its own.")
    training.check_model(path)
    with run.shared(), ExitStack() as stack:
        # 1. The devices as a mesh. All processes make it together, as each waits for the others' devices.
        #    Before anything compiles, choose the folder of compiled programs.
        mesh = sharding.make_mesh(recipe.mesh)
        training.prepare(recipe.run, run)
        # 2. The config: choose the microbatches that it leaves open, and check it against the run's own.
        recipe = training.complete(recipe, run, mesh)
        # 3. Both models, and the loss and the optimiser of each stage: a stage of the layer transfer compares its
        #    layers' outputs and attention maps, a distillation compares predictions.
        built = build_experiment(recipe, mesh)
        training.check_experiment(built, recipe.compute, run)
        # 4. The teacher's parameters, which stay fixed, and those outside the layers that the student copies.
        start = read_teacher(path, recipe, built, run.path)
        run.check_same_model("teacher", record, start.record)
        training.check_same_everywhere(start.record, "the teacher's parameters", path)
        for line in start.report if not record else ():
            _LOG.info(line)
        # 5. The trackers, whose login may fail. Then the text in the teacher's vocabulary: tokenise it unless this was
        #    done before, and cut it into rows.
        trackers = training.start_trackers(recipe, run, stack)
        corpus = training.open_corpus(recipe, run, start.tokenizer, options)
        batches = RunBatches(recipe, corpus, run.plans)
        # 6. Restore the newest checkpoint or draw the other parameters, and train stage after stage.
        return training.train(recipe, built, batches, run, trackers, start)


def read_teacher(path: Location, recipe: Transfer, built: Experiment, folder: Path | None = None) -> WarmStart:
    """Return a student's initial parameters from the teacher at `path`; `frozen` holds the teacher's own parameters.

    folder: directory of the file that holds the teacher's parameters on CPUs (`map_array`); None: that of temporary
    files. Raises UserError if `path` is no model or not the config's teacher, or lacks parameters that are read.
    """
    source = replace(load_model.read_model(path), origin=str(path))
    changed = check_same_model(source, recipe.teacher, "teacher")
    if source.source.get("format") == "run":
        objective: Any = recipe.teacher_objective
        for key, there, here in (
            ("kind", source.head.kind, objective.kind),
            ("sentence", source.source["sentence"], objective.sentence),
        ):
            if there != here:
                raise ConfigError(
                    f'{source.origin} was trained with objective.{key} = "{there}", but teacher_objective.{key} = '
                    f'"{here}". Set it to "{there}", or use another teacher.'
                )
    tokenizer, unverified = match_tokenizer(source, recipe.data)
    params, copied = _copied(source, recipe, shapes_of(built.setups[-1].objective))
    return WarmStart(
        key="teacher",
        frozen=_frozen(source, recipe, built, folder),
        params=params,
        tokenizer=tokenizer,
        record={key: value for key, value in origin_record(source, path).items() if key != "step"},
        report=[*copied, *changed, *unverified],
    )


def map_array(array: np.ndarray, file: IO[bytes]) -> np.ndarray:
    """Append an array to a file, and return it mapped into memory from there.

    On CPUs, JAX computes with mapped arrays in place. A page that no step reads takes no memory, so a stage of
    progressive transfer holds only those of the teacher's layers that it runs.
    """
    end = file.seek(0, os.SEEK_END)
    start = file.seek(end + -end % 64)  # on CPUs, JAX copies arrays that start elsewhere
    file.write(array.tobytes())
    file.flush()
    return np.memmap(file, array.dtype, "r", start, array.shape)


def _frozen(source: Pretrained, recipe: Transfer, built: Experiment, folder: Path | None) -> Any:
    """Return the teacher's parameters with the dtypes and shardings of `built.frozen_shapes`."""
    objective: Any = built.setups[-1].objective
    teacher, placed = objective.teacher, built.frozen_shapes
    stacked = experiments.stacks_teacher(built.mesh)
    sources = {"model": (teacher.model, source)}
    if teacher.generator is not None:
        sources["generator"] = (teacher.generator, _generator(source, recipe))
    params = {}
    for name, (model, part) in sources.items():
        modules = {path.split("/")[0] for path in named(placed[name])}
        if missing := sorted(modules - {path.split("/")[0] for path in part.params}):
            raise ConfigError(
                f"{source.origin} has no {missing[0]}, but the student learns the teacher's distribution over masked "
                f"tokens. Use a teacher with {missing[0]}, or set knowledge.ground_truth = 1.0."
            )
        arrays = {path: array for path, array in part.params.items() if path.split("/")[0] in modules}
        nested = flax.traverse_util.unflatten_dict(arrays, sep="/")
        params[name] = stack(nested, model.encoder.layers) if stacked else nested  # type: ignore[attr-defined]

    def place(path: tuple, place: jax.ShapeDtypeStruct, array: np.ndarray) -> jax.Array:
        if array.shape != place.shape:
            raise ConfigError(
                f"{source.origin} does not fit [teacher]: {name_of(path)} has shape {array.shape} there, but the "
                f"config makes it {place.shape}. Correct [teacher] or use another teacher."
            )
        array = array.astype(place.dtype)
        if not stacked:
            array = map_array(array, file)
        return jax.make_array_from_callback(array.shape, place.sharding, array.__getitem__)

    with tempfile.TemporaryFile(dir=folder) as file:  # has no name, and ends with the process
        return jax.tree.map_with_path(place, placed, params)


def _generator(source: Pretrained, recipe: Transfer) -> Pretrained:
    """Return the generator of an ELECTRA teacher; raises ConfigError if it is missing or does not fit the config."""
    configured: Any = recipe.teacher_objective
    generator = source.generator
    if generator is None:
        raise ConfigError(
            f"{source.origin} has no generator, from which the student learns with teacher_objective.kind = "
            f'"{configured.kind}" and knowledge.ground_truth = {recipe.knowledge.ground_truth}. Name the run that '
            "trained the teacher, or set knowledge.ground_truth = 1.0."
        )
    expected = generator_config(recipe.teacher, configured.generator_width)
    lines = [line for line in config.difference(generator.model, expected) if line.split(": ")[0] not in FREE]
    if lines:
        raise ConfigError(
            f"the generator of {source.origin} does not fit teacher_objective.generator_width = "
            f"{configured.generator_width}: {'; '.join(lines)}. Set the width that it was trained with."
        )
    return generator


def _copied(
    source: Pretrained, recipe: Transfer, shapes: Mapping[str, jax.ShapeDtypeStruct]
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return {path: array} of the parameters that the student copies from the teacher, and lines for the user.

    shapes: the student's parameters by path.
    """
    sentence = source.source.get("sentence", recipe.objective.sentence)  # if unknown, assume the same
    copied = [
        name
        for name in experiments.copied_names(recipe)
        if name in source.params and not (name.startswith("sentence_head/") and sentence != recipe.objective.sentence)
    ]
    params = {name: source.params[name] for name in copied}
    outside = [name for name in shapes if not name.startswith(experiments.ENCODER)]
    fresh = [name for name in outside if name not in params and not name.startswith("projections/")]
    lines = [f"copied from the teacher: {_owners(copied)}"] if copied else ["nothing is copied from the teacher"]
    if fresh:
        lines.append(f"starting fresh outside the layers: {_owners(fresh)}")
    return params, lines


def _owners(names: list[str]) -> str:
    return ", ".join(dict.fromkeys(name.rsplit("/", 1)[0] for name in names))
