"""`bertzoo benchmark`: models, turns, output and errors; no time is asserted."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timed
import tiny
from messages import mentioning, mentions
from zoo import pretrained

from bertzoo.benchmarking import benchmark, interleave
from bertzoo.benchmarking.benchmark import ANY_VOCABULARY, BenchmarkSettings, prepare, speed, table
from bertzoo.benchmarking.worker import LoadRequest, random_row
from bertzoo.cli.main import main
from bertzoo.core import machine
from bertzoo.core.errors import UserError
from bertzoo.export.litert import write
from bertzoo.export.options import SINGLE
from bertzoo.heads import MaskedLanguageModel, SequenceClassification, TokenClassification
from bertzoo.models import Bert
from bertzoo.runs import load_model

SMALL = Bert(vocab_size=61, hidden_size=24, max_positions=16, layers=2, heads=4, feed_forward_size=20)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a masked language model."""
    folder = tmp_path_factory.mktemp("small")
    load_model.write_model(pretrained(SMALL, MaskedLanguageModel(sentence=True)), folder)
    return folder


@pytest.mark.slow
def test_the_document_of_a_model_and_a_config(model: Path, tmp_path, capsys, monkeypatch):
    timed.stand_in(monkeypatch)
    config = tiny.write_config(tmp_path, "nowhere")
    words = [str(model), str(config), "--lengths=8", "--runs=5", "--rounds=2", "--json"]
    assert main(["benchmark", *words, "--model.layers=2"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["runs"], said["rounds"], said["speed_of"], said["profiles"]) == (5, 2, str(model), [])
    first, second = said["rows"]
    assert [each["model"] for each in said["rows"]] == [str(model), str(config)] and first["speed"] == 1.0
    for each in said["rows"]:
        assert (each["backend"], each["threads"], each["length"], each["precision"]) == ("litert", 1, 8, "fp32")
        assert each["version"] == "9" and each["head"] == "sequence_classification"
        assert each["rounds_ms"] == [pytest.approx([2, 3]), pytest.approx([5, 6, 7])]  # the first of a turn not counted
        assert [each[f"{name}_ms"] for name in ("median", "mean", "least")] == pytest.approx([5, 23 / 5, 2])
        assert (each["file_bytes"], each["peak_bytes"], each["runtime_bytes"]) == (5, 5, 7)
    read = benchmark.read_model(str(model)).pretrained
    assert read is not None and first["parameters"] == sum(array.size for array in read.params.values())
    # 4 maps of the attention, its two products, the feed-forward; then pooler and classifier of one token.
    layer = 8 * (4 * 24 * 24 + 2 * 24 * 20) + 2 * 8 * 8 * 24
    assert first["flops"] == 2 * (2 * layer + 24 * 24 + 2 * 24)
    deeper = benchmark.read_model(str(config), [("model.layers", "2")]).pretrained
    assert deeper is not None and second["parameters"] == sum(array.size for array in deeper.params.values())
    assert any(name.startswith("encoder/layers_1/") for name in deeper.params)


def test_pretrained_models_become_classifiers_and_tasks_stay(model: Path, tmp_path):
    found = benchmark.read_model(str(model)).pretrained
    kept = load_model.read_model(model).params
    assert found is not None and found.head == SequenceClassification()
    shared = found.params.keys() & kept.keys()
    assert "encoder/layers_1/attention/query/kernel" in shared and "pooler/kernel" in shared
    assert all(np.array_equal(found.params[name], kept[name]) for name in shared)
    assert {name.split("/")[0] for name in found.params.keys() - shared} == {"classifier"}
    tagger = pretrained(SMALL, TokenClassification(labels=("x", "y", "z")))
    load_model.write_model(tagger, tmp_path)
    assert benchmark.read_model(str(tmp_path)).pretrained.head == tagger.head


def test_random_weights_stay_finite():
    """MobileBERT's norms do not rescale activations."""
    found = benchmark.read_model("mobilebert", [("model.layers", "2")]).pretrained
    assert found is not None and found.params["embedding/norm/scale"].min() == 1.0
    assert np.std(found.params["encoder/layers_0/output/kernel"]) == pytest.approx(0.02, rel=0.1)


def test_turns_alternate_and_skip_the_first_run(logged):
    assert [interleave.order(3, index) for index in range(4)] == [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]]
    assert [interleave.order(2, index)[0] for index in range(4)] == [0, 1, 1, 0]
    began: list[str] = []

    class Told:
        def __init__(self, what: str) -> None:
            self.what, self.runs = what, 0

        def run(self, lengths: list[int]) -> list[float]:
            began.append(self.what)
            self.runs += 1
            assert set(lengths) == {{"a": 8, "b": 16}[self.what]}
            return [99.0] + [self.runs + place / 10 for place in range(1, len(lengths))]

    workers: Any = [Told("a"), Told("b")]
    a, b = interleave.take_turns(workers, [8, 16], runs=5, rounds=3)
    assert [len(each) for each in a] == [1, 2, 2] and a == b and a[1] == [2.1, 2.2]
    assert began == ["a", "b", "b", "a", "b", "a"] and logged == [f"round {number} of 3" for number in (1, 2, 3)]
    assert interleave.ratio([[2.0, 4.0, 3.0], [8.0], [5.0]], [[3.0], [2.0], [1.0]]) == 4.0


