"""`bertzoo benchmark`: models, turns, output and errors; no time is asserted."""

import dataclasses
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from messages import mentioning, mentions
from zoo import pretrained

from bertzoo.benchmarking import backends, interleave, models
from bertzoo.benchmarking.benchmark import ANY_VOCABULARY, BenchmarkSettings, Measurement, prepare, speed, table
from bertzoo.benchmarking.worker import LoadRequest, random_row
from bertzoo.cli.main import main
from bertzoo.core import memory
from bertzoo.core.errors import UserError
from bertzoo.heads import MaskedLanguageModel, SequenceClassification, TokenClassification
from bertzoo.models import Bert
from bertzoo.runs import load_model

SMALL = Bert(vocab_size=61, hidden_size=24, max_positions=16, layers=2, heads=4, feed_forward_size=20)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a masked language model."""
    folder = tmp_path_factory.mktemp("models") / "small"
    folder.mkdir()
    load_model.write_model(pretrained(SMALL, MaskedLanguageModel(sentence=True)), folder)
    return folder


@pytest.mark.slow
def test_the_document_of_a_model_and_a_config(model: Path, tmp_path, capsys):
    config = tiny.write_config(tmp_path, "nowhere")
    words = [str(model), str(config), "--backends=jax", "--lengths=8", "--runs=5", "--rounds=2", "--json"]
    assert main(["benchmark", *words, "--model.layers=2"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["runs"], said["rounds"], said["speed_of"], said["profiles"]) == (5, 2, str(model), [])
    first, second = said["rows"]
    assert [each["model"] for each in said["rows"]] == [str(model), str(config)] and first["speed"] == 1.0
    for each in said["rows"]:
        assert (each["backend"], each["threads"], each["length"], each["precision"]) == ("jax", 1, 8, "fp32")
        assert [len(one) for one in each["rounds_ms"]] == [2, 3] and each["head"] == "sequence_classification"
        times = sorted(time for one in each["rounds_ms"] for time in one)
        assert each["median_ms"] == times[2] and each["mean_ms"] == pytest.approx(sum(times) / 5)
        assert each["least_ms"] == times[0] > 0 and each["peak_bytes"] > 0 and each["runtime_bytes"] > 0
    read = models.read_model(str(model), [], ()).pretrained
    assert read is not None and first["parameters"] == sum(array.size for array in read.params.values())
    assert 4 * first["parameters"] < first["file_bytes"] < 4 * first["parameters"] + 20_000
    # 4 maps of the attention, its two products, the feed-forward; then pooler and classifier of one token.
    layer = 8 * (4 * 24 * 24 + 2 * 24 * 20) + 2 * 8 * 8 * 24
    assert first["flops"] == 2 * (2 * layer + 24 * 24 + 2 * 24)
    deeper = models.read_model(str(config), [("model.layers", "2")], ()).pretrained
    assert deeper is not None and second["parameters"] == sum(array.size for array in deeper.params.values())
    assert any(name.startswith("encoder/layers_1/") for name in deeper.params)


def test_pretrained_models_become_classifiers_and_tasks_stay(model: Path, tmp_path):
    found = models.read_model(str(model), [], ()).pretrained
    kept = load_model.read_model(model).params
    assert found is not None and found.head == SequenceClassification()
    shared = found.params.keys() & kept.keys()
    assert "encoder/layers_1/attention/query/kernel" in shared and "pooler/kernel" in shared
    assert all(np.array_equal(found.params[name], kept[name]) for name in shared)
    assert {name.split("/")[0] for name in found.params.keys() - shared} == {"classifier"}
    tagger = pretrained(SMALL, TokenClassification(labels=("x", "y", "z")))
    load_model.write_model(tagger, tmp_path)
    assert models.read_model(str(tmp_path), [], ()).pretrained.head == tagger.head


def test_random_weights_stay_finite():
    """MobileBERT's norms do not rescale activations."""
    found = models.read_model("mobilebert", [("model.layers", "2")], ()).pretrained
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
    with pytest.raises(interleave.BenchmarkFailed, match=mentioning("UserError")):
        interleave.Worker("it", LoadRequest("jax", str(tmp_path / "none"), 1, 9))


