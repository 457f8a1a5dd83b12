"""benchmarks/train_step.py: what its page says of what was measured, and what it fails for."""

import argparse
import sys
from pathlib import Path
from typing import Any

import pytest
from scripts import loaded

OPTIONS = argparse.Namespace(batch=8, length=128, predictions=20, threads=2, rounds=5)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    return loaded("train_step", monkeypatch)


def test_the_page_counts(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """8 rows in 2 s are 4 a second, of 20 GFLOPs each, on a machine that does 160 a second."""
    monkeypatch.setattr(script, "version", lambda name: "1.0")
    fast = script.Row("bert_base", (2.0, 1500.0, 10.4), (4.0, 2500.0, 10.4), 2.0, 2.0, 20.0)
    slow = script.Row("squeezebert", (2.0, 1500.0, 10.4), (2.2, 2500.0, 10.4), 1.1, 1.1, 20.0)
    said = script.page([fast, slow], 160e9, OPTIONS)
    assert "| bert_base | 4.00 | 2.00 | 2.00 | 20.0 | 0.50 | 0.25 | 1,500 | 2,500 | yes |" in said
    assert said.rstrip().endswith("| NO |") and "over 160 GFLOP/s" in said


@pytest.mark.parametrize(("times", "code"), [(1.3, None), (1.1, "less than 1.2 times as fast: electra_small")])
def test_all_fails_where_one_is_slow(
    times: float, code: Any, script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def compared(model: str, options: Any) -> Any:
        wall = times if model == "electra_small" else 2.0
        return script.Row(model, (1.0, 1.0, 1.0), (wall, 1.0, 1.0), wall, wall, 1.0)

    monkeypatch.setattr(script, "compare", compared)
    monkeypatch.setattr(script, "fastest", lambda threads: 1e12)
    monkeypatch.setattr(script, "version", lambda name: "1.0")
    monkeypatch.setattr(script, "PAGE", tmp_path / "performance.md")
    monkeypatch.setattr(sys, "argv", ["train_step.py", "--all"])
    if code is None:
        script.main()
    else:
        with pytest.raises(SystemExit, match=code):
            script.main()
    text = (tmp_path / "performance.md").read_text()
    assert all(f"| {model} | " in text for model in script.MODELS) and text.startswith("# Performance\n")


def test_operations_of_a_row(script: Any) -> None:
    """BERT-base's by hand: of 12 layers 12 D² + 2 L D multiply-adds a token, and of what is masked D² + D V."""
    width, length, masked = 768, 128, 20
    layers = 12 * length * (12 * width**2 + 2 * length * width)
    head = masked * (width**2 + width * script.VOCABULARY)
    assert script.row_flops("bert_base", (1, length, masked)) == 3 * 2 * (layers + head)
    assert script.row_flops("electra_small", (2, length, masked)) > 3 * 2 * 12 * length * 12 * 256**2
