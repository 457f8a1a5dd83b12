"""benchmarks/scaling.py: its page and picture, of stand-ins, and the memory of reading a corpus."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from PIL import Image
from scripts import loaded

from bertzoo.cli import main as bertzoo


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    return loaded("scaling", monkeypatch)


def points(script: Any) -> list[Any]:
    """A step takes as many ms, and MiB, as what grows is large; each device more takes a tenth."""
    axes = [
        script.Point(model, axis, size, size / 1e3, size * 2**20)
        for model in script.MODELS
        for axis, sizes in script.AXES.items()
        for size in sizes
    ]
    return axes + [
        script.Point("bert_base", split, n, 1 + (n - 1) * cost, n * 2**20)
        for split, cost in zip(script.SPLIT.values(), (0.1, 0.01), strict=True)
        for n in script.DEVICES
    ]


def test_the_page_and_the_picture(script: Any, tmp_path: Path) -> None:
    inputs = [(2_000_000, 50 * 2**20), (4_000_000, 52 * 2**20)]
    said = script.page(points(script), inputs, 5)
    assert "| squeezebert | 128 ms, 128 MiB | 256 ms, 256 MiB | 384 ms, 384 MiB | 512 ms, 512 MiB |" in said
    assert "| convbert_base | 1 ms, 1 MiB | 2 ms, 2 MiB | 4 ms, 4 MiB | 8 ms, 8 MiB | 16 ms, 16 MiB |" in said
    assert "| devices | 1,000 ms, 1 MiB | 1.10, 2 MiB each | 1.30, 4 MiB each | 1.70, 8 MiB each |" in said
    assert "| devices, each with a part of the parameters | 1,000 ms, 1 MiB | 1.01, 2 MiB each | 1.03, 4" in said
    assert "2.0 M tokens: 50 MiB, 4.0 M tokens: 52 MiB." in said
    script.draw(points(script), inputs, tmp_path / "scaling.png")
    drawn = np.asarray(Image.open(tmp_path / "scaling.png").convert("RGB"))
    assert drawn.shape[1] > 1000 and (drawn != 255).any(axis=-1).mean() > 0.01


def test_of_devices_the_median_process_counts(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In turns, so that a slow minute is no number's own."""
    asked: list[tuple[str, int]] = []

    def on_devices(count: int, split: str, rounds: int) -> Any:
        asked.append((split, count))
        return script.Point("bert_base", split, count, count + 10.0 * (len(asked) < 4), 1)

    monkeypatch.setattr(script, "on_devices", on_devices)
    found = script.of_devices(5)
    turn = [(split, count) for split in ("data", "fsdp") for count in script.DEVICES]
    assert asked == turn * 3
    assert [(point.axis, point.size, point.seconds) for point in found] == [(*each, each[1]) for each in turn]


def test_the_memory_of_reading(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, config = tiny.write_text(tmp_path / "text.txt"), tiny.write_config(tmp_path, "nowhere")
    assert bertzoo(["tokenize", str(text), str(tmp_path / "corpus"), f"--config={config}", "--workers=1"]) == 0
    monkeypatch.setattr(script, "READ", 2)
    tokens, most = script.read(tmp_path / "corpus")
    assert tokens > 1000 and most > 2**20
    with script.watched() as found:
        held = np.ones(2**26 // 8)  # which no file holds
        script.time.sleep(0.05)
    with script.watched() as after:
        del held
        script.time.sleep(0.05)
    assert found[0] - after[0] > 2**25


@pytest.mark.slow
def test_the_input_is_flat(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of the corpus under one vocabulary; four times the text needs no more than some MB."""
    monkeypatch.setattr(script, "COPIES", (1, 4))
    (_, one), (_, four) = script.corpora(tmp_path)
    read = [script.in_a_process("--worker=input", f"--corpus={corpus}") for corpus in (one, four)]
    assert read[1][0] == pytest.approx(4 * read[0][0], rel=0.05)
    assert (one / "tokenizer" / "vocab.txt").read_text() == (four / "tokenizer" / "vocab.txt").read_text()
    assert read[1][1] - read[0][1] < 10 * 2**20 < read[0][1], "the tokens alone are 12 MiB more as integers"


@pytest.mark.slow
def test_a_line_and_devices_are_measured(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer rows need more memory; in a process of its own there are as many devices as are asked for."""
    monkeypatch.setattr(script, "ROWS", 8)  # as many as the tests have devices
    one, two = script.line("convbert_small", "length", (16, 64), rounds=1)
    assert [(point.model, point.axis, point.size) for point in (one, two)] == [
        ("convbert_small", "length", 16),
        ("convbert_small", "length", 64),
    ]
    assert two.scratch > one.scratch > 0 and min(one.seconds, two.seconds) > 0
    data, fsdp = (script.on_devices(2, split, rounds=1) for split in script.SPLIT)
    assert (data.axis, data.size) == ("devices", 2) and min(data.seconds, fsdp.seconds) > 0
    assert fsdp.scratch != data.scratch and fsdp.axis != data.axis
