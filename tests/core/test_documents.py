"""Invalid JSON and TOML end in one typed error, wherever they are read."""

import shutil
from pathlib import Path

import pytest
from etils import epath
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry
from messages import mentioning, mentions

from bertzoo.cli import main as cli
from bertzoo.core import documents
from bertzoo.core.errors import UserError

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


# Files of a finished run, and the commands that read them.
READ = {
    "run.json": "report",
    "config.toml": "report",
    "metrics.jsonl": "report",
    "checkpoints/10.sha256.json": "checkpoints",
}


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("content", [DEEP, "[[1]", "9" * 5000, "\udcff"])
def test_hostile_files_of_a_run_print_one_error(
    name: str, content: str, finished_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run = Path(shutil.copytree(finished_run, tmp_path / "run"))
    assert (run / name).is_file()
    (run / name).write_text(content + "\n", errors="surrogateescape")
    code = cli.main([READ[name], str(run)])
    err = capsys.readouterr().err
    assert code == 2 and err.count("\n") == 1 and mentions(err, run) and "bug in bertzoo" not in err
    assert len(err) < 1000
