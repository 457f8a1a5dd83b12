"""benchmarks/train_step.py: what its page says of what was measured, and what it fails for."""

import importlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scripts import FOLDER, loaded

SHAPE = (8, 128, 20)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    return loaded("train_step", monkeypatch)


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = loaded("train_step_page", monkeypatch)
    monkeypatch.setattr(made, "version", lambda name: "1.0")
    return made


def test_the_page_counts(pages: Any) -> None:
    """8 rows in 2 s are 4 a second, of 20 GFLOPs each and theirs of 30, on a machine that does 160 a second."""
    fast = pages.Row("bert_base", SHAPE, (2.0, 1500.0, 10.4), (4.0, 2500.0, 10.4), 2.0, 2.0, (1.5, 2.25), (20.0, 30.0))
    slow = pages.Row("squeezebert", SHAPE, (2.0, 1500.0, 10.4), (2.2, 2500.0, 10.4), 1.1, 1.1, (1.0, 1.2), (20.0, 20.0))
    said = pages.page([fast, slow], pages.Setting(2), "", (150e9, 160e9), "--all --rounds=9", ["jax 1.0"])
    assert (
        "| bert_base | 8x128 | 2.00 (1.50 to 2.25) | 4.00 | 2.00 | 20.0 | 30.0 | 0.50 | 0.38 | 1,500 | 2,500 | yes |"
        in said
    )
    assert "train_step.py --all --rounds=9`" in said and "jax 1.0" in said
    assert (
        said.rstrip().endswith("| NO |")
        and "over the 160 GFLOP/s, which a large product reaches here: 150 in XLA, 160 in PyTorch" in said
        and "on a CPU" in said
    )


def test_a_gpu_is_measured_by_its_data_sheet(pages: Any) -> None:
    """1,000 rows a second of 70 GFLOPs are 70 TFLOP/s: too little of an H100's 989, whatever the other side does."""
    row = pages.Row(
        "bert_base", (256, 128, 20), (0.256, 900.0, 10.4), (0.512, 900.0, 10.4), 2.0, 2.0, (2.0, 2.0), (70.0, 70.0)
    )
    said = pages.page([row], pages.Setting(2, gpu=True), "NVIDIA H100 80GB HBM3", (600e12, 700e12), "--all --gpu", [])
    assert "| 256x128 | 2.00 (2.00 to 2.00) | 1,000.00 | 500.00 | 70.0 | 70.0 | 0.07 | 0.04 | 900 | 900 | NO |" in said
    assert "989,000 GFLOP/s of its data sheet (700,000 GFLOP/s, which" in said and "bfloat16" in said
    unknown = pages.page([row], pages.Setting(2, gpu=True), "Another", (100e12, 90e12), "--all --gpu", [])
    assert "| 0.70 | 0.35 | 900 | 900 | yes |" in unknown and "data sheet" not in unknown