def lines(made: list[Measurement], base: str) -> list[list[str]]:
    return [line.split() for line in table(made, base)]


def example(model: str, seconds: float, **fields: Any) -> Measurement:
    fields = {"backend": "litert", "version": "1", "precision": "fp32", "threads": 1, "length": 128} | fields
    more = {"peak": 3_000_000, "empty": 0, "size": 2_500_000, "head": None, "parameters": 1234, "flops": 2_000_000_000}
    return Measurement(model=model, rounds=[[seconds, seconds], [4 * seconds]], **fields, **more)


def test_speed_is_relative_to_the_base_in_the_same_setting():
    made = [
        example("slow", 0.004),
        example("base", 0.002),
        example("base", 0.001, precision="int8-dynamic"),
        example("fast", 0.001),
        example("fast", 0.001, threads=4),
        dataclasses.replace(example("file.onnx", 0.001, backend="onnx"), precision=None, parameters=None, flops=None),
    ]
    assert [speed(each, made, "base") for each in made] == [0.5, 1.0, 2.0, 2.0, None, None]
    head, slow, *_, last = lines(made, "base")
    assert head[:3] == ["model", "backend", "precision"]
    assert slow == ["slow", "litert", "fp32", "1", "128", "4.00", "8.00", "0.50", "2.5", "3.0", "2.00", "1,234"]
    assert last == ["file.onnx", "onnx", "1", "128", "1.00", "2.00", "2.5", "3.0"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["MODEL", "--backends=tpu"], ("--backends=tpu",)),
        (["MODEL", "--precision=int4"], ("--precision=int4", "fp32", "fp16")),
        (["MODEL", "--backends=jax", "--precision=fp16"], ("--precision=fp16", "fp32")),
        (["MODEL", "MODEL"], ("MODEL",)),
        (["MODEL", "--backends=jax", "--model.layers=3"], ("--model.layers", "MODEL")),
        (["MODEL", "--backends=jax", "--lengths=17"], ("--lengths", 17, 16)),
        (["MODEL", "--lengths=0"], ("--lengths", 0, "1,4")),
        (["MODEL", "--runs=3", "--rounds=4"], ("--runs=3", "--rounds=4")),
        (["MODEL", "--backends=jax", "--threads=1,4096"], ("--threads=4096",)),
        (["FILE", "--profile"], ("--profile", ".tflite")),
        (["bert_bas"], ("bert_bas",)),
        (["none.tflite"], ("none.tflite",)),
        (["FILE", "--backends=jax"], ("--backends=jax",)),
        (["FILE", "--backends=litert,jax"], ("--backends=jax",)),
        (["FILE", "--precision=fp16"], ("--precision",)),
    ],
)
def test_wrong_arguments_are_rejected(words, message, model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "file.tflite"
    file.touch()
    words = [{"MODEL": str(model), "FILE": str(file)}.get(word, word) for word in words]
    assert main(["benchmark", *words]) == 2
    said = capsys.readouterr()
    assert said.out == "" and mentions(said.err.splitlines()[-1], *message), said.err


@pytest.mark.parametrize(
    ("backend", "package"), [("litert", "litert_quantizer"), ("torch", "torch"), ("onnx", "onnxscript")]
)
def test_a_missing_backend_package_is_named(backend: str, package: str, model: Path, capsys, monkeypatch):
    for each in (*backends.BACKENDS[backend].runs, *backends.BACKENDS[backend].writes):
        monkeypatch.setitem(sys.modules, each, sys)  # is there
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["benchmark", str(model), f"--backends={backend}"]) == 2
    assert mentions(capsys.readouterr().err, "--backends", backend, package)


