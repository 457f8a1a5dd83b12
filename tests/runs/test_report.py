"""`bertzoo report`: which lines of metrics.jsonl count, and that the page, the curves and the summary show them."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from messages import mentioning, mentions
from PIL import Image

from bertzoo.cli import evaluate
from bertzoo.cli import main as cli
from bertzoo.core.errors import UserError
from bertzoo.runs import report
from bertzoo.train import progress

CONFIG = """\
[model]
kind = "squeezebert"
layers = 4
[[stages]]
steps = 600
batch_size = 32
max_length = 64
[[stages]]
steps = 400
batch_size = 8
max_length = 128
"""


def train(step: int, loss: float, stage: int = 0, **more: object) -> dict:
    terms = {"loss": loss + 0.7, "mlm_loss": loss, "mlm_accuracy": 1 / (1 + loss), "sop_loss": 0.7, "sop_accuracy": 0.5}
    speed = {"examples_per_second": 100.0 + stage, "tokens_per_second": 6400.0, "flops_per_second": 2.5e10, "mfu": None}
    return {"step": step, "stage": stage, "split": "train", **terms, **speed, "memory_bytes": 2**30, **more}


def heldout(step: int, loss: float, stage: int = 0) -> dict:
    terms = {"loss": loss + 0.7, "mlm_loss": loss, "mlm_accuracy": 1 / (1 + loss)}
    return {"step": step, "stage": stage, "split": "heldout", **terms}


def write_run(folder: Path, lines: list[dict], tail: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(CONFIG)
    (folder / "run.json").write_text(json.dumps({"version": "0.1.0", "devices": 2}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + tail)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    loss = {step: 3 + 6 * math.exp(-step / 200) for step in range(10, 1001, 10)}
    lines = [train(s, v + rng.normal(0, 0.1), int(s > 600)) for s, v in loss.items() if s <= 350]
    lines += [{"event": "stopped", "step": 350}, {"event": "resumed", "step": 300}]
    lines += [train(s, v + rng.normal(0, 0.1), int(s > 600)) for s, v in loss.items() if s > 300]
    lines += [heldout(s, loss[s] + 0.1) for s in range(100, 1001, 100)] + [{"event": "finished", "step": 1000}]
    return write_run(tmp_path / "first", lines)


def test_the_last_line_of_a_step_counts_unless_it_is_torn(tmp_path: Path) -> None:
    lines = [train(1, 9.0), heldout(1, 8.0), train(2, 8.0), train(2, 7.0), heldout(1, 7.5)]
    got = report.read_run(write_run(tmp_path, lines, tail='{"step": 3, "spl')).history
    assert [(line["step"], line["mlm_loss"]) for line in got.train] == [(1, 9.0), (2, 7.0)]
    assert [line["mlm_loss"] for line in got.heldout] == [7.5]


def test_a_resume_undoes_the_steps_after_it(tmp_path: Path) -> None:
    lines = [train(s, 9.0 - s) for s in (1, 2, 3)] + [heldout(3, 6.0), {"event": "resumed", "step": 1}, train(2, 5.0)]
    got = report.read_run(write_run(tmp_path, lines)).history
    assert [line["step"] for line in got.train] == [1, 2]
    assert got.heldout == []
    assert [event["event"] for event in got.events] == ["resumed"]


def test_wall_time_over_restarts(tmp_path: Path) -> None:
    """20 s of steps and 30 s of the rest, 15 s without a process or for lost steps, then 2 s of restoring and 8 s."""
    zeros = dict.fromkeys((f"{name}_seconds" for name in progress.SPENT), 0.0)
    first = zeros | {"started": 1000.0, "restoring_seconds": 3.0, "compiling_seconds": 12.0, "saving_seconds": 15.0}
    second = zeros | {"started": 1065.0, "restoring_seconds": 2.0, "input_seconds": 1.0}
    lines = [train(1, 9.0) | first | {"elapsed_seconds": 31.0}, train(2, 8.0) | first | {"elapsed_seconds": 50.0}]
    lines += [train(3, 8.0) | second | {"elapsed_seconds": 10.0}]
    lines += [train(4, 8.0) | {"started": None, "elapsed_seconds": 3.0}, train(5, 8.0) | {"started": 1080.0}]  # damaged
    run = report.read_run(write_run(tmp_path, lines))
    spent = report.spent_seconds(run)
    assert spent == {
        **dict.fromkeys(progress.SPENT, 0.0),
        **{"steps": 27.0, "restoring": 3.0, "compiling": 12.0, "saving": 15.0, "input": 1.0, "restarts": 17.0},
    }
    assert sum(spent.values()) == 1065 + 10 - 1000
    assert report.time_shares(run)[0].split()[:3] == ["steps", "36.0%", "27s"]
    assert report.time_shares(report.read_run(write_run(tmp_path, [train(1, 9.0)]))) == []


def test_a_broken_line_in_the_middle_and_a_run_without_a_step_raise(tmp_path: Path) -> None:
    run = write_run(tmp_path, [train(1, 9.0)], tail="garbage\n" + json.dumps(train(2, 8.0)) + "\n")
    with pytest.raises(UserError, match=mentioning("metrics.jsonl", "line 2")):
        report.read_run(run)
    with pytest.raises(UserError, match=mentioning("training")):
        report.read_run(write_run(tmp_path, []))


def test_a_line_that_is_not_finite_is_not_drawn(tmp_path: Path) -> None:
    lines = [train(1, 9.0), heldout(1, 8.0), train(2, math.nan), heldout(2, math.nan)]
    lines += [{"event": "non_finite", "step": 2}]
    got = report.read_run(write_run(tmp_path, lines))
    assert report.series(got.history.train, "mlm_loss") == ([1], [9.0])
    assert report.best(got.history.heldout, "mlm_loss") == (1, 8.0)
    assert mentions(report.page(got), "step 2")
    assert "MLM loss 8.0000" in report.summary(got.history)
    report.draw_curves(got)


@pytest.mark.parametrize("name", ["metrics.jsonl", "config.toml"])
def test_a_directory_that_is_no_run(run: Path, name: str, capsys: pytest.CaptureFixture) -> None:
    (run / name).unlink()
    assert cli.main(["report", str(run)]) == 2
    error = capsys.readouterr().err
    assert mentions(error, run, name) and error.count("\n") == 1
    assert cli.main(["report", str(run / "nowhere")]) == 2


def test_the_page_has_the_final_and_the_best_figures(tmp_path: Path) -> None:
    lines = [train(10, 5.0), train(650, 3.2, 1), train(700, 3.0, 1)]
    lines += [heldout(10, 4.0), heldout(650, 4.25, 1), heldout(700, 4.5, 1), {"event": "finished", "step": 700}]
    page = report.page(report.read_run(write_run(tmp_path / "named", lines)))
    assert page.startswith("# named\n")
    assert "| MLM loss | 3.0000 | 4.5000 | 4.2500 at step 650 |" in page
    assert "| MLM accuracy | 25.0 % | 18.2 % | 19.0 % at step 650 |" in page
    assert "| 0 | 600 | 32 | 64 |" in page and "| 1 | 400 | 8 | 128 |" in page
    assert "kind squeezebert, layers 4" in page and "version: 0.1.0" in page
    assert "| 1 | 101.0 | 6,400.0 | 25.0 G | 1.00 GiB |" in page
    assert mentions(page, "step 700")


def test_a_single_term_is_the_loss_itself(tmp_path: Path) -> None:
    lines = [{k: v for k, v in train(s, 5.0).items() if not k.startswith("sop")} for s in (1, 2)]
    assert report.keys(report.read_run(write_run(tmp_path, lines)).history, "loss") == ["mlm_loss"]
    lines = [line | {"mlm_hidden_loss": 6.0} for line in lines]
    run = report.read_run(write_run(tmp_path, lines))
    assert report.keys(run.history, "loss") == ["mlm_loss", "mlm_hidden_loss"]
    assert mentions(report.page(run), "MLM", "6.0000")


def test_the_summary_shows_the_heldout_values(run: Path, tmp_path: Path) -> None:
    lines = report.summary(report.read_run(run).history).splitlines()
    assert len(lines) == 8 and mentions(lines[0], "step 100:")
    assert "held-out, step 1000:" in lines[-1] and "MLM accuracy 24.2 %" in lines[-1]
    (line,) = report.summary(report.read_run(write_run(tmp_path / "new", [train(1, 9.0)])).history).splitlines()
    assert mentions(line, "training", "step 1:", "MLM loss 9.0000")


def ink(path: Path, colour: str) -> int:
    """How many pixels of the picture have exactly this colour."""
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    return int((np.asarray(Image.open(path).convert("RGB")) == rgb).all(-1).sum())


def test_the_verb_writes_curves_with_both_splits(run: Path, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["report", str(run)]) == 0
    assert str(run / "loss.png") in capsys.readouterr().out
    for name in ("loss.png", "accuracy.png"):
        assert ink(run / name, report.TRAIN) > 200
        assert ink(run / name, report.HELDOUT) > 200
    assert "![loss](loss.png)" in (run / "report.md").read_text()


def test_stage_boundaries_and_resumes_are_marked(run: Path) -> None:
    axes = Figure().subplots()
    report._panel(axes, report.read_run(run), "mlm_loss")
    marks = {line.get_label(): np.asarray(line.get_xdata())[0] for line in axes.lines}
    assert marks["next stage"] == 600 and marks["resumed"] == 300
    assert report.read_run(write_run(run, [train(500, 3.0)])).boundaries() == []


def test_stages_that_the_config_does_not_list_are_those_of_the_events(run: Path) -> None:
    """As for a transfer; the stage that has begun twice has its last length."""
    stages = [{"event": "stage", "step": 0, "stage": i, "steps": steps} for i, steps in ((0, 5), (0, 3), (1, 4))]
    write_run(run, [*stages, train(7, 3.0)])
    (run / "config.toml").write_text(CONFIG.partition("[[stages]]")[0])
    got = report.read_run(run)
    assert got.stages() == [{"steps": 3}, {"steps": 4}] and got.boundaries() == [3]


RTD = {"mlm_loss": 5.0, "rtd_loss": 0.3, "rtd_recall": 0.0, "rtd_auc": 0.5}


def test_a_metric_that_the_last_line_lacks_has_its_step(tmp_path: Path) -> None:
    lines = [{"step": s, "split": split, "loss": 20.0, **RTD} for s in (1, 2) for split in ("train", "heldout")]
    lines[0]["rtd_precision"] = lines[3]["rtd_precision"] = 0.25
    page = report.page(report.read_run(write_run(tmp_path, lines)))
    assert "| RTD precision | 25.0 % at step 1 | 25.0 % | 25.0 % at step 2 |" in page


def test_a_missing_matplotlib_is_named(tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch) -> None:
    run = write_run(tmp_path, [train(1, 5.0)])
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    drawing = ["inspect", "attention", str(run), "--text=a", f"--out={tmp_path / 'a.png'}"]
    for command in (["report", str(run)], drawing):
        assert cli.main(command) == 2 and mentions(capsys.readouterr().err, "matplotlib", "'.[plots]'")


def test_the_generators_figures_are_named_as_its_own(tmp_path: Path) -> None:
    run = report.read_run(write_run(tmp_path, [{"step": 1, "split": "heldout", "loss": 20.0, **RTD}, train(1, 5.0)]))
    assert mentions(report.page(run), "MLM", "5.0000") and "| RTD loss |" in report.page(run)
    assert mentions(report.summary(run.history), "MLM", "loss 5.0000", "RTD", "loss 0.3000")
    assert report.title("mlm_hidden_loss", RTD) == "generator MLM loss of hidden tokens"
    assert report.title("mlm_loss", ["mlm_loss", "sop_loss"]) == report.title("mlm_loss") == "MLM loss"


def test_evaluate_shows_the_generators_and_the_discriminators_metrics(capsys: pytest.CaptureFixture) -> None:
    figures = {"step": 1, "rows": 2, "max_length": 8, "loss": 20.0, **RTD, "rtd_accuracy": 0.9}
    evaluate.show_metrics(figures | {"unigram_entropy": 6.0, "unigram_cross_entropy": 6.1})
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "RTD recall 0.0 %" in shown and "RTD AUC 0.500" in shown
    assert "generator MLM loss below the entropy 1.000 nats" in shown
    evaluate.show_metrics(
        {"step": 1, "rows": 2, "max_length": 8, "mlm_loss": 5.0, "unigram_entropy": 6, "unigram_cross_entropy": 6}
    )
    assert "RTD" not in capsys.readouterr().out
