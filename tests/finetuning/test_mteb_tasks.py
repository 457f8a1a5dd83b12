"""The package mteb as an option of `evaluate`: without it, an error says how to install it."""

import sys
from pathlib import Path

import pytest
from messages import mentions

from bertzoo.cli import main as cli


def test_without_the_package_an_error_has_the_command(
    place: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mteb", None)
    assert cli.main(["evaluate", str(place / "run"), "--task=mteb:STSBenchmark"]) == 2
    assert mentions(capsys.readouterr().err, "--task=mteb:STSBenchmark", "pip install 'mteb")
