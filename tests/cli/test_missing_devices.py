"""Exit codes of an environment that no command can use: its memory and devices, and the bytes of arguments."""

import pytest
from messages import mentions

from bertzoo.cli import main as cli


def test_a_platform_without_a_device_is_wrong_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def fail(argv: list[str]) -> int:
        raise RuntimeError("Unable to initialize backend 'x': none")

    monkeypatch.setattr(cli, "run", fail)
    assert cli.main(["predict", "x"]) == 2 and mentions(capsys.readouterr().err, "'x'", "JAX_PLATFORMS")


@pytest.mark.parametrize("error", [MemoryError("2 GB"), RuntimeError("RESOURCE_EXHAUSTED: 2 GB")])
def test_memory_that_runs_out_is_wrong_input(error: Exception, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def fail(argv: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "run", fail)
    assert cli.main(["predict", "x"]) == 2 and mentions(capsys.readouterr().err, "2 GB")


@pytest.mark.parametrize("word", ["\udcff", f"--stages.{'9' * 5000}.steps=1", f"--seed={'9' * 5000}"])
def test_an_argument_that_no_file_can_hold_is_one_sentence(word: str, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["config", "squeezebert", word]) == 2
    said = capsys.readouterr()
    assert not said.out and said.err.count("\n") == 1 and len(said.err) < 2500
