"""A benchmark that has a target says by its exit code whether it was reached."""

import dataclasses
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import tiny
from scripts import loaded
from zoo import LAYERS, SIZES, inputs, pretrained

from bertzoo import config
from bertzoo.cli import main as bertzoo
from bertzoo.convert import directory
from bertzoo.kinds import shipped
from bertzoo.models import Bert
from bertzoo.models.tasks import NoHead
from bertzoo.recipe import Pretrain
from bertzoo.transfer import Transfer

sys.path.append(str(Path(__file__).parent / "finetune"))
import planted


@pytest.fixture
def benchmark(monkeypatch):
    """benchmarks/input.py, which leaves this process its cores and its devices."""
    module = loaded("input", monkeypatch)
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: None, raising=False)
    monkeypatch.setattr(jax.config, "update", lambda name, value: None)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    return module


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    text, config = tiny.write_text(folder / "text.txt"), tiny.write_config(folder, "nowhere")
    assert bertzoo(["tokenize", str(text), str(folder / "corpus"), f"--config={config}", "--workers=1"]) == 0
    return folder / "corpus"


@pytest.mark.parametrize(("speed", "code"), [(0.0, 0), (1e15, 1)])
def test_a_target_of_the_pipeline(benchmark, corpus, monkeypatch, capsys, speed, code):
    """What is measured is real, what it must reach is easy or out of reach."""
    own = benchmark.measure

    def measure(name, unit, target, amount, work, repeats):
        return own(name, unit, target and speed, amount, work, 1)

    monkeypatch.setattr(benchmark, "measure", measure)
    assert benchmark.main([f"--corpus={corpus}"]) == code
    said = capsys.readouterr().out
    assert ("NO" in said) == bool(code) and "batches of" in said


@pytest.mark.slow  # two runs
@pytest.mark.parametrize(("share", "code"), [(1.0, 0), (0.0, 1)])
def test_the_target_of_a_step(benchmark, corpus, monkeypatch, tmp_path, capsys, share, code):
    """A step waits less than all of its time, and never less than none of it."""
    monkeypatch.setattr(benchmark, "WAITING", share)
    config = tiny.write_config(tmp_path, corpus)
    options = [f"--corpus={corpus}", "--train", f"--config={config}", "--steps=2"]
    assert benchmark.main(options) == code
    assert capsys.readouterr().out.rstrip().endswith("| NO |" if code else "| yes |")


def test_a_section_takes_the_place_of_the_one_before(monkeypatch, tmp_path):
    pages, page = loaded("pages", monkeypatch), tmp_path / "results.md"
    for script, text in (("a.py", "first"), ("b.py", "other"), ("a.py", "second")):
        pages.write_section(script, text, page)
    assert page.read_text().split() == [
        *("#", "Results", "<!--", "benchmarks/a.py", "-->", "second", "<!--", "end", "-->"),
        *("<!--", "benchmarks/b.py", "-->", "other", "<!--", "end", "-->"),
    ]


@pytest.mark.parametrize(("after", "complaint"), [(41.5, None), (39.0, "F1 is 7.25 untrained and 39.00 trained")])
def test_the_page_of_questions_has_both_runs_and_a_floor(monkeypatch, after, complaint):
    script, written = loaded("squad", monkeypatch), []

    def results(name, model, data, runs):
        f1, learnt = {"untrained": (7.25, 16), "trained": (after, 6000)}[name]
        scores = {"dev": {"exact_match": f1 / 2, "f1": f1}}
        model = {"kind": "bert", "parameters": 22_600_000}
        return {"examples": {"train": learnt, "dev": 1489}, "median": scores, "model": model}

    monkeypatch.setattr(script, "results", results)
    monkeypatch.setattr(script, "write_section", lambda name, text: written.append((name, text)))
    monkeypatch.setattr(sys, "argv", ["squad.py", "--model=models/small", "--data=files/train-v1.1.json"])
    if complaint:
        with pytest.raises(SystemExit, match=complaint):
            script.main()
    else:
        script.main()
    ((name, text),) = written
    assert name == "squad.py" and "| untrained | 16 | 3.62 | 7.25 |" in text and f"| {after:.2f} |" in text
    assert "--from=small --data_dir=train-v1.1.json" in text and "bert, 22.6 M parameters" in text