@pytest.fixture
def alone(script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The script with nothing to measure: `times` theirs take as long, None for a lost one; `seconds` ours take."""
    made = SimpleNamespace(script=script, page=tmp_path / "performance.md", times={}, seconds={}, asked=[])

    def compared(model: str, setting: Any, shape: Any, rounds: int, warmup: int) -> Any:
        made.asked.append((model, shape, setting.dtype))
        seconds, times = made.seconds.get(model, 0.01), made.times.get(model, 2.0)
        if times is None:
            raise script.sides.Lost("their_step has ended")
        return script.Row(
            model, shape, (seconds, 1.0, 1.0), (seconds * times, 1.0, 1.0), times, times, (times, times), (70.0, 80.0)
        )

    monkeypatch.setattr(script, "compare", compared)
    monkeypatch.setattr(script, "fastest", lambda setting: (1e12, 1e12))
    monkeypatch.setattr(script, "device", lambda setting: "NVIDIA H100 PCIe" if setting.gpu else "")
    monkeypatch.setattr(script, "without_gpu", lambda: "")
    monkeypatch.setattr(script.train_step_page, "version", lambda name: "1.0")
    monkeypatch.setattr(script.machine, "commit", lambda: "f00d")
    monkeypatch.setattr(script, "PAGE", made.page)
    monkeypatch.setenv("JAX_PLATFORMS", "")

    def run(*words: str) -> None:
        monkeypatch.setattr(sys, "argv", ["train_step.py", *words])
        script.main()

    made.run = run
    return made


@pytest.mark.parametrize("gpu", [False, True])
def test_every_model_and_shape_is_measured(gpu: bool, alone: Any) -> None:
    alone.run("--all", *["--gpu"] * gpu)
    text, shapes = alone.page.read_text(), ["256x128", "64x512"] if gpu else ["8x128"]
    assert all(f"| {model} | {shape} | " in text for model in alone.script.MODELS for shape in shapes)
    assert text.startswith("# Performance\n") and f"train_step.py{' --gpu' if gpu else ''} -->" in text
    assert {dtype for *_, dtype in alone.asked} == {"bfloat16" if gpu else "float32"}
    assert os.environ["JAX_PLATFORMS"] == "cpu", "what counts operations takes none of the GPU's memory"


def test_all_fails_where_one_is_slow(alone: Any) -> None:
    alone.times["electra_small"] = 1.1
    with pytest.raises(SystemExit, match=r"less than is aimed at: electra_small 8x128$"):
        alone.run("--all")


def test_all_fails_where_a_gpu_is_not_used(alone: Any) -> None:
    """256 rows of 70 GFLOPs in a second are far from 45 % of 989 TFLOP/s, however slow the other side."""
    alone.seconds["bert_base"] = 1.0
    with pytest.raises(SystemExit, match=r"less than is aimed at: bert_base 256x128, bert_base 64x512$"):
        alone.run("--all", "--gpu")


def test_rows_are_kept_and_a_lost_one_is_told(alone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone.times["mobilebert"] = None
    keep = f"--keep={tmp_path / 'rows.json'}"
    with pytest.raises(SystemExit, match=r"^mobilebert, 8x128: their_step has ended$"):
        alone.run("--all", keep)
    assert "| mobilebert |" not in alone.page.read_text() and "| bert_base | 8x128 |" in alone.page.read_text()
    alone.asked.clear()
    alone.times.clear()
    alone.run("--all", keep)
    for other in ("--rounds=9", "--warmup=3", "--threads=1"):
        with pytest.raises(SystemExit, match="rows of other threads, rounds, packages or code"):
            alone.run("--all", other, keep)
    assert "--all --rounds=5`" in alone.page.read_text()
    monkeypatch.setattr(alone.script.train_step_page, "version", lambda name: "2.0")
    with pytest.raises(SystemExit, match="rows of other threads, rounds, packages or code"):
        alone.run("--all", keep)
    assert [model for model, *_ in alone.asked] == ["mobilebert"] and "| mobilebert | 8x128 |" in alone.page.read_text()


def test_rows_of_code_that_is_not_committed_are_not_kept(
    alone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """As nothing tells one such code from another."""
    monkeypatch.setattr(alone.script.machine, "commit", lambda: "f00d+changes")
    alone.run("--all", "--warmup=3")
    assert "commit f00d+changes" in alone.page.read_text() and "--rounds=5 --warmup=3`" in alone.page.read_text()
    with pytest.raises(SystemExit):
        alone.run("--all", f"--keep={tmp_path / 'rows.json'}")
    assert "commit what has changed" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--gpu", "--batch=4"], ["--all", "--predictions=5"], ["--all", "--models=bert_base"]]
)
def test_options_without_a_meaning_are_refused(words: list[str], alone: Any, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        alone.run(*words)
    assert "leave --" in capsys.readouterr().err and not alone.asked


def test_no_gpu_is_one_sentence(alone: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(alone.script, "without_gpu", lambda: "torch 2 sees no GPU")
    with pytest.raises(SystemExit):
        alone.run("--gpu")
    assert "--gpu: torch 2 sees no GPU" in capsys.readouterr().err and not alone.asked


def test_which_memory_is_which(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Side:
        rounds = ((1.0, 1.0, 2.0, 3.0),)

        def __init__(self, make: Any, *given: Any, peak: Any) -> None:
            made.append((make.__name__, peak))

        def median(self, column: int, skip: int) -> float:
            return 1.0

    monkeypatch.setattr(script, "Side", Side)
    monkeypatch.setattr(script, "take_turns", lambda pair, batches: None)
    monkeypatch.setattr(script, "row_flops", lambda model, shape: 1e9)
    script.compare("bert_base", script.Setting(1, gpu=True), SHAPE, 1, 0)
    assert made == [("our_step", script.sides.of_jax), ("their_step", script.sides.of_torch)]


def broken() -> Any:
    sys.exit("no")


def test_a_side_that_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    sides = importlib.import_module("sides")  # by the name that a process of its own finds it under
    side = sides.Side(broken)
    with pytest.raises(sides.Lost, match="broken has ended"):
        side.step(0)
        side.step(0)
    whole = SimpleNamespace(process=SimpleNamespace(terminate=lambda: ended.append(1)), step=lambda batch: None)
    ended: list[int] = []
    with pytest.raises(sides.Lost):
        sides.take_turns([whole, sides.Side(broken)], [0, 0])
    assert ended == [1], "what the other holds is free for the next"


def doing_nothing() -> Any:
    return float


def test_the_memory_of_a_side_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    sides = importlib.import_module("sides")
    held = np.ones(2**26)  # half a gigabyte, which is this process's own
    side = sides.Side(doing_nothing)
    side.step(0)
    side.close()
    assert 0 < side.median(3, 0) < 400 < held.nbytes / 1e6


def test_threads_are_cores_and_a_gpu_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    sides, before = loaded("sides", monkeypatch), os.sched_getaffinity(0)
    monkeypatch.setenv("JAX_PLATFORMS", "")
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "")
    try:
        sides.keep_to(sides.Setting(1))
        assert len(os.sched_getaffinity(0)) == 1
    finally:
        os.sched_setaffinity(0, before)
    known = ("JAX_PLATFORMS", "XLA_PYTHON_CLIENT_PREALLOCATE")
    assert [os.environ[name] for name in known] == ["cpu", ""]
    sides.keep_to(sides.Setting(1, gpu=True))
    assert os.sched_getaffinity(0) == before and [os.environ[name] for name in known] == ["cuda", "false"]


def test_bfloat16_is_what_is_computed(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(script.sides, "keep_to", lambda setting: None)
    monkeypatch.setattr(script.sides, "our_step", lambda objective, settings: made.append(objective))
    for gpu in (False, True):
        script.our_step("bert_base", script.Setting(1, gpu), SHAPE)
    assert [each.model.encoder.layers[0].attention.query.dtype for each in made] == ["float32", "bfloat16"]
    assert script.lesson.recipe_of(*SHAPE, "bfloat16").compute.dtype == "bfloat16"


def test_operations_of_a_row(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """BERT-base's by hand: of 12 layers 12 D² + 2 L D multiply-adds a token, and of what is masked D² + D V."""
    width, length, masked = 768, 128, 20
    layers = 12 * length * (12 * width**2 + 2 * length * width)
    head = masked * (width**2 + width * script.VOCABULARY)
    assert script.row_flops("bert_base", (1, length, masked)) == 3 * 2 * (layers + head)
    everywhere = length * (width**2 + width * script.VOCABULARY)
    assert script.their_row_flops("bert_base", (1, length, masked)) == 3 * 2 * (layers + everywhere)
    monkeypatch.setattr(script.lesson, "flops", lambda *shape: 7.0)
    assert script.their_row_flops(script.LESSON, (1, length, masked)) == 7, "it has no head"
    assert script.row_flops("electra_small", (2, length, masked)) > 3 * 2 * 12 * length * 12 * 256**2