def test_random_rows_have_no_padding():
    made = random_row({"input_ids": (1, 50), "token_type_ids": (1, 50), "attention_mask": (1, 50)}, 7)
    assert set(made["input_ids"].ravel()) == set(range(7))
    assert made["attention_mask"].all() and not made["token_type_ids"].any()
    assert not random_row({"masked_positions": (1,)}, 7)["masked_positions"].any()


def test_the_worker_does_not_import_jax():
    """Its memory would count for every runtime."""
    alone = "import sys, bertzoo.benchmarking.worker, bertzoo.export.runtimes; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", alone]).returncode == 0


def test_a_model_that_does_not_load_raises(tmp_path):
    with pytest.raises(interleave.BenchmarkFailed, match=mentioning("KeyError", "none")):
        interleave.Worker("it", LoadRequest("none", str(tmp_path / "none"), 1, 9))


def example(model: str, milliseconds: float, **fields: Any) -> dict[str, Any]:
    case = {"backend": "litert", "precision": "fp32", "threads": 1, "length": 128}
    facts = {"peak_bytes": 3_000_000, "file_bytes": 2_500_000, "parameters": 1234, "flops": 2_000_000_000}
    times = {"median_ms": milliseconds, "mean_ms": 2 * milliseconds}
    rounds = [[milliseconds, milliseconds], [4 * milliseconds]]
    return {"model": model, **case, **facts, **times, "rounds_ms": rounds, **fields}


