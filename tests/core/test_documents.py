"""Invalid JSON and TOML, and wrong types inside valid ones, end in one error that names the file and the key."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import tomli_w
from etils import epath
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry
from messages import mentioning, mentions

from bertzoo.cli import main as cli
from bertzoo.conversion.tokenizers import read_tokenizer
from bertzoo.core import config, documents
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.data.corpus import manifest
from bertzoo.data.tokenizers import tokenizer
from bertzoo.planning import compiled
from bertzoo.pruning import latency
from bertzoo.pruning import report as pruning
from bertzoo.runs import report
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.train import contents

DEEP = "[" * 100_000
JSON = {
    "deep": (DEEP.encode(), ("deeply",)),
    "deep objects": (b'{"a":' * 100_000, ("deeply",)),
    "digits": (b'{"a": ' + b"9" * 5000 + b"}", ("4300",)),
    "encoding": (b'{"a": "\xff"}', (7, "UTF-8")),
    "half": (b'{"a": ', ("line 1",)),
    "empty": (b"", ("line 1",)),
    "list": (b"[1]", ("a list", "an object")),
    "number": (b"5", ("5", "an object")),
}


@pytest.mark.parametrize("case", JSON)
def test_json_fails_with_one_error(case: str, tmp_path: Path) -> None:
    data, parts = JSON[case]
    (tmp_path / "x.json").write_bytes(data)
    with pytest.raises(documents.DocumentError, match=mentioning(*parts)):
        documents.read_json(tmp_path / "x.json")
    with pytest.raises(UserError, match=mentioning(tmp_path / "x.json", *parts, "Copy it")) as caught:
        documents.read_json(tmp_path / "x.json", advice="Copy it.")
    assert isinstance(caught.value, ValueError) and caught.value.exit_code == 2


def test_a_file_in_a_bucket_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_registry, "s3", MemoryFileSystem)
    path = epath.Path("s3://documents/x.json")
    path.write_text('{"a": 1}')
    assert documents.read_json(path) == {"a": 1}  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("text", [f"a = {DEEP}", f"a = {'9' * 5000}", "a = ", "a.b = 1\na = 2", b"a = '\xff'"])
def test_toml_fails_with_one_error(text: str | bytes, tmp_path: Path) -> None:
    with pytest.raises(documents.DocumentError):
        documents.parse_toml(text)


def test_good_documents_are_returned(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes('\ufeff{"a": [1, "é"]}'.encode())
    assert documents.read_json(tmp_path / "x") == {"a": [1, "é"]}
    assert documents.parse_json("[1]", list) == [1] and documents.parse_json("null", object) is None
    assert documents.parse_toml(b"a = 1") == {"a": 1}


@pytest.mark.parametrize("name", ["run.json", "config.toml", "metrics.jsonl", "checkpoints/10.sha256.json"])
@pytest.mark.parametrize("content", [DEEP, "[[1]", "9" * 5000, "\udcff"])
def test_hostile_files_of_a_run_print_one_error(
    name: str, content: str, finished_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run = Path(shutil.copytree(finished_run, tmp_path / "run"))
    assert (run / name).is_file()
    (run / name).write_text(content + "\n", errors="surrogateescape")
    code = cli.main(["checkpoints" if name.startswith("checkpoints") else "report", str(run)])
    err = capsys.readouterr().err
    assert code == 2 and err.count("\n") == 1 and mentions(err, run) and "bug in bertzoo" not in err
    assert len(err) < 1000


@pytest.mark.parametrize(
    "value, pattern, parts",
    [
        (True, int, ("true", "an integer")),
        (True, float, ("true", "a number")),
        (5, {"a": int}, (5, "an object")),
        ({"a": {"b": [1, "x"]}}, {"a": {"b": [int]}}, ("a.b.1", "'x'", "an integer")),
        ({"a": {"k": 5}}, {"a": {str: str}}, ("a.k", 5, "text")),
        ({}, {"a": {"b": int}}, ("a",)),
        ({"a": None}, {"a?": str}, ("a", "null", "text")),
        ([["x"]], [(str, float)], ("0", 1, 2)),
        (["x", "y"], (str, float), ("1", "'y'", "a number")),
        ("x", Literal["y", "z"], ("'x'", "'y'", "'z'")),
        (5, str | None, (5, "text", "null")),
        (1 << 63, int, ("an integer", 64)),
        (1 << 2000, float, ("a number", 2001)),
    ],
)
def test_a_value_of_another_type_is_named(value: Any, pattern: Any, parts: tuple[object, ...]) -> None:
    with pytest.raises(documents.DocumentError, match=mentioning(*parts)):
        documents.fitting(value, pattern)


@pytest.mark.parametrize(
    "value, pattern",
    [
        ({"a": 1, "more": []}, {"a": float, "b?": int}),
        ([], [int]),
        ({}, {str: int}),
        (None, str | None),
        (True, object),
        (["x", 1], (str, float)),
        ("y", Literal["y", "z"]),
    ],
)
def test_a_fitting_value_is_returned(value: Any, pattern: Any) -> None:
    assert documents.fitting(value, pattern) is value


def test_a_toml_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("stages = [1]")
    with pytest.raises(ConfigError, match=mentioning(tmp_path / "c.toml", "stages.0", 1, "an object")):
        config.read_toml(tmp_path / "c.toml", {"stages": [{"steps": int}]})


def set_at(document: Any, key: str, value: Any) -> Any:
    """Set the value at a dotted key of a document, and return the document."""
    *path, last = [int(part) if part.isdecimal() else part for part in key.split(".")]
    node = document
    for part in path:
        node = node[part]
    node[last] = value
    return document


# File of a finished run, wrong key and value, and the reader.
RUN: dict[str, tuple[str, str, Any, Callable[[Path], Any]]] = {
    "tokenizer": ("run.json", "tokenizer", 5, lambda run: RunDirectory(run).tokenizer()),
    "from": ("run.json", "from", "x", lambda run: RunDirectory(run).origin("from")),
    "from's path": (
        "run.json",
        "from",
        {"path": 5, "parameters_sha256": ""},
        lambda run: RunDirectory(run).origin("from"),
    ),
    "corpus": ("run.json", "corpus", [1], lambda run: RunDirectory(run).open_corpus()),
    "stages": ("config.toml", "stages", [1], report.read_run),
    "steps": ("config.toml", "stages.0.steps", "x", report.read_run),
    "model": ("config.toml", "model", 5, report.read_run),
    "files": ("checkpoints/10.sha256.json", "files", [1], lambda run: contents.read_contents(run / "checkpoints/10")),
    "step": ("checkpoints/10.sha256.json", "step", "x", lambda run: contents.read_contents(run / "checkpoints/10")),
    "loss": ("checkpoints/10/metrics/metrics", "loss", True, lambda run: contents.read_loss(run / "checkpoints/10")),
    "settings": ("tokenizer/settings.json", "lowercase", "x", lambda run: tokenizer.load(run / "tokenizer")),
}


@pytest.mark.parametrize("case", RUN)
def test_wrong_types_in_a_run(case: str, finished_run: Path, tmp_path: Path) -> None:
    name, key, value, reader = RUN[case]
    file = shutil.copytree(finished_run, tmp_path / "run") / name
    parse, write = (config.read_toml, tomli_w.dumps) if file.suffix == ".toml" else (documents.read_json, json.dumps)
    file.write_text(write(set_at(parse(file), key, value)))
    with pytest.raises(UserError, match=mentioning(file.name, key.split(".")[-1])):
        reader(tmp_path / "run")


@pytest.mark.parametrize(
    "key, value",
    [("step", "1"), ("step", True), ("loss", [1]), ("loss", {}), ("split", 5), ("split", "x"), ("stage", {})],
)
def test_wrong_types_in_a_line_of_metrics(key: str, value: Any, finished_run: Path, tmp_path: Path) -> None:
    lines = (finished_run / "metrics.jsonl").read_text().splitlines()
    number = next(number for number, line in enumerate(lines) if '"train"' in line)
    lines[number] = json.dumps(json.loads(lines[number]) | {key: value})
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match=mentioning(f"line {number + 1}", key)):
        report.read_history(tmp_path / "metrics.jsonl")


@pytest.mark.parametrize(
    "key, value", [("splits", [1]), ("splits.train.shards", 5), ("splits.train.tokens", True), ("tokenizer", "x")]
)
def test_wrong_types_in_a_corpus_manifest(key: str, value: Any, tiny_corpus: Path) -> None:
    document = set_at(documents.read_json(tiny_corpus / manifest.NAME), key, value)
    with pytest.raises(UserError, match=mentioning("place", key)):
        manifest.parse_manifest(json.dumps(document).encode(), "place")


@pytest.mark.parametrize("key, value", [("sizes", {"h": "x"}), ("encoders", [5]), ("length", "x"), ("model", [])])
def test_wrong_types_in_a_latency_table(key: str, value: Any, tmp_path: Path) -> None:
    encoder = {"sizes": {"h": 1}, "one_ms": 1.0, "more_ms": 1}
    table = {"format": latency.FORMAT, "length": 8, "model": {}, "sizes": {"h": [1]}, "encoders": [encoder]}
    (tmp_path / "table.json").write_text(json.dumps(table))
    assert latency.read_table(tmp_path / "table.json").single == {(1,): 1.0}
    (tmp_path / "table.json").write_text(json.dumps(table | {key: value}))
    with pytest.raises(UserError, match=mentioning(tmp_path / "table.json", key)):
        latency.read_table(tmp_path / "table.json")


def test_wrong_types_in_a_cut_and_a_cached_plan(tmp_path: Path) -> None:
    (tmp_path / "iterations").mkdir()
    file = tmp_path / "iterations" / "1-cut.json"
    file.write_text('{"iteration": 1, "unit": "flops", "budget": "x"}')
    with pytest.raises(UserError, match=mentioning(file, "budget")):
        pruning.read_cuts(tmp_path)
    plan = tmp_path / "plan.json"
    plan.write_text('{"seconds": 1.0, "collectives": null}')
    assert compiled.read_result(tmp_path, "plan") is not None
    for wrong in ('{"seconds": "x"}', '{"seconds": 1.0, "collectives": [5]}'):
        plan.write_text(wrong)
        assert compiled.read_result(tmp_path, "plan") is None


@pytest.mark.parametrize(
    "key, value",
    [
        ("model", []),
        ("model", "x"),
        ("model.vocab", {"a": True}),
        ("normalizer", [1]),
        ("normalizer.lowercase", 5),
        ("pre_tokenizer", "x"),
        ("added_tokens", {"a": 1}),
        ("added_tokens", [5]),
    ],
)
def test_wrong_types_in_tokenizer_json(key: str, value: Any, tmp_path: Path) -> None:
    vocabulary = {entry: index for index, entry in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])}
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "vocab": vocabulary}
    whole = {
        "model": {**model, "max_input_chars_per_word": 100},
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "added_tokens": [],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    assert read_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(set_at(whole, key, value)))
    with pytest.raises(UserError, match=mentioning(tmp_path / "tokenizer.json", key.split(".")[0])):
        read_tokenizer(tmp_path)
