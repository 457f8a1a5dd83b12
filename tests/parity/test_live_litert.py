"""Exports for phones, run in LiteRT's own interpreter: every part, lengths, precisions, sizes, operators."""

import math
from typing import Any

import jax
import numpy as np
import pytest
from comparing import needs
from messages import mentioning

needs("litert_converter", "ai_edge_litert", "litert_quantizer")
from litert_converter.schema_py_generated import BuiltinOperator, Model, ModelT
from zoo import CASES, pretrained

from bertzoo.data.tokenizers import tokenizer as tokenizers
from bertzoo.data.tokenizers.wordpiece import WordPiece
from bertzoo.export.check import golden, verify
from bertzoo.export.graph.from_model import build_graph
from bertzoo.export.graph.reference import TrainingGraph, training_graph
from bertzoo.export.litert import flatbuffer, write
from bertzoo.export.runtimes import LiteRT
from bertzoo.heads import MaskedLanguageModel, SequenceClassification, TokenClassification
from bertzoo.models import Bert, MobileBert, ModernBert, SqueezeBert

LENGTHS = (8, 11)


def graphs(model: Any, head: Any, deviation: float = 0.3) -> tuple[TrainingGraph, Any]:
    """The training graph and the export graph."""
    plain = training_graph(pretrained(model, head, deviation))
    return plain, build_graph(plain.model, plain.params)


@pytest.mark.parametrize("name", CASES)
def test_every_model_and_head_at_two_lengths(name: str):
    plain, graph = graphs(*CASES[name])
    made = write.convert(graph, LENGTHS)
    measured = verify.verify_outputs(LiteRT(made), plain, None, LENGTHS, "fp32")
    assert [*LiteRT(made)._interpreter.get_signature_list()] == ["length_8", "length_11"] and len(measured) == 2
    for signature in measured.values():
        for output in signature["outputs"].values():
            assert output["max_error"] <= 1e-5 * output["largest"], signature


@pytest.mark.slow
def test_rows_of_8192_tokens():
    """A layer that sees all tokens and two with windows, whose scores are in blocks."""
    sizes = {"vocab_size": 61, "hidden_size": 16, "layers": 3, "heads": 1, "feed_forward_size": 20}
    plain, graph = graphs(ModernBert(**sizes), TokenClassification(labels=("x", "y"), hidden="gelu"))
    made = write.convert(graph, (512, 8192))
    verify.verify_outputs(LiteRT(made), plain, None, (512, 8192), "fp32")
    model: Any = ModelT.InitFromObj(Model.GetRootAs(made))
    codes = [model.operatorCodes[one.opcodeIndex].builtinCode for one in model.subgraphs[1].operators]
    operators = zip(codes, model.subgraphs[1].operators, strict=True)
    softmaxes = [one.inputs[0] for code, one in operators if code == BuiltinOperator.SOFTMAX]
    shapes = [[int(size) for size in model.subgraphs[1].tensors[index].shape] for index in softmaxes]
    assert sorted(map(math.prod, shapes)) == [8192 * 192] * 2 + [8192**2]
    small = write.quantised(made, "int8-dynamic")
    verify.verify_outputs(LiteRT(small), plain, None, (512,), "int8-dynamic")


def test_the_operators_of_the_export_graph():
    """One operator each for gelu, softmax and look-up; no gather, no selection, and grouped maps as dense ones."""
    sizes = {"vocab_size": 61, "hidden_size": 24, "max_positions": 16, "heads": 4, "feed_forward_size": 20, "layers": 3}
    # Only heads are transposed: query, key, value and the attended values, unless there is one row or head.
    for model, dense, parts, transposed in ((Bert(**sizes), 6, 1, 3 * 4 - 2), (SqueezeBert(**sizes), 12 + 1 + 8, 4, 8)):
        _, graph = graphs(model, SequenceClassification())
        found = flatbuffer.operators(write.convert(graph, (8,)))
        assert found["FULLY_CONNECTED"] == 3 * dense + 2
        assert found["EMBEDDING_LOOKUP"] == 2 and found["SOFTMAX"] == 3 * parts and found["BATCH_MATMUL"] == 6 * parts
        assert found["GELU"] == 3 * parts
        assert found["TRANSPOSE"] == transposed
        assert not {"GATHER_ND", "GATHER", "SELECT", "SELECT_V2", "CONV_2D"} & found.keys()


