"""Files of static int8 in LiteRT's own interpreter."""

import dataclasses
import itertools
from typing import Any

import jax
import numpy as np
import pytest
from comparing import needs

needs("litert_converter", "ai_edge_litert", "litert_quantizer")
from zoo import LAYERS, SIZES, pretrained

from bertzoo.export.check import verify
from bertzoo.export.graph.from_model import build_graph, scale_branches
from bertzoo.export.graph.reference import TrainingGraph
from bertzoo.export.litert import write
from bertzoo.export.runtimes import LiteRT
from bertzoo.heads import SequenceClassification
from bertzoo.models import Bert

LENGTH = 8
BERT = Bert(**SIZES, **LAYERS)


def logits(module: Any, params: Any, row: dict[str, np.ndarray]) -> np.ndarray:
    ids, mask = row["input_ids"], row["attention_mask"]
    types = row.get("token_type_ids", np.zeros_like(ids))
    return np.asarray(module.apply({"params": params}, ids, types, mask, train=False, method="logits")[0])


def test_a_large_channel_leaves_the_others_their_steps() -> None:
    """Where one channel of each feed-forward is 300 times as large, scales per channel divide the error by over 5."""
    model, params = pretrained(dataclasses.replace(BERT, layers=2), SequenceClassification(), 0.3).module()
    params = jax.tree.map(np.array, params)
    for layer in params["encoder"].values():
        layer["feed_forward"]["output"]["kernel"][:, 3] *= 300
        layer["feed_forward_norm"]["scale"] *= np.where(np.arange(24) == 3, 1 / 300, 30)  # the others stay as large
    reference = TrainingGraph(params=params, model=model)
    rows, signature = verify.sample_rows(reference, None, LENGTH), write.signature(LENGTH)
    expected = np.array([logits(model, params, row) for row in rows])

    def error(content: bytes) -> float:
        run = LiteRT(content).run
        return float(np.abs(np.array([run(signature, row)["logits"][0] for row in rows]) - expected).mean())

    graph, calibration = build_graph(model, params), {signature: rows}
    plain = write.quantised(write.convert(graph, (LENGTH,)), "int8-static", calibration)
    converted = write.convert(scale_branches(graph, rows), (LENGTH,))
    scaled = write.quantised(converted, "int8-static", calibration)
    assert error(scaled) < error(plain) / 5


def test_a_grid_holds_the_extremes_of_all_calibration_rows() -> None:
    """Each signature's logits are whole steps of the grid from the lowest to the highest float32 logit of its rows."""
    model, params = pretrained(BERT, SequenceClassification(), 0.3).module()
    reference = TrainingGraph(params=jax.tree.map(np.asarray, params), model=model)
    lengths = (LENGTH, 2 * LENGTH)
    rows = {write.signature(length): verify.sample_rows(reference, None, length) for length in lengths}
    graph = scale_branches(build_graph(model, params), itertools.chain(*rows.values()))
    run = LiteRT(write.quantised(write.convert(graph, lengths), "int8-static", rows)).run
    for signature, each in rows.items():
        exact = np.array([logits(model, params, row) for row in each])
        grid = (exact.max() - min(exact.min(), 0)) / 255
        steps = np.array([run(signature, row)["logits"][0] for row in each]) / grid
        assert np.abs(steps - np.rint(steps)).max() < 0.02 and len(np.unique(np.rint(steps))) > 4


@pytest.mark.parametrize(("precision", "rows"), [("int8-static", []), ("fp32", [{}]), ("int8-dynamic", [{}])])
def test_calibration_rows_are_for_static_int8_alone(precision: Any, rows: list[dict]) -> None:
    with pytest.raises(ValueError, match=precision):
        write.quantised(b"", precision, {"length_8": rows})
