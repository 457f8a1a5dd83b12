"""`bertzoo prune`: whole runs on a tiny BERT, resuming at any point, uses of the result, and errors."""

import dataclasses
import json
import os
import re
import shutil
import signal
import sys
from types import SimpleNamespace

import chex
import numpy as np
import pytest
import zoo
from messages import mentions, undocumented
from PIL import Image
from prunable import cuts, prune, size
from test_pretrain import error

from bertzoo.cli.main import main
from bertzoo.core import config
from bertzoo.pruning import layout
from bertzoo.pruning.structure import declare
from bertzoo.runs import load_model, trackers, warm_start
from bertzoo.runs.configs import Pretrain
from bertzoo.train import loop

pytestmark = pytest.mark.usefixtures("one_device")


@pytest.fixture(scope="module")
def finished(folder):
    run, file = folder / "run", folder / "unpruned" / "run.json"
    origin = {"path": "x", "parameters_sha256": "0", "license": "cc0-1.0"}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"from": origin}))
    assert prune(folder, run, f"--from={folder / 'unpruned'}") == 0
    return run


@pytest.mark.slow
def test_every_iteration_cuts_its_part_and_the_formats_page_names_its_files(finished, folder):
    whole = size(load_model.read_model(folder / "unpruned"))
    one, two = cuts(finished)
    assert (one["cost"]["before"], two["cost"]["before"]) == (whole, one["cost"]["after"])
    assert (one["target"], two["target"]) == (pytest.approx(0.8 * whole), pytest.approx(0.6 * whole))
    assert one["cost"]["after"] <= one["target"] and two["cost"]["after"] <= two["target"] == two["budget"]
    for iteration, found in enumerate((one, two), start=1):
        left = load_model.read_model(layout.inner_path(finished, iteration, "tune"))
        assert size(left) == found["cost"]["after"]
        assert declare(left.model, left.head).sizes == found["sizes"]["after"]
    assert undocumented(finished) == set()
    parts = {f"{number}-{name}" for number in (1, 2) for name in ("weigh", "cut.json", "tune")}
    assert undocumented(finished / "iterations") <= parts


@pytest.mark.slow
def test_the_result_is_an_ordinary_model_that_trains_on_and_exports(finished, tmp_path):
    found, last = load_model.read_model(finished), load_model.read_model(layout.inner_path(finished, 2, "tune"))
    assert (found.source["license"], found.source["language"]) == ("cc0-1.0", "en")
    assert found.model.kind == "schubert" and found.model == last.model and found.tokenizer is not None
    chex.assert_trees_all_equal(found.params, last.params)
    recipe = config.load(Pretrain, [finished / layout.RECIPE])
    assert recipe.model == found.model and [stage.steps for stage in recipe.stages] == [2]
    taken = warm_start.read_warm_start(finished, recipe)
    assert taken.params.keys() == found.params.keys()
    assert main(["convert", str(finished), str(tmp_path / "model"), "--to=bertzoo"]) == 0
    assert main(["evaluate", str(finished)]) == 0
    run, options = tmp_path / "on", ["--stages.0.steps=1", f"--from={finished}"]
    assert main(["pretrain", str(finished / layout.RECIPE), f"--run_dir={run}", *options]) == 0
    assert main(["pretrain", str(finished / layout.RECIPE), f"--run_dir={tmp_path / 'new'}"]) == 0
    assert main(["convert", str(run), str(tmp_path / "theirs"), "--to=huggingface"]) == 0