@pytest.mark.parametrize("name", ["convbert-span", "mobilebert"])
def test_windows_and_trigrams_are_sliced(name: str):
    found = flatbuffer.operators(write.convert(graphs(*CASES[name])[1], (8,)))
    assert found["SLICE"] and not {"GATHER_ND", "GATHER", "SELECT", "SELECT_V2"} & found.keys()


@pytest.fixture(scope="module")
def larger() -> tuple[TrainingGraph, bytes, bytes]:
    """Enough weights to dominate the file's size over its operators; with one length and with five."""
    model = MobileBert(vocab_size=4000, layers=6, max_positions=384)
    plain, graph = graphs(model, SequenceClassification(), 0.03)
    return plain, write.convert(graph, (32,)), write.convert(graph, (32, 64, 128, 256, 384))


def test_the_sizes_of_precisions_and_of_five_lengths(larger: tuple[TrainingGraph, bytes, bytes]):
    plain, one, five = larger
    assert len(five) <= 1.1 * len(one)  # 1.05 where there are 24 layers
    assert len(write.quantised(one, "fp16")) <= 0.52 * len(one)
    small, smalls = write.quantised(one, "int8-dynamic"), write.quantised(five, "int8-dynamic")
    assert len(write.quantised(one, "int8-weight")) <= 0.3 * len(one)
    assert len(small) <= 0.3 * len(one) and len(smalls) <= 0.33 * len(five)
    measured = verify.verify_outputs(LiteRT(smalls), plain, None, (32, 384), "int8-dynamic")
    measured = measured["length_384"]["outputs"]["logits"]
    assert measured["cosine"] > 0.99 and measured["max_error"] > 0
    verify.verify_outputs(LiteRT(write.quantised(five, "fp16")), plain, None, (32, 384), "fp16")


def test_int4_halves_int8(larger: tuple[TrainingGraph, bytes, bytes]):
    """With a scale per 32 weights, shared by five lengths."""
    plain, one, five = larger
    assert all(width % write.BLOCK == 0 for width in flatbuffer.row_widths(one))
    small, smalls = write.quantised(one, "int4-dynamic"), write.quantised(five, "int4-dynamic")
    assert len(small) <= 0.18 * len(one) and len(smalls) <= 0.22 * len(five)
    measured = verify.verify_outputs(LiteRT(smalls), plain, None, (32, 384), "int4-dynamic")
    assert all(signature["outputs"]["logits"]["cosine"] > 0.95 for signature in measured.values())


@pytest.mark.parametrize("name", ["schubert", "mobilebert"])
def test_int4_of_rows_that_no_block_divides(name: str):
    """A scale per row; a file with wrong scales or swapped halves of its bytes is rejected."""
    plain, graph = graphs(*CASES[name])
    content = write.convert(graph, (8,))
    assert any(width % write.BLOCK for width in flatbuffer.row_widths(content))
    int4 = write.quantised(content, "int4-dynamic")
    verify.verify_outputs(LiteRT(int4), plain, None, (8,), "int4-dynamic")
    for damage in (swap_halves, reverse_scales):
        with pytest.raises(write.ExportFailed, match=mentioning("at length 8", 0.9)):
            verify.verify_outputs(LiteRT(damaged(int4, damage)), plain, None, (8,), "int4-dynamic")


def swap_halves(data: np.ndarray, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return data >> 4 | data << 4, scales


def reverse_scales(data: np.ndarray, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return data, scales[::-1].copy()


def damaged(content: bytes, damage: Any) -> bytes:
    """A small file whose int4 tensors have other bytes or scales."""
    from litert_converter import schema_py_generated as schema

    model: Any = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content))
    tensors = [one for graph in model.subgraphs for one in graph.tensors if one.type == schema.TensorType.INT4]
    assert tensors
    for tensor in tensors:
        buffer, table = model.buffers[tensor.buffer], tensor.quantization
        buffer.data, table.scale = damage(np.asarray(buffer.data, np.uint8), np.asarray(table.scale))
    return flatbuffer.to_bytes(model)


