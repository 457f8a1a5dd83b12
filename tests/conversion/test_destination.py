"""Destinations of `bertzoo convert`: behind links, unwritable, on a full disk; no temporary files remain."""

import errno
import json
import os
import resource

import pytest
import tiny_bert
from messages import refused
from tiny_bert import convert

from bertzoo.cli.main import main
from bertzoo.core import atomic
from bertzoo.export import convert as conversion
from bertzoo.export.litert import write
from bertzoo.runs import load_model


def test_a_link_to_an_empty_or_missing_directory(tmp_path):
    source = tiny_bert.write(tmp_path / "source")
    (tmp_path / "empty").mkdir()
    for name in ("empty", "none"):
        (tmp_path / f"to {name}").symlink_to(tmp_path / name)
        assert convert(source, tmp_path / f"to {name}") == 0
        assert (tmp_path / f"to {name}").is_symlink() and (tmp_path / name / "model.toml").is_file()
    assert convert(source, tmp_path / "a" / ".." / "b" / "." / "c") == 0
    assert (tmp_path / "b" / "c" / "model.toml").is_file() and not (tmp_path / "a").exists()


PLACELESS = {
    ".": (". ", "working directory"),
    "x/..": ("x/..", "working directory"),
    "..": (".. ", "empty"),
    "../source/config.json/x": ("config.json ", "a file"),
    "../source/config.json/x/y": ("config.json ", "a file"),
    "x" * 300: (os.strerror(errno.ENAMETOOLONG),),
    f"{'x' * 300}/y": (os.strerror(errno.ENAMETOOLONG),),
    "circle": ("circle",),
    "/proc/self/out": ("/proc/self/out",),
    "/proc/nowhere/out": ("/proc/nowhere/out",),
}


@pytest.mark.parametrize("place", PLACELESS)
def test_no_place(place: str, tmp_path, capsys, monkeypatch):
    source, work = tiny_bert.write(tmp_path / "source"), tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    if place == "circle":
        (work / "circle").symlink_to("circle")
    before = sorted(tmp_path.rglob("*"))
    with monkeypatch.context() as patch:
        patch.setattr(load_model, "read_model", lambda path: pytest.fail("it was read before the place was looked at"))
        assert convert(source, place) == 2
    refused(capsys, *PLACELESS[place])
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_destination_prints_an_error(tmp_path, capsys):
    source = tiny_bert.write(tmp_path / "source")
    (tmp_path / "closed").mkdir(0o500)
    for name in ("out", "a/b"):
        assert convert(source, tmp_path / "closed" / name) == 2
        refused(capsys, tmp_path / "closed" / name, os.strerror(errno.EACCES))


@pytest.mark.parametrize("to", ["bertzoo", "huggingface", "pytorch"])
@pytest.mark.parametrize("size", [10, 5000])
def test_a_full_disk(size: int, to: str, tmp_path, capsys):
    """A limit on the size of a file stands for the disk: the kernel refuses the same write."""
    source = tiny_bert.write(tmp_path / "source")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        code = convert(source, tmp_path / "a" / "b" / "out", to=to)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code == 1
    refused(capsys, f"{tmp_path}/a/b/out", os.strerror(errno.EFBIG))
    assert list(tmp_path.iterdir()) == [source]


def test_parents_in_use_stay(tmp_path, monkeypatch):
    source = tiny_bert.write(tmp_path / "source")

    def fail(*_) -> None:
        (tmp_path / "a" / "other").write_text("mine")
        raise OSError("full")

    monkeypatch.setattr(load_model, "write_model", fail)
    assert convert(source, tmp_path / "a" / "b" / "out") == 1
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["other"]


@pytest.mark.parametrize("to", ["bertzoo", "huggingface", "pytorch"])
@pytest.mark.parametrize("mask", [0o022, 0o027])
def test_whoever_the_umask_lets_may_read_it(mask: int, to: str, tmp_path):
    source, before = tiny_bert.write(tmp_path / "source"), os.umask(mask)
    try:
        assert convert(source, tmp_path / "out", to=to) == 0
    finally:
        os.umask(before)
    found = {path: path.stat().st_mode & 0o777 for path in [tmp_path / "out", *(tmp_path / "out").rglob("*")]}
    assert any(path.suffix == ".safetensors" for path in found)
    assert found == {path: (0o777 if path.is_dir() else 0o666) & ~mask for path in found}


@pytest.mark.parametrize("to", ["bertzoo", "huggingface", "pytorch"])
def test_a_repeated_command_keeps_the_same_directory(to: str, tmp_path, capsys):
    """As after a kill just after the rename."""
    source = tiny_bert.write(tmp_path / "source")
    assert convert(source, tmp_path / "out", to=to) == convert(source, tmp_path / "out", to=to) == 0
    capsys.readouterr()
    (config,) = [*(tmp_path / "out").glob("config.json"), *(tmp_path / "out").glob("model.toml")]
    config.write_text(config.read_text() + "\n")
    assert convert(source, tmp_path / "out", to=to) == 2
    refused(capsys, tmp_path / "out", "not empty")
    assert {path.name for path in tmp_path.iterdir()} == {"source", "out"}


def test_a_repeated_command_keeps_its_file(tmp_path, capsys, monkeypatch):
    calls = []

    def write_file(target, pretrained, file, settings, quiz, memory, request, packages):
        calls.append(request)
        file.write_bytes(b"model")
        one = {"bytes": 5, "memory": 5, "precision": "fp32", "signatures": {}, "scores": None, "request": request}
        atomic.write_json(file.with_name(f"{file.name}.json"), {**one, "sha256": atomic.file_hash(file)})
        file.with_name(f"{file.name}.files").mkdir()
        return one

    source, file = tiny_bert.write(tmp_path / "source"), tmp_path / "x.tflite"
    monkeypatch.setattr(conversion, "write_file", write_file)
    monkeypatch.setattr(write, "check_packages", lambda: {"tool": "1"})
    command = ["convert", str(source), str(file), "--to=litert"]
    assert main(command) == 0
    (tmp_path / ".x.tflite.writing").mkdir()  # by a kill before the first call's last step
    assert main(command) == 0 and len(calls) == 1 and not (tmp_path / ".x.tflite.writing").exists()
    assert file.read_bytes() == b"model" and json.loads((tmp_path / "x.tflite.json").read_text())["request"] == calls[0]
    capsys.readouterr()
    assert main([*command, "--lengths=8"]) == 2
    refused(capsys, file, "exists")
    (tmp_path / "x.tflite.files").rmdir()  # no longer complete
    assert main(command) == 2 and len(calls) == 1
    (tmp_path / "x.tflite.files").mkdir()
    assert main(command) == 0
    monkeypatch.setattr(write, "check_packages", lambda: {"tool": "2"})
    capsys.readouterr()
    assert main(command) == 2
    refused(capsys, file, "exists")
    monkeypatch.setattr(write, "check_packages", lambda: {"tool": "1"})
    file.unlink()  # as after a kill between the moves of JSON and file
    assert main([*command, "--lengths=8"]) == 2 and len(calls) == 1
    (tmp_path / "x.tflite.files" / "old").touch()
    assert main(command) == 0 and len(calls) == 2 and file.is_file()
    assert (tmp_path / "x.tflite.files" / "old").exists()
    file.write_bytes(b"another")
    assert main(command) == 2 and len(calls) == 2
