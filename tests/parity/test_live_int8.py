"""Simulated int8 (nn/int8.py) computes what a static int8 file computes in LiteRT's own interpreter."""

import dataclasses
import itertools
from collections import Counter
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparing import needs
from flax import traverse_util

needs("litert_converter", "ai_edge_litert", "litert_quantizer")
from zoo import CASES, LAYERS, SIZES, pretrained

from bertzoo.export.check import verify
from bertzoo.export.graph import rewrites
from bertzoo.export.graph.reference import TrainingGraph
from bertzoo.export.litert import quantise, write
from bertzoo.heads import SequenceClassification
from bertzoo.models import Bert
from bertzoo.nn import Dense, Grouped, int8

LENGTH = 8
MODELS = {"bert": Bert(**SIZES, **LAYERS)} | {"squeezebert": CASES["squeezebert"][0]}


def logits(module: Any, params: Any, row: dict[str, np.ndarray]) -> np.ndarray:
    ids, mask = row["input_ids"], row["attention_mask"]
    types = row.get("token_type_ids", np.zeros_like(ids))
    return np.asarray(module.apply({"params": params}, ids, types, mask, train=False, method="logits")[0])


def float32_ranges(module: Any, params: Any, row: dict[str, np.ndarray]) -> Any:
    """The ranges that the file's calibration finds in one row: of the float32 model, in whose places int8 comes."""
    ranges, calls = {}, Counter[tuple[str, ...]]()

    def watch(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        y, module = call(*args, **kwargs), context.module
        if isinstance(module, Dense | Grouped) and context.method_name == "__call__":
            place = (*module.path, str(calls[module.path]))
            calls[module.path] += 1
            for name, array in (("input_0", args[0]), ("output", y)):
                if name == "output" and module.path[-2:] in int8.UPDATES:
                    scale = np.maximum(array.max((0, 1)) / 127, array.min((0, 1)) / -128)
                    ranges[*place, name] = jnp.stack([-128 * scale, 127 * scale], -1)
                    continue
                grouped = isinstance(module, Grouped)
                parts = np.split(array.reshape(*array.shape[:2], -1), module.groups, -1) if grouped else [array]
                ranges[*place, name] = jnp.asarray([[part.min(), part.max()] for part in parts])
        return y

    with nn.intercept_methods(watch):
        logits(module, params, row)
    return traverse_util.unflatten_dict(ranges)


@pytest.mark.parametrize("name", MODELS)
def test_the_simulation_computes_what_the_file_does(name: str) -> None:
    """Every logit is within two steps of the file's grid of logits, most are equal, and float32 is farther off."""
    model, params = pretrained(dataclasses.replace(MODELS[name], layers=2), SequenceClassification(), 0.3).module()
    reference = TrainingGraph(params=jax.tree.map(np.asarray, params), model=model)
    rows = verify.sample_rows(reference, None, LENGTH)
    content, signature = (
        write.convert(rewrites.scale_updates(rewrites.phone_graph(reference), rows[:1]), (LENGTH,)),
        write.signature(LENGTH),
    )
    run = write.Interpreter(quantise.quantised(content, "int8-static", {signature: rows[:1]}))
    ranges = float32_ranges(model, params, rows[0])
    (step,), _ = int8.int8_grid(ranges["classifier"]["output"]["0"]["output"])

    module, trained = int8.Int8Model(model), {**params, int8.RANGES: ranges}
    files = np.array([run(signature, row)["logits"][0] for row in rows])
    error = np.abs(np.array([logits(module, trained, row) for row in rows]) - files)
    float32 = np.abs(np.array([logits(model, params, row) for row in rows]) - files)
    assert error.max() <= 2.01 * step and (error < 0.01 * step).mean() >= 0.5
    assert float32.mean() > 3 * error.mean()


def test_a_large_channel_leaves_the_others_their_steps() -> None:
    """Where one channel of each feed-forward is 300 times as large, scales per channel divide the error by over 5."""
    model, params = pretrained(dataclasses.replace(MODELS["bert"], layers=2), SequenceClassification(), 0.3).module()
    params = jax.tree.map(np.array, params)
    for layer in params["encoder"].values():
        layer["feed_forward"]["output"]["kernel"][:, 3] *= 300
        layer["feed_forward_norm"]["scale"] *= np.where(np.arange(24) == 3, 1 / 300, 30)  # the others stay as large
    reference = TrainingGraph(params=params, model=model)
    rows, signature = verify.sample_rows(reference, None, LENGTH), write.signature(LENGTH)
    expected = np.array([logits(model, params, row) for row in rows])

    def error(content: bytes) -> float:
        run = write.Interpreter(content)
        return float(np.abs(np.array([run(signature, row)["logits"][0] for row in rows]) - expected).mean())

    graph, calibration = rewrites.phone_graph(reference), {signature: rows}
    plain = quantise.quantised(write.convert(graph, (LENGTH,)), "int8-static", calibration)
    converted = write.convert(rewrites.scale_updates(graph, rows), (LENGTH,))
    scaled = quantise.quantised(converted, "int8-static", calibration)
    assert error(scaled) < error(plain) / 5


def test_a_grid_holds_the_extremes_of_all_calibration_rows() -> None:
    """Each signature's logits are whole steps of the grid from the lowest to the highest float32 logit of its rows."""
    model, params = pretrained(MODELS["bert"], SequenceClassification(), 0.3).module()
    reference = TrainingGraph(params=jax.tree.map(np.asarray, params), model=model)
    lengths = (LENGTH, 2 * LENGTH)
    rows = {write.signature(length): verify.sample_rows(reference, None, length) for length in lengths}
    graph = rewrites.scale_updates(rewrites.phone_graph(reference), itertools.chain(*rows.values()))
    run = write.Interpreter(quantise.quantised(write.convert(graph, lengths), "int8-static", rows))
    for signature, each in rows.items():
        exact = np.array([logits(model, params, row) for row in each])
        grid = (exact.max() - min(exact.min(), 0)) / 255
        steps = np.array([run(signature, row)["logits"][0] for row in each]) / grid
        assert np.abs(steps - np.rint(steps)).max() < 0.02 and len(np.unique(np.rint(steps))) > 4


@pytest.mark.parametrize(("precision", "rows"), [("int8-static", []), ("fp32", [{}]), ("int8-dynamic", [{}])])
def test_calibration_rows_are_for_static_int8_alone(precision: Any, rows: list[dict]) -> None:
    with pytest.raises(ValueError, match=precision):
        quantise.quantised(b"", precision, {"length_8": rows})