def test_shared_tables_change_no_output(larger: tuple[TrainingGraph, bytes, bytes], monkeypatch):
    plain, _, five = larger
    shared = write.quantised(five, "int8-dynamic")
    with monkeypatch.context() as patch:
        patch.setattr(flatbuffer, "share_scales", lambda content: content)
        repeated = write.quantised(five, "int8-dynamic")
    assert len(shared) <= 0.9 * len(repeated)
    (row, *_) = verify.sample_rows(plain, None, 64)
    found, expected = (LiteRT(content).run("length_64", row)["logits"] for content in (shared, repeated))
    np.testing.assert_array_equal(found, expected)


def test_metadata_moves_weights_into_the_flatbuffer():
    """MediaPipe's tasks for the web find no weights behind it."""
    plain, graph = graphs(Bert(vocab_size=4000, layers=1, hidden_size=64, heads=2), SequenceClassification())
    behind = write.quantised(write.convert(graph, (32,)), "int8-dynamic")
    inside = flatbuffer.with_metadata(behind, "NAME", b"data")
    outside = [flatbuffer._outside(ModelT.InitFromObj(Model.GetRootAs(content))) for content in (behind, inside)]
    assert outside[0] and not outside[1]
    (row, *_) = verify.sample_rows(plain, None, 32)
    before, after = (LiteRT(content).run("length_32", row)["logits"] for content in (behind, inside))
    np.testing.assert_array_equal(after, before)


def test_another_model_is_not_proved():
    plain, graph = graphs(*CASES["bert"])
    made = write.convert(graph, (8,))
    params = jax.tree.map(lambda leaf: leaf, plain.params)
    params["embedding"]["norm"]["bias"] = params["embedding"]["norm"]["bias"] + 0.01
    limits = (f"{limit:g}" for limit in verify.LIMITS["fp32"])
    with pytest.raises(write.ExportFailed, match=mentioning("embedding at length 8", *limits)):
        verify.verify_outputs(LiteRT(made), plain.replace(params=params), None, (8,), "fp32")
    broken = graph.replace(layers=(*graph.layers[:-1], jax.tree.map(lambda leaf: leaf * np.nan, graph.layers[-1])))
    with pytest.raises(write.ExportFailed, match=mentioning("embedding at length 8", "NaN", "the file")):
        verify.verify_outputs(LiteRT(write.convert(broken, (8,))), plain, None, (8,), "fp32")
    params["embedding"]["norm"]["bias"] = params["embedding"]["norm"]["bias"] * np.nan
    with pytest.raises(write.ExportFailed, match=mentioning("embedding at length 8", "NaN", "the model")):
        verify.verify_outputs(LiteRT(made), plain.replace(params=params), None, (8,), "fp32")


def test_golden_outputs_of_a_whole_vocabulary_are_its_likeliest():
    model = Bert(vocab_size=5000, hidden_size=24, layers=1, heads=4, feed_forward_size=20, max_positions=16)
    plain, graph = graphs(model, MaskedLanguageModel())
    tokenizer = tokenizers.build(WordPiece(vocab_size=120), lambda: iter(verify.TEXT * 20))
    (row, *_) = golden.golden_rows(LiteRT(write.convert(graph, (8,))), plain, tokenizer, (8,))
    found, expected = row["outputs"]["masked_logits"], row["expected"]["masked_logits"]
    assert found["shape"] == [1, 5000] and found["likeliest"] == expected["likeliest"]
    assert found["values"] == sorted(found["values"], reverse=True) and len(found["values"]) == 5


def test_ids_outside_the_tables_read_the_nearest_row():
    """`litert-benchmark` fills int32 inputs with -128 to 127."""
    _, graph = graphs(*CASES["bert"])
    run, size = LiteRT(write.convert(graph, (8,))).run, len(graph.embedding.word)
    outside = {name: np.array([[-128, -1, 0, 1, 2, size - 1, size, 127]], np.int32) for name in graph.inputs}
    inside = outside | {
        name: outside[name].clip(0, len(table) - 1)
        for name, table in (("input_ids", graph.embedding.word), ("token_type_ids", graph.embedding.token_type))
    }
    expected = run("length_8", inside)
    assert np.isfinite(expected["embedding"]).all()
    np.testing.assert_array_equal(run("length_8", outside)["embedding"], expected["embedding"])