@pytest.mark.slow
def test_the_report_shows_the_whole_chain(finished, capsys, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    assert main(["report", str(run)]) == 0
    page = (run / "report.md").read_text()
    for number, name in enumerate(("1-weigh", "1-tune", "2-weigh", "2-tune")):
        assert f"| {number} | {name} | 2 |" in page
    assert "after step 8 " in page
    assert re.search(r"^\| penalty loss \| [0-9.]+ at step 6 \|", page, re.MULTILINE)  # which tuning has not
    one, two = cuts(run)
    left = [("0", one, "before"), ("1", one, "after"), ("2", two, "after")]
    for number, found, when in left:
        width, cost = found["sizes"][when]["h"], found["cost"][when]
        assert re.search(rf"^\| {number} \| {cost:,} \|.*\| {width} \|$", page, re.MULTILINE)
    image = np.asarray(Image.open(run / "layers.png").convert("RGB"))
    assert image.shape[0] > 900 and (image != 255).any(axis=-1).mean() > 0.01
    layout.cut_file(run, 1).write_text("{")
    assert mentions(error(capsys, "report", str(run)), "1-cut.json", "damaged")


@pytest.mark.parametrize("stop_after", [1, 2, 3, 4, 5, 7])  # 2 ends the first weighing
@pytest.mark.slow
def test_a_run_stopped_in_any_phase_resumes_to_the_same_state(finished, folder, tmp_path, stop_after, monkeypatch):
    run, original, done = tmp_path / "run", loop._due, []

    def due(job, step, stage_end):
        done.append(step)
        if len(done) == stop_after:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(job, step, stage_end)

    monkeypatch.setattr(loop, "_due", due)
    assert prune(folder, run, f"--from={folder / 'unpruned'}") == 3
    assert len(done) == stop_after
    assert prune(folder, run) == 0  # it knows where the model was
    assert len(done) == 8
    one, other = load_model.read_model(run), load_model.read_model(finished)
    assert one.model == other.model
    chex.assert_trees_all_equal(one.params, other.params)
    assert cuts(run) == cuts(finished)


@pytest.mark.slow
def test_a_finished_run_does_nothing_again(finished, folder, capsys, monkeypatch):
    monkeypatch.setattr(loop, "run", lambda job: pytest.fail("it trains"))
    assert prune(folder, finished) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "finished: " in line]
    # In so small a model one element of the width is a large share; the log names the unused budget.
    last = cuts(finished)[-1]
    unused = 1 - last["cost"]["after"] / last["budget"]
    assert (f" {unused:.1%} " in line) == (unused > 0.01) and unused > 0.01


@pytest.mark.slow
def test_changes_that_a_resumed_run_rejects(finished, folder, tmp_path, capsys):
    command = ["prune", str(folder / "prune.toml"), f"--run_dir={finished}"]
    said = error(capsys, *command, "--target.share=0.5", "--weigh.gamma=0.02")
    assert mentions(said, "target.share", "0.6", "->", "0.5", "weigh.gamma", "0.001", "0.02")
    other = shutil.copytree(load_model.read_model(finished).origin, tmp_path / "model")
    text = (folder / "unpruned" / "config.toml").read_text()
    said = error(capsys, "pretrain", str(folder / "unpruned.toml"), f"--run_dir={finished}")
    assert mentions(said, finished, "prune")
    command[-1] = f"--run_dir={folder / 'unpruned'}"
    assert mentions(error(capsys, *command, f"--from={other}"), folder / "unpruned", "--run_dir")
    assert (folder / "unpruned" / "config.toml").read_text() == text
    command[-1] = f"--run_dir={finished}"
    for path in (other, tmp_path / "gone"):
        assert mentions(error(capsys, *command, f"--from={path}"), path)