def test_speed_is_relative_to_the_base_in_the_same_setting():
    rows = [
        example("slow", 4),
        example("base", 2),
        example("base", 1, precision="int8-dynamic"),
        example("fast", 1),
        example("fast", 1, threads=4),
        example("file.onnx", 1, backend="onnx", precision=None, parameters=None, flops=None),
    ]
    speeds = [speed(row, rows, "base") for row in rows]
    assert speeds == [0.5, 1.0, 2.0, 2.0, None, None]
    shown = table([row | {"speed": one} for row, one in zip(rows, speeds, strict=True)])
    head, slow, *_, last = (line.split() for line in shown)
    assert head[:3] == ["model", "backend", "precision"]
    assert slow == ["slow", "litert", "fp32", "1", "128", "4.00", "8.00", "0.50", "2.5", "3.0", "2.00", "1,234"]
    assert last == ["file.onnx", "onnx", "1", "128", "1.00", "2.00", "2.5", "3.0"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["MODEL", "--backends=tpu"], ("--backends=tpu",)),
        (["MODEL", "--precision=int4"], ("--precision=int4", "fp32", "fp16")),
        (["MODEL", "--backends=onnx", "--precision=fp16"], ("--precision=fp16", "fp32")),
        (["MODEL", "MODEL"], ("MODEL",)),
        (["MODEL", "--model.layers=3"], ("--model.layers", "MODEL")),
        (["MODEL", "--lengths=17"], ("--lengths", 17, 16)),
        (["MODEL", "--lengths=0"], ("--lengths", 0, "1,4")),
        (["MODEL", "--runs=3", "--rounds=4"], ("--runs=3", "--rounds=4")),
        (["FILE", "--profile"], ("--profile", ".tflite")),
        (["bert_bas"], ("bert_bas",)),
        (["none.tflite"], ("none.tflite",)),
        (["FILE", "--backends=onnx"], ("--backends=onnx",)),
        (["FILE", "--backends=litert,onnx"], ("--backends=onnx",)),
        (["FILE", "--precision=fp16"], ("--precision",)),
    ],
)
def test_wrong_arguments_are_rejected(words, message, model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(write, "check_packages", dict)
    file = tmp_path / "file.tflite"
    file.touch()
    words = [{"MODEL": str(model), "FILE": str(file)}.get(word, word) for word in words]
    assert main(["benchmark", *words]) == 2
    said = capsys.readouterr()
    assert said.out == "" and mentions(said.err.splitlines()[-1], *message), said.err


def test_a_missing_backend_package_is_named(model: Path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["benchmark", str(model), "--backends=onnx"]) == 2
    assert mentions(capsys.readouterr().err, "onnx", "torch")


def test_a_model_is_written_once_per_precision(model: Path, tmp_path, monkeypatch):
    """The cases that each option adds, without running them."""
    written = timed.stand_in(monkeypatch)
    settings = BenchmarkSettings(threads=[1, 4], lengths=[16, 8], precisions=["fp32", "fp16"])
    loaded = benchmark.read_model(str(model))
    cases = list(prepare(settings, loaded, ["litert"], tmp_path))
    assert [(head, one.lengths, one.precision) for head, one in written] == [
        ("sequence_classification", (8, 16), precision) for precision in ("fp32", "fp16")
    ]
    assert [(case.description["precision"], case.threads, case.length) for case in cases] == [
        (precision, threads, length) for precision in ("fp32", "fp16") for threads in (1, 4) for length in (8, 16)
    ]
    assert {case.request().vocabulary for case in cases} == {61}
    written.clear()
    monkeypatch.setitem(SINGLE, "litert", "LiteRT")  # a format of one length has a file for each
    cases = list(prepare(settings, loaded, ["litert"], tmp_path))
    assert [one.lengths for _, one in written] == [(8,), (16,)] * 2
    assert len({case.file for case in cases}) == 4


def test_a_python_without_executorch_is_named(model: Path, capsys, tmp_path):
    assert main(["benchmark", str(model), "--backends=executorch", f"--python={tmp_path / 'none'}"]) == 2
    assert mentions(capsys.readouterr().err, "executorch")


def test_the_description_beside_a_file(tmp_path, capsys):
    file, said = tmp_path / "model.onnx", tmp_path / "model.onnx.json"
    file.touch()
    nothing = benchmark.read_model(str(file))
    (unknown,) = prepare(BenchmarkSettings(), nothing, ["onnx"], tmp_path)
    assert unknown.request().inputs == ("input_ids", "token_type_ids", "attention_mask")
    document = {
        "inputs": {"input_ids": "int32", "attention_mask": "int32"},
        "precision": "fp16",
        "head": {"kind": "span"},
        "parameters": 7,
        "flops": {"length_8": 5, "length_16": 10},
        "model": {"vocab_size": 61, "max_positions": 16},
        "sha256": hashlib.sha256(b"").hexdigest(),
    }
    said.write_text(json.dumps(document))
    of_file = benchmark.read_model(str(file))
    eight, sixteen = prepare(BenchmarkSettings(lengths=[8, 16]), of_file, ["onnx"], tmp_path)
    state = {"version": "9", "threads": 1, "empty": 0}
    rows = [case.row(state, length, [[0.1]], 5) for case, length in ((eight, 8), (sixteen, 16), (eight, 32))]
    assert [(row["precision"], row["flops"], row["parameters"]) for row in rows] == [
        ("fp16", flops, 7) for flops in (5, 10, None)
    ]
    # Of a table that is larger than the ids that are read, memory is not all touched.
    assert eight.request().vocabulary == 61 and eight.request().inputs == ("input_ids", "attention_mask")
    settings = BenchmarkSettings()
    (free,) = prepare(settings, of_file, ["onnx"], tmp_path)
    assert [free.resolve_length(lengths) for lengths in ((), (4, 8), (8, 128, 256))] == [16, 8, 128]
    for shortest, longest, expected in ((64, 64, 64), (8, 512, 128), (256, 512, 256)):
        span = {"lengths": {"shortest": shortest, "longest": longest}}
        ranged = replace(free, description={**free.description, **span})
        assert ranged.resolve_length(()) == expected == replace(ranged, length=expected).resolve_length(())
        with pytest.raises(UserError, match=mentioning(longest + 1, longest)):
            replace(ranged, length=longest + 1).resolve_length(())
    file.write_bytes(b"other")
    assert main(["benchmark", str(file)]) == 2
    assert mentions(capsys.readouterr().err, "model.onnx.json", "model.onnx")
    del document["model"]
    said.write_text(json.dumps(document))
    file.write_bytes(b"")
    (free,) = prepare(settings, benchmark.read_model(str(file)), ["onnx"], tmp_path)
    assert (free.request().vocabulary, free.resolve_length(())) == (ANY_VOCABULARY, 128)
    for lacking in ("precision", "inputs", "sha256"):
        said.write_text(json.dumps({name: value for name, value in document.items() if name != lacking}))
        assert main(["benchmark", str(file)]) == 2
        assert mentions(capsys.readouterr().err, "model.onnx.json")


def test_random_weights_larger_than_memory_are_not_made(monkeypatch):
    monkeypatch.setattr(machine, "machine_memory", lambda: (10**6, 10**6))
    monkeypatch.setattr(np.random, "default_rng", lambda _: None)  # makes no number
    with pytest.raises(UserError, match=mentioning("a name", "memory", "0.0 GB")):
        benchmark.untrained(Bert(layers=1), "a name")
