"""A student learns the same on one device and on eight, with its teacher split; and with spare rows."""

import functools
from typing import Any

import jax
import numpy as np
import pairs
import pytest
import zoo
from arrays import assert_equal_parameters

from bertzoo.runs import experiments, warm_start
from bertzoo.runs.experiments import batch_shapes
from bertzoo.train import loop, sharding
from bertzoo.train.state import named

ROWS_SPLIT, ALL_SPLIT = (8, 1, 1), (2, 2, 2)
# Heads and widths that two divides; no more entries in the vocabulary than words.
EVEN = {"teacher.vocab_size": 250, "model.vocab_size": 250}
ONE_LAYER = {"teacher.heads": 4, "teacher.layers": 1, "model.layers": 2, "knowledge.layers": [1, 1]}
SIZES = {
    "squeezebert_transfer": {f"model.{name}_groups": 2 for name in ("query", "key", "value", "output")},
    "mobilebert_transfer": {},
    "mobilebert_electra_transfer": ONE_LAYER,
    "convbert_small_transfer": {"teacher.heads": 8, "teacher_objective.generator_width": 0.5},
}
# m/(√v + ε) makes a large step of a gradient that is all rounding, unless ε is as large as that.
SAFE = {"optimizer.epsilon": 1e-3, "transfer.batch_size": 16, "distillation.0.batch_size": 16}


@pytest.fixture(scope="module")
def taught(tiny_corpus, tmp_path_factory):
    """The function (name, mesh) -> the recipe, the mesh, and the teacher on it, written once."""
    folder, written = tmp_path_factory.mktemp("teachers"), {}

    def read(name: str, sizes: tuple[int, int, int]):
        mesh = {f"mesh.{axis}": size for axis, size in zip(("data", "fsdp", "tensor"), sizes, strict=True)}
        options = pairs.options(name, tiny_corpus, **{**EVEN, **SIZES[name], **SAFE, **mesh})
        recipe = pairs.load(name, options)
        key = f"{name}-{recipe.teacher.heads}"
        if key not in written:
            written[key] = pairs.write_teacher(recipe, folder / key, tiny_corpus)
        devices = sharding.make_mesh(recipe.mesh, jax.devices()[: np.prod(sizes)])
        built = experiments.build_experiment(recipe, devices)
        return recipe, devices, warm_start.read_teacher(written[key], recipe, built)

    return read


def batch_of(recipe: Any, index: int, step: int) -> dict[str, np.ndarray]:
    stage = recipe.stages[index]
    made = zoo.batch_of(stage.batch_size, stage.max_length, stage.max_predictions, [index, step], 250, spare=1)
    return {name: made[name] for name in batch_shapes(recipe, index)}


class Losses(list):
    """A reporter that keeps the loss of every step."""

    def __call__(self, record: dict[str, Any]) -> None:
        if record.get("split") == "train":
            self.append(record["loss"])

    def close(self) -> None:
        pass


def train(
    recipe: Any, mesh: jax.sharding.Mesh, given: warm_start.WarmStart
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The loss of every step of all stages, and the parameters after the last."""
    losses = Losses()

    def batches(index: int, row: int) -> Any:
        indices = sharding.local_rows(recipe.stages[index].batch_size, mesh)
        for step in range(recipe.stages[index].steps):
            yield {name: array[indices] for name, array in batch_of(recipe, index, step).items()}

    job = loop.Job(
        experiment=experiments.build_experiment(recipe, mesh),
        config=recipe.run,
        seed=3,
        batches=batches,
        reporters=[losses],
        frozen=given.frozen,
        initial=given.params,
    )
    state = loop.run(job)
    return np.array(losses), {name: np.asarray(leaf) for name, leaf in named(state.params).items()}


@pytest.fixture(scope="module")
def alone(taught):
    """The function (name) -> losses and parameters on one device, computed once."""
    return functools.cache(lambda name: train(*taught(name, (1, 1, 1))))


def shards(taught: warm_start.WarmStart) -> dict[str, tuple]:
    """The shape of a device's part of every parameter of a teacher, and of the whole."""
    return {name: (leaf.sharding.shard_shape(leaf.shape), leaf.shape) for name, leaf in named(taught.frozen).items()}


def test_a_teacher_is_split_like_any_parameters(taught):
    found = shards(taught("mobilebert_electra_transfer", ALL_SPLIT)[2])
    assert {name: found[name] for name in (
        "model/embedding/word/embedding", "model/encoder/layers_0/attention/query/kernel",
        "model/encoder/layers_0/feed_forward/output/kernel", "model/encoder/layers_0/feed_forward_norm/scale",
        "generator/encoder/layers_0/attention/query/kernel", "generator/masked_head/bias",
    )} == {
        "model/embedding/word/embedding": ((125, 24), (250, 24)),
        "model/encoder/layers_0/attention/query/kernel": ((12, 2, 6), (24, 4, 6)),
        "model/encoder/layers_0/feed_forward/output/kernel": ((16, 12), (32, 24)),
        "model/encoder/layers_0/feed_forward_norm/scale": ((12,), (24,)),
        "generator/encoder/layers_0/attention/query/kernel": ((4, 1, 4), (8, 1, 8)),  # its one head is cut
        "generator/masked_head/bias": ((125,), (250,)),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [ROWS_SPLIT, ALL_SPLIT])
@pytest.mark.parametrize("name", SIZES)
def test_every_stage_on_eight_devices_equals_one(name, sizes, taught, alone):
    recipe, mesh, given = taught(name, sizes)
    split = {whole != part for part, whole in shards(given).values()}
    assert split == ({False} if sizes == ROWS_SPLIT else {False, True})
    (losses, params), (expected_losses, expected) = train(recipe, mesh, given), alone(name)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-6)
    assert_equal_parameters(params, expected, 1e-5)
