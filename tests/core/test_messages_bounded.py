"""Messages stay one line of bounded length, whatever the values in them; paths that cannot be used exit with 2."""

import os
from itertools import product
from pathlib import Path

import pytest
from messages import mentions

from bertzoo.cli import main as cli
from bertzoo.core.errors import one_line, shorten

LONG, DIGITS = "x" * 100_000, "9" * 5000
OPTIONS = ["--model.layers={}", "--model.kind={}", "--{}=1", "--model.{}=1"]
VALUES = [LONG, "a b " * 50_000, "[" * 20_000, f"[{'1, ' * 50_000}]", DIGITS, "\n" * 10_000, "\x1b[2J\r\x00"]


@pytest.mark.parametrize(("option", "value"), [*product(OPTIONS, VALUES), ("--stages.{}.steps=1", DIGITS)])
def test_a_hostile_option_prints_one_short_line(option: str, value: str, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["config", "demo", option.format(value)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and err[:-1].isprintable() and len(err) <= 2100 and err.startswith("bertzoo: ")


@pytest.mark.parametrize("text", ["\x1b[31m", "a\nb", "\udcff", "\u202e"])
def test_control_characters_are_escaped(text: str) -> None:
    shown = one_line(f"the file {text} is damaged")
    assert shown.isprintable() and "\\" in shown


def test_ordinary_messages_stay_as_they_are() -> None:
    sentence = "the model doesn't fit: " + "its heads and layers differ, " * 20 + "so it can't be read"
    assert one_line(sentence) == sentence and shorten("a" * 200) == "a" * 200
    assert mentions(one_line(f"value = '{'a b ' * 100}' (x.toml)"), "value = 'a b", "(x.toml)")
    assert len(one_line(f"value = '{'a b ' * 100}' (x.toml)")) < 230


@pytest.mark.parametrize(
    "command",
    [
        ["config", LONG],
        ["config", "squeezebert", "\udcff"],
        ["report", LONG],
        ["tokenize", LONG, "out"],
        ["convert", LONG, "out"],
        ["evaluate", f"a/{LONG}"],
    ],
)
def test_a_name_that_no_file_can_have_exits_with_2(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(command) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and len(err) < 1000 and not [*tmp_path.iterdir()]


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="a file whose reading fails with EIO")
def test_a_file_that_cannot_be_read_exits_with_2(capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["config", "/proc/self/mem"]) == 2
    assert mentions(capsys.readouterr().err, "/proc/self/mem")
