"""Exit codes of an environment that no command can use: its memory, devices, flags and the bytes of arguments."""

import jax
import pytest
from messages import mentions
from tiers import quick

from bertzoo.cli import main as cli
from bertzoo.core.errors import UserError


@pytest.mark.parametrize("error", [AssertionError(), RuntimeError("Unable to initialize backend 'x': none")])
@pytest.mark.parametrize(("devices", "code"), [(False, 2), (True, 1)])
def test_a_platform_without_a_device_is_wrong_input(
    error: Exception, devices: bool, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def fail(*_) -> int:
        raise error

    monkeypatch.setenv("JAX_PLATFORMS", "x")
    monkeypatch.setattr(cli, "run", fail)
    monkeypatch.setattr(jax, "devices", (lambda: ["cpu"]) if devices else fail)
    assert cli.main(["predict", "x"]) == code
    assert ("JAX_PLATFORMS=x" in capsys.readouterr().err) is not devices


@pytest.mark.parametrize("error", [MemoryError("2 GB"), RuntimeError("RESOURCE_EXHAUSTED: 2 GB")])
def test_memory_that_runs_out_is_wrong_input(error: Exception, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def fail(argv: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "run", fail)
    assert cli.main(["predict", "x"]) == 2 and mentions(capsys.readouterr().err, "2 GB")


@pytest.mark.parametrize(
    "flags", quick(["--nope", "--xla_force_host_platform_device_count=x", "no-such-file"], "--nope")
)
def test_flags_that_xla_rejects_are_one_sentence(
    flags: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("XLA_FLAGS", flags)
    with pytest.raises(UserError) as caught:
        cli.check_xla_flags()
    reason = str(caught.value).replace(f"XLA_FLAGS={flags}", "")
    assert reason != str(caught.value) and mentions(reason, flags.partition("=")[0].strip("-"))
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    cli.check_xla_flags()
    monkeypatch.setenv("XLA_FLAGS", flags)
    monkeypatch.setattr(cli.sys, "argv", ["bertzoo", "pretrain"])
    with pytest.raises(SystemExit, match="2"):
        cli.entry()
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and mentions(said, f"XLA_FLAGS={flags}")


@pytest.mark.parametrize(
    "word", ["\udcff", "--data.source=\udcff", f"--stages.{'9' * 5000}.steps=1", f"--seed={'9' * 5000}"]
)
def test_an_argument_that_no_file_can_hold_is_one_sentence(word: str, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["config", "squeezebert", word]) == 2
    said = capsys.readouterr()
    assert not said.out and said.err.count("\n") == 1 and len(said.err) < 2500