FLOPS = ["--target.kind=flops", "--target.share=0.5"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target.share=none", "--target.count=7168"], ("budget", "7,168")),
        (["--target.share=0.01"], ("budget", " 72 ")),
        (['--cut.dimensions=["f", "q"]'], ('"q"', "h, e, f, a, k, v")),
        (['--cut.dimensions=["e"]'], ("e (", "embedding", "kind bert")),
        (["--weigh.gamma=0"], ("gamma = 0.0", "nothing")),
        (["--weigh.gamma=inf"], ("gamma = inf", "everything")),
        ([*FLOPS, "--target.length=0"], ("target.length = 0 ", "model.max_positions")),
        ([*FLOPS, "--target.length=4096"], ("target.length = 4096 ", "model.max_positions")),
        (["--target.kind=latency"], ('kind = "latency"', "table", "`bertzoo benchmark CONFIG")),
        (["--target.kind=latency", "--target.table=none.json", "--target.share=0.5"], ("none.json", "read")),
        (["--target.count=9"], ("count = 9", "share = 0.6")),
        (["--target.share=1.5"], ("share = 1.5", 0, " 1")),
        (["--cut.iterations=0"], ("iterations = 0", " 1")),
        (["--cut.choice=uniform", "--cut.multiples.f=8"], ('choice = "uniform"', "multiples")),
        (['--cut.dimensions=["h"]', "--cut.multiples.f=8"], ("multiples.f", "dimensions = ['h']")),
        (["--cut.multiples.a=3"], ("cut.multiples.a = 3", " 2 ", "smaller")),
        (["--cut.multiples.a=2"], ("cut.multiples.a = 2", " 2 ", "smaller")),
        (["--cut.multiples.e=8"], ("cut.multiples.e = 8", "not cut", "remove")),
        (['--cut.dimensions=["f", "f"]'], ("dimensions = ['f', 'f']", '"f"', "twice")),
        (["--target.share=0.04", "--cut.multiples.f=16"], ("budget", "below", "dimensions", "multiples")),
        (["--cut.multiples.f=0"], ("f = 0", "multiple")),
        (["--tuning.0.carry=all"], ('tuning.0.carry="all"',)),
        (["--tuning.0.max_length=40"], ("tuning.0.max_length = 40", "model.max_positions = 32")),
        (["--weigh.max_length=40"], ("weigh.max_length = 40", "model.max_positions = 32")),
        (["--objective.kind=replaced", '--cut.dimensions=["h"]'], ("h cannot", 'objective.kind = "replaced"')),
        (["--model.layers=2"], ("model.layers", " 1 ", " 2 ")),
        (["--objective.sentence=sop"], ("sentence_head", "objective")),
        (["--mesh.fsdp=8", "--mesh.data=1"], ("data=1", "fsdp=8")),
    ],
)  # fmt: skip
def test_impossible_options_raise_one_error(options, message, folder, tmp_path, capsys):
    run = tmp_path / "run"
    capsys.readouterr()
    assert prune(folder, run, f"--from={folder / 'unpruned'}", *options) == 2
    said = capsys.readouterr().err
    assert said.startswith("bertzoo: ") and said.count("\n") == 1, said
    assert mentions(said, *message)
    assert options != ["--target.share=0.01"] or re.search(r"\b3[0-9][0-9]\b", said), said  # the least
    assert not run.exists()


@pytest.mark.slow
def test_every_training_is_one_run_of_a_tracker(folder, tmp_path, monkeypatch):
    runs: list[list[int]] = []

    def init(project: str, name: str, **options) -> SimpleNamespace:
        runs.append(steps := [])
        return SimpleNamespace(log=lambda metrics, step: steps.append(step), finish=lambda: steps.append(-1))

    monkeypatch.setitem(sys.modules, "trackio", SimpleNamespace(init=init))
    monkeypatch.setattr(trackers, "find_spec", lambda name: True)
    assert prune(folder, tmp_path / "run", f"--from={folder / 'unpruned'}", '--run.trackers=["trackio"]') == 0
    assert runs == [[1, 2, -1]] * 4