def test_a_model_is_written_once_per_precision(model: Path):
    """The cases that each option adds, without running them."""
    from bertzoo.benchmarking.backends import BACKENDS, WrittenModel

    asked: list[tuple] = []

    def write(made: Any, place: Path, wanted: Any) -> WrittenModel:
        asked.append((made.head.kind, tuple(wanted.lengths), wanted.precision))
        place.touch()
        return WrittenModel(path=place, size=1, graph=None)

    settings = BenchmarkSettings(threads=[1, 4], lengths=[16, 8], precisions=["fp32", "fp16"])
    loaded = models.read_model(str(model), [], ())
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BACKENDS, "litert", dataclasses.replace(BACKENDS["litert"], write=write))
        place = model.parent / "cases"
        place.mkdir()
        cases = list(prepare(settings, loaded, ["litert"], place))
    assert asked == [("sequence_classification", (8, 16), precision) for precision in ("fp32", "fp16")]
    assert [(case.precision, case.threads, case.length) for case in cases] == [
        (precision, threads, length) for precision in ("fp32", "fp16") for threads in (1, 4) for length in (8, 16)
    ]
    assert {case.vocabulary for case in cases} == {61}
    with pytest.MonkeyPatch.context() as patch:  # a format of one length has a file for each
        patch.setitem(BACKENDS, "litert", dataclasses.replace(BACKENDS["litert"], write=write, single=True))
        cases = list(prepare(settings, loaded, ["litert"], place))
    assert [each[1:] for each in asked[2:]] == [((n,), kind) for kind in ("fp32", "fp16") for n in (8, 16)]
    assert len({case.written.path for case in cases}) == 4


def test_a_python_without_executorch_is_named(model: Path, capsys, tmp_path):
    assert main(["benchmark", str(model), "--backends=executorch", f"--python={tmp_path / 'none'}"]) == 2
    assert mentions(capsys.readouterr().err, "executorch")


def test_the_description_beside_a_file(tmp_path, capsys):
    file, said = tmp_path / "model.onnx", tmp_path / "model.onnx.json"
    file.touch()
    nothing = models.read_model(str(file), [], [".onnx"])
    assert nothing.inputs == ("input_ids", "token_type_ids", "attention_mask") and nothing.parameters is None
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
    of_file = models.read_model(str(file), [], [".onnx"])
    assert of_file.inputs == ("input_ids", "attention_mask")
    eight, sixteen = prepare(BenchmarkSettings(lengths=[8, 16]), of_file, ["onnx"], tmp_path)
    assert (eight.precision, eight.flops(8), sixteen.flops(16), eight.flops(32)) == ("fp16", 5, 10, None)
    assert eight.vocabulary == 61  # of a table that is larger than the ids that are read, memory is not all touched
    settings = BenchmarkSettings()
    (free,) = prepare(settings, of_file, ["onnx"], tmp_path)
    assert [free.resolve_length(lengths) for lengths in ((), (4, 8), (8, 128, 256))] == [16, 8, 128]
    file.write_bytes(b"other")
    assert main(["benchmark", str(file)]) == 2
    assert mentions(capsys.readouterr().err, "model.onnx.json", "model.onnx")
    del document["model"]  # as files of earlier versions
    said.write_text(json.dumps(document))
    file.write_bytes(b"")
    (free,) = prepare(settings, models.read_model(str(file), [], [".onnx"]), ["onnx"], tmp_path)
    assert (free.vocabulary, free.resolve_length(())) == (ANY_VOCABULARY, 128)
    for lacking in ("precision", "inputs", "sha256"):
        said.write_text(json.dumps({name: value for name, value in document.items() if name != lacking}))
        assert main(["benchmark", str(file)]) == 2
        assert mentions(capsys.readouterr().err, "model.onnx.json")


def test_random_weights_larger_than_memory_are_not_made(monkeypatch):
    monkeypatch.setattr(memory, "machine_memory", lambda: (10**6, 10**6))
    monkeypatch.setattr(np.random, "default_rng", lambda _: None)  # makes no number
    with pytest.raises(UserError, match=mentioning("a name", "memory", "0.0 GB")):
        models.untrained(Bert(layers=1), "a name")
