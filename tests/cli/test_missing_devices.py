"""Exit codes of a machine without the memory or the device that a command needs."""

import jax
import pytest
from messages import mentions

from bertzoo.cli import main as cli


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