@pytest.mark.slow
def test_a_pruned_model_takes_several_heads_and_a_smaller_vocabulary(finished, tmp_path, capsys):
    tokenizer = load_model.read_model(finished).tokenizer
    assert tokenizer is not None
    words = [word for word in map(tokenizer.token, range(tokenizer.vocab_size)) if word.isalpha() and len(word) > 2]
    for name, first in (("train", words[:8]), ("dev", words[2:8])):
        rows = [
            {"text": f"{a} {b}", "label": a, "spans": [{"start": 0, "end": len(a), "label": "X"}]}
            for a, b in zip(first, reversed(first), strict=True)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    heads, cut, dev = tmp_path / "heads", tmp_path / "cut", tmp_path / "dev.jsonl"
    options = ['--own.heads=[{name="first"},{name="places",kind="entities"}]', "--max_length=16", "--seeds=1"]
    paths = [f"--data_dir={tmp_path}", f"--from={finished}", f"--run_dir={heads}"]
    assert main(["finetune", "finetune", "--task=own", *options, *paths]) == 0
    assert main(["prune", "vocabulary", str(heads), str(cut), f"--input={tmp_path / 'train.jsonl'}"]) == 0
    assert load_model.read_model(cut).model.vocab_size < load_model.read_model(heads).model.vocab_size
    capsys.readouterr()
    for model in (heads, cut):
        assert main(["predict", str(model), f"--input={dev}", "--json"]) == 0
    lines = [json.loads(line)["heads"] for line in capsys.readouterr().out.splitlines()]
    for before, after in zip(lines[:6], lines[6:], strict=True):
        assert before["first"]["probabilities"] == pytest.approx(after["first"]["probabilities"], abs=1e-5)
        assert [entity["text"] for entity in before["places"]["entities"]] == [
            entity["text"] for entity in after["places"]["entities"]
        ]


def test_a_model_with_heads_of_tasks_cannot_be_pruned(folder, tmp_path, capsys):
    """Pruning scores elements by the loss of pretraining."""
    whole, (_, head) = load_model.read_model(folder / "unpruned"), zoo.CASES["bert-heads"]
    drawn = zoo.pretrained(whole.model, head)
    load_model.write_model(dataclasses.replace(drawn, tokenizer=whole.tokenizer), tmp_path)
    command = ["prune", str(folder / "prune.toml"), f"--from={tmp_path}", f"--run_dir={tmp_path / 'run'}"]
    assert mentions(error(capsys, *command), tmp_path, "masked_head", "objective")


def test_the_pruned_model_must_be_named_and_in_another_directory(folder, tmp_path, capsys):
    command, run = ["prune", str(folder / "prune.toml")], tmp_path / "run"
    assert mentions(error(capsys, *command, f"--run_dir={run}"), "--from", "missing")
    unpruned = folder / "unpruned"
    assert mentions(error(capsys, *command, f"--run_dir={unpruned}", f"--from={unpruned}"), "pruned model", "directory")
    said = error(capsys, *command, "--run_dir=gs://bucket/run", f"--from={unpruned}")
    assert mentions(said, "gs://bucket/run", "URL")
    assert not run.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--weigh.gamma=1e-6", "--weigh.learning_rate=1e-4"], ("weigh.gamma = 1e-06", "too small", "larger")),
        (["--weigh.gamma=100", "--weigh.learning_rate=0.5"], ("weigh.gamma = 100", "too large", "smaller")),
        *(
            (
                ["--weigh.gamma=1e4", "--weigh.learning_rate=0.05", "--weigh.steps=10", "--cut.iterations=1", *more],
                ("weigh.gamma = 10000", "does not separate", "smaller"),
            )
            for more in ([], ["--weigh.penalty=l0", "--weigh.learning_rate=0.15"])
        ),
    ],
)
@pytest.mark.slow
def test_a_penalty_that_does_not_discriminate(options, message, folder, tmp_path, capsys):
    run = tmp_path / "run"
    command = ["prune", str(folder / "prune.toml"), f"--from={folder / 'unpruned'}", f"--run_dir={run}"]
    said = error(capsys, *command, *options)
    assert mentions(said, *message, "another run") and not layout.cut_files(run)


@pytest.mark.slow
def test_an_unfinished_run_is_not_a_model(folder, finished, tmp_path, capsys):
    run = shutil.copytree(finished, tmp_path / "run")
    shutil.rmtree(run / layout.MODEL)
    said = error(capsys, "convert", str(run), str(tmp_path / "model"), "--to=bertzoo")
    assert mentions(said, run / layout.MODEL, "bertzoo prune")
    assert prune(folder, run) == 0 and (run / layout.MODEL).is_dir()