@pytest.fixture
def knowledge(monkeypatch):
    """benchmarks/knowledge.py, which begins no run."""
    return loaded("knowledge", monkeypatch)


def test_the_gates_of_knowledge(knowledge):
    """Nats below the unigram entropy, and nats that a teacher's attention is worth, as docs/results.md has them."""
    assert (knowledge.LEFT, knowledge.ATTENDS) == (0.3, 0.05)


@pytest.mark.parametrize(("silent", "complaint"), [(3.06, None), (3.04, r"0-teacher is worth 0\.040 nats, not 0\.05")])
def test_a_teacher_must_attend_and_every_model_must_leave_the_unigrams(
    knowledge, monkeypatch, tmp_path, silent, complaint
):
    asked = []

    def bertzoo(*words):
        asked.append(words)
        (tmp_path / "0-teacher").mkdir(exist_ok=True)
        return json.dumps({"mlm_loss": 3.0}) if words[0] == "evaluate" else ""

    monkeypatch.setattr(knowledge, "bertzoo", bertzoo)
    monkeypatch.setattr(knowledge, "silenced", lambda run: silent)
    for _ in range(2):  # the second time the run is asked again, which is done, and its figures are kept
        if complaint:
            with pytest.raises(SystemExit, match=complaint):
                knowledge.teacher(0, tmp_path, None)
        else:
            assert knowledge.teacher(0, tmp_path, None) == {"mlm_loss": 3.0, "silenced": silent}
    assert [words[0] for words in asked] == ["pretrain", "evaluate", "pretrain"] and "--below_unigram=0.3" in asked[1]


def test_the_table_of_knowledge(knowledge):
    losses = {"teacher": (2.0, 2.5, 2.25), "PD": (3.0, 3.5, 4.0)}
    found = {
        name: [{"mlm_loss": one, "mlm_hidden_loss": one + 1, "silenced": one + 0.1 * n} for n, one in enumerate(three)]
        for name, three in losses.items()
    }
    head, rule, *lines = knowledge.table(found, ["PD", "teacher"]).splitlines()
    assert head == ("| model | MLM loss, median | each seed | of hidden tokens, median | attention is worth, median |")
    assert rule == "|---|---|---|---|---|"
    assert lines == [
        "| PD | 3.500 | 3.000, 3.500, 4.000 | 4.500 | 0.100 |",
        "| teacher | 2.250 | 2.000, 2.500, 2.250 | 3.250 | 0.100 |",
    ]
    for name, scores in {"teacher": (80, 90, 85), "PD": (70, 71, 75)}.items():
        for one, score in zip(found[name], scores, strict=True):
            one |= {"sst2": score, "stsb": score / 2}
    head, _, *lines = knowledge.table(found, ["PD", "teacher"]).splitlines()
    assert head.endswith("| SST-2 accuracy, median (each) | STS-B spearman, median (each) |")
    assert lines[0].endswith("| 0.100 | 71.0 (70.0, 71.0, 75.0) | 35.5 (35.0, 35.5, 37.5) |")
    assert lines[1].endswith("| 0.100 | 85.0 (80.0, 90.0, 85.0) | 42.5 (40.0, 45.0, 42.5) |")


