"""Simulated int8 (nn/int8.py) computes what a static int8 file computes in LiteRT's own interpreter."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparing import needs

needs("litert_converter", "ai_edge_litert", "litert_quantizer")
from zoo import CASES, LAYERS, SIZES, pretrained

from bertzoo.export.check import verify
from bertzoo.export.graph import heads, rewrites
from bertzoo.export.graph.reference import TrainingGraph
from bertzoo.export.litert import quantise, write
from bertzoo.models import Bert
from bertzoo.models.tasks import SequenceClassification
from bertzoo.nn import int8

LENGTH = 8
MODELS = {"bert": Bert(**SIZES, **LAYERS)} | {
    name: CASES[name][0] for name in ("squeezebert", "albert", "convbert-span")
}


def logits(module: int8.Int8Model, params: Any, row: dict[str, np.ndarray]) -> jax.Array:
    ids, mask = row["input_ids"], row["attention_mask"]
    types = row.get("token_type_ids", np.zeros_like(ids))
    return module.apply({"params": params}, ids, types, mask, train=False, method="logits")


@pytest.mark.parametrize("name", MODELS)
def test_the_simulation_computes_what_the_file_does(name: str) -> None:
    """Ranges come from one row, as in the file's calibration, and all rows are computed with them.

    The simulation is off by at most two steps of the logits' grid, and much nearer to the file than float32 is.
    """
    plain, params = pretrained(dataclasses.replace(MODELS[name], layers=2), SequenceClassification(), 0.3).module()
    reference = TrainingGraph(params=jax.tree.map(np.asarray, params), pooling=heads.MeanEmbedding(), model=plain)
    calibration, *rows = verify.sample_rows(reference, None, LENGTH)
    content = write.convert(rewrites.phone_graph(reference), (LENGTH,))
    signature = write.signature(LENGTH)
    run = write.Interpreter(quantise.quantised(content, "int8-static", {signature: [calibration]}))

    module = int8.Int8Model(plain)
    gradient = jax.grad(lambda part: jnp.sum(logits(module, {**params, int8.RANGES: part}, calibration)))
    empty = jax.tree.map(jnp.zeros_like, module.init(jax.random.key(0), *[jnp.ones((1, 4), jnp.int32)] * 3)["params"])
    ranges = jax.tree.map(lambda change: -change / int8.GRADIENT, gradient(empty[int8.RANGES]))
    trained = {**params, int8.RANGES: ranges}
    files, ours, float32 = [], [], []
    for row in (calibration, *rows):
        files.append(run(signature, row)["logits"][0])
        ours.append(logits(module, trained, row)[0])
        float32.append(reference(**{key: array[0] for key, array in row.items()})["logits"])
    low, high = np.minimum(ours[0].min(), 0), np.maximum(ours[0].max(), 0)
    error = np.abs(np.array(ours) - files)
    assert error.max() <= 2.01 * (high - low) / 255
    assert error.mean() <= 0.3 * np.abs(np.array(float32) - files).mean()