def test_a_bare_student_is_the_taught_one_without_its_teacher(knowledge, tmp_path):
    """Only the teacher, what comes of it, and the stages of transfer are missing."""
    options = [
        *knowledge.sized("model", {"layers": 3, "bottleneck_size": 16}), *knowledge.sized("teacher", {"layers": 3}),
        "--model.dropout=0.3", "--optimizer.learning_rate=0.5", "--transfer.kind=nothing", "--distillation.0.steps=7",
    ]  # fmt: skip
    assert knowledge.bare(options, tmp_path / "bare.toml") == ["pretrain", str(tmp_path / "bare.toml")]
    made = config.load(Pretrain, [tmp_path / "bare.toml"])
    taught = config.load(Transfer, ["demo_transfer"], [tuple(option[2:].split("=", 1)) for option in options])
    assert (made.model.layers, made.model.bottleneck_size, made.optimizer.learning_rate) == (3, 16, 0.5)
    assert taught.model.dropout == 0.3
    assert made.model == dataclasses.replace(taught.model, dropout=0.0, attention_dropout=0.0)
    assert made.stages == taught.stages and [stage.steps for stage in made.stages] == [7]
    for name in ("seed", "objective", "data", "optimizer", "compute", "mesh", "run"):
        assert getattr(made, name) == getattr(taught, name), name


def test_options_of_one_task_of_glue_are_no_others(monkeypatch):
    glue = loaded("glue", monkeypatch)
    more = ["--epochs=2", "--cola.train_rows=4000", "--mrpc.train_rows=2000"]
    words = glue.words_of("cola", "glue", 5, more)
    assert words[-2:] == ["--epochs=2", "--train_rows=4000"] and not [word for word in words if "mrpc" in word]


def test_a_shallower_student_is_some_layers_of_its_teacher(monkeypatch, tmp_path):
    script = loaded("distillation", monkeypatch)
    model, head = Bert(**SIZES, **LAYERS | {"layers": 4}), NoHead()
    whole = pretrained(model, head)
    (tmp_path / "teacher").mkdir()
    directory.write(whole, tmp_path / "teacher")
    made = directory.read(script.shallower(tmp_path / "teacher", [2, 4], tmp_path / "runs" / "student"))
    ids, segments, mask = inputs()
    module, params = whole.module()
    small, theirs = made.module()
    embedded = module.apply({"params": params}, ids, segments, mask).hidden_states[0]
    for layer in (1, 3):
        embedded, _ = module.encoder.layers[layer].apply(
            {"params": params["encoder"][f"layers_{layer}"]}, embedded, mask, False
        )
    got = small.apply({"params": theirs}, ids, segments, mask)
    assert made.model.layers == 2
    np.testing.assert_allclose(got.hidden_states[-1], embedded, rtol=1e-6, atol=1e-6)
    with pytest.raises(SystemExit, match="has the layers 1 to 4"):
        script.shallower(tmp_path / "teacher", [3, 5], tmp_path / "other")


def test_options_of_the_teacher_are_not_the_students(monkeypatch):
    script = loaded("distillation", monkeypatch)
    args = SimpleNamespace(task="sst2", data="glue", teacher="big", student="small", seeds=2, runs=Path("runs"))
    made = script.commands(args, ["--epochs=2", "--train_rows=30", "--teacher.train_rows=90"])
    assert made["teacher"][-3:] == ["--train_rows=90", "--from=big", "--seeds=1"]
    assert all("--train_rows=30" in words and "--train_rows=90" not in words for words in list(made.values())[1:])
    run = {"model": {"kind": "bert", "parameters": 2e6}, "examples": {"train": 30}, "seeds": [{"collapsed": False}] * 2}
    run |= {what: {"dev": {"accuracy": score}} for what, score in (("min", 50.0), ("median", 60.0), ("max", 70.0))}
    found = {"teacher": run | {"examples": {"train": 90}}, **{f"alpha_{alpha}": run for alpha in script.ALPHAS}}
    found["alpha_0.0"] = run | {"seeds": [{"collapsed": True}, {"collapsed": False}]}
    args.student_layers = [1, 3]
    text = script.section(found, args, ["--epochs=2"])
    assert "| teacher | 90 | 2 | 60.00 (50.00 to 70.00) |" in text and "begun as its layers 1, 3," in text
    assert "| student, α = 0; 1 collapsed to one class | 30 | 2 | 60.00 (50.00 to 70.00) |" in text
    assert "--teacher=big --student_layers=1,3 --seeds=2 --epochs=2" in text


def test_an_option_of_our_side_alone_is_refused_in_the_comparison_on_glue(monkeypatch):
    glue = loaded("glue", monkeypatch)
    words = glue.words_of("cola", "glue", 5, ["--layer_decay=0.8"])
    with pytest.raises(SystemExit, match="--layer_decay is an option that transformers"):
        glue.Theirs(words, "nowhere")


class Timed:
    """A side that takes a second for whatever it is given."""

    def __init__(self, *arguments):
        self.rounds = []

    def step(self, batch):
        self.rounds.append((1.0, 1.0, 0.0, 0.0))

    def close(self):
        pass

    def median(self, column, skip):
        return 1.0


@pytest.mark.parametrize(("steps", "sentences"), [((1.0, 1.2), (2.0, 2.5)), ((0.99, 1.2), (1.99, 2.5))])
def test_the_targets_of_fine_tuning(monkeypatch, tmp_path, capsys, steps, sentences):
    script = loaded("finetune", monkeypatch)
    planted.fill(tmp_path)
    lines = ["sentence\tlabel", *(f"{word} {other}\t1" for word in planted.WORDS for other in planted.WORDS)]
    (tmp_path / "train.tsv").write_text("\n".join(lines) + "\n")
    options = SimpleNamespace(
        models=["bert_base", "squeezebert"], batch=2, length=24, threads=1, rounds=1, steps=2,
        model=str(tmp_path / "model"), sst2=str(tmp_path),
    )  # fmt: skip
    monkeypatch.setattr(script, "Side", Timed)
    monkeypatch.setattr(script, "take_turns", lambda sides, batches: None)
    # One column after another of each model; then in few lengths beside themselves, beside 24 of either side, of which
    # the result asks, and beside the longest of a batch, of which it does not.
    found = iter([steps[1], 1.0, steps[0], 1.0])
    monkeypatch.setattr(script, "ratio", lambda *given: next(found))
    assert script.steps(options) == (steps[0] >= 1)
    said = {0: 1.0, 1: sentences[1], 2: sentences[0], 3: 0.1}
    sides = []
    monkeypatch.setattr(script, "Side", lambda *given: sides.append(Timed(*given)) or sides[-1])
    monkeypatch.setattr(script, "ratio", lambda first, side, *given: said[sides.index(side)])
    assert script.sentences(options) == (sentences[0] >= 2)
    assert "rows of 24" in capsys.readouterr().out


def test_shapes_are_measured_by_one_command(monkeypatch, tmp_path):
    """All shapes of the paper beside BERT-ℓ; ratios are those of rounds."""
    script = loaded("shapes", monkeypatch)
    assert set(script.MODELS) <= set(shipped(Pretrain)) and len(script.SHAPES) == 7
    asked, written = [], {}

    def row(name, slow):
        times = [[slow * drift] * 3 for drift in (100.0, 200.0, 100.0)]
        sizes = {"parameters": int(slow * 1e8), "flops": 2e10, "file_bytes": 4e8}
        return {"model": name, "median_ms": 100 * slow, "rounds_ms": times, "version": "2", "length": 128, **sizes}

    def run(command, **_):
        asked.append(command)
        rows = [row("bert_base", 1.0), row("bert_6l", 0.5), row("schubert_66m", 0.6)]
        return SimpleNamespace(stdout=json.dumps({"rows": rows}))

    monkeypatch.setattr(script.subprocess, "run", run)
    monkeypatch.setattr(script, "write_section", lambda name, text: written.update({name: text}))
    monkeypatch.setattr(sys, "argv", ["shapes.py", "--runs=8"])
    script.main()
    assert set(script.MODELS) < set(asked[0]) and "--runs=8" in asked[0]
    lines = [line for line in written["shapes.py"].splitlines() if line.startswith(("| bert", "| schu"))]
    assert [line.split(" | ")[-1] for line in lines] == ["1.000 |", "0.600 |", "0.500 |"]
