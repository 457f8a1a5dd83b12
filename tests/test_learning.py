"""benchmarks/learning.py: one budget for all of configs/learning, and what is written of the runs."""

import dataclasses
import itertools
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from scripts import loaded

from bertzoo import config, kinds, report
from bertzoo.finetune.settings import Finetune

BUDGET = 7e12  # training FLOPs


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    return loaded("learning", monkeypatch)


def recipe(arm: Any, *more: str) -> Any:
    pairs = [tuple(option.removeprefix("--").split("=", 1)) for option in (*arm.options, *more)]
    return config.load(kinds.recipe_class(*arm.configs), list(arm.configs), pairs)


@pytest.mark.slow
def test_all_have_one_budget_and_one_size(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    arms = {arm.name: recipe(arm) for arm in script.ARMS}
    untrained = arms.pop("untrained")
    for name, each in arms.items():
        assert script.until(script.spent(each), 10**9) == pytest.approx(BUDGET, rel=0.005), name
        assert (each.model.layers, each.model.hidden_size, each.model.vocab_size) == (4, 64, 300), name
        assert each.data == arms["bert"].data and each.optimizer == arms["bert"].optimizer, name
        assert [stage.max_length for stage in each.stages][-2:] == [32, 128], name
    assert untrained.optimizer.learning_rate == 0
    taught = arms["mobilebert_transfer"]
    assert taught.model == arms["mobilebert"].model and taught.teacher == arms["ib_bert"].model
    files = {Path(file).name for arm in script.ARMS for file in arm.configs}
    assert files == {path.name for path in loaded("learning_arms", monkeypatch).FOLDER.glob("*.toml")}, (
        "every file is a run's"
    )


def test_the_shares_of_the_cores_are_apart(script: Any) -> None:
    work = script.Work(2)
    if len(os.sched_getaffinity(0)) > 1:
        met = threading.Barrier(2)

        def own() -> set[int]:
            met.wait(10)
            return os.sched_getaffinity(0)

        first, second = (work.pool.submit(own) for _ in range(2))
        assert not first.result() & second.result()


def test_minutes_are_those_of_every_process_that_resumed(script: Any) -> None:
    assert script.minutes([{"elapsed_seconds": each} for each in (20.0, 40.0, 15.0, 60.0, 5.0)]) == 105 / 60


def test_flops_until_a_step(script: Any) -> None:
    stages = [(10, 100), (5, 1000)]
    assert [script.until(stages, step) for step in (0, 4, 10, 12, 15)] == [0, 400, 1000, 3000, 6000]


def test_articles_are_documents(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wiki, plain, asked = tmp_path / "wiki.txt", tmp_path / "plain.txt", []
    wiki.write_text("the end of one. = = = Confetti = = = Confetti are small pieces. = = = Rain = = =  It  rains. ")
    plain.write_text("a book\n\nanother\n")
    monkeypatch.setattr(script, "bertzoo", lambda *words: asked.append(words))
    script.corpus([plain, wiki], ("a.toml", "b.toml"), tmp_path)
    ((verb, sources, made, *settings),) = asked
    cut = tmp_path / "wiki.jsonl"
    assert (verb, sources, made) == ("tokenize", f"{plain},{cut}", str(tmp_path / "corpus"))
    assert settings == ["--config=a.toml", "--config=b.toml"]
    texts = [json.loads(line)["text"] for line in cut.read_text().splitlines()]
    assert texts == ["the end of one.", "Confetti are small pieces.", "It rains."]
    script.corpus([], ("a.toml",), tmp_path)
    assert asked[-1][1] == "embedded:python"


def test_a_corpus_of_other_text_is_refused(script: Any, tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "manifest.json").write_text(json.dumps({"settings": {"source": str(tmp_path / "a.jsonl")}}))
    assert script.corpus([tmp_path / "a.jsonl"], ("a.toml",), tmp_path) == tmp_path / "corpus"
    with pytest.raises(SystemExit, match="not of embedded:python: give another --runs"):
        script.corpus([], ("a.toml",), tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--minutes=5"], "--minutes is for --paper"),
        (["--paper"], "--paper wants --text"),
        (["--text", "nowhere.txt"], "there is no nowhere.txt"),
        (["--glue=nowhere"], "there is no nowhere/CoLA, nowhere/MRPC, nowhere/STS-B, nowhere/SST-2"),
        (["--jobs=0"], "must be above 0"),
        (["--paper", "--minutes=nan", "--text", __file__], "must be above 0"),
    ],
)
def test_what_cannot_be_is_refused_first(words: list[str], said: str, script: Any, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        script.main(words)
    assert said in capsys.readouterr().err


def test_where_runs_are_kept(script: Any) -> None:
    assert script.arguments([]).runs == Path("runs/learning") and script.arguments([]).jobs == 2
    paper = script.arguments(["--paper", "--text", __file__])
    assert paper.runs == Path("runs/learning_paper") and (paper.jobs, paper.minutes) == (1, 20)


class Program:
    """In the place of the program: makes what its verbs make, and keeps what it was asked."""

    def __init__(self, script: Any, runs: Path) -> None:
        self.script, self.runs, self.asked = script, runs, []
        self.taught = threading.Event()  # the teacher is kept back until all else but its student has begun

    def __call__(self, *words: str) -> str:
        self.asked.append(words)
        run = next((Path(word.split("=")[1]) for word in words if word.startswith("--run_dir=")), None)
        if words[0] == "tokenize":
            (self.runs / "corpus").mkdir()
            told = {"settings": {"source": words[1]}, "splits": {"train": {"tokens": 9}}, "hash": "f00d"}
            (self.runs / "corpus" / "manifest.json").write_text(json.dumps(told))
        if words[0] in ("pretrain", "transfer"):
            assert run is not None
            if run.name == "ib_bert":
                assert self.taught.wait(60)
            if run.name == "mobilebert":
                self.taught.set()
            assert words[0] == "pretrain" or (self.runs / "ib_bert" / "heldout.json").exists(), "its teacher is there"
            run.mkdir()
            files = list(itertools.takewhile(lambda word: not word.startswith("--"), words[1:]))
            places = ("--run_dir=", "--teacher=")
            given = [word for word in words[1 + len(files) :] if not word.startswith(places)]
            options = self.script.pairs(given)
            made = config.load(kinds.recipe_class(*files), files, options)
            (run / "config.toml").write_text(config.dump(made))
        if words[0] == "finetune":
            assert run is not None
            run.mkdir()
            pairs = [word.removeprefix("--").split("=", 1) for word in words[2:]]
            settings = [(name, value) for name, value in pairs if name not in ("from", "run_dir")]
            scores = {which: {"dev": {"matthews": 1.0}} for which in ("median", "min", "max")}
            done = config.plain(config.load(Finetune, ["finetune"], settings))
            (run / "results.json").write_text(json.dumps(scores | {"config": done}))
            (run / "run.json").write_text(json.dumps({"git": "beef"}))
        return "{}"


def test_all_is_asked_for_once(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A student waits for its teacher; a second call asks for nothing; other options than those kept are refused."""
    program, found, took = Program(script, tmp_path), [], []
    monkeypatch.setattr(script, "bertzoo", program)
    monkeypatch.setattr(script, "figures", lambda arm, run, scores: (arm.name, sorted(scores)))
    monkeypatch.setattr(script.learning_page, "write", lambda *given: found.append(given))
    for folder in script.TASKS.values():
        (tmp_path / "glue" / folder).mkdir(parents=True)
    words = [f"--runs={tmp_path}", f"--glue={tmp_path / 'glue'}", "--jobs=3"]
    for times in (1, 2):
        script.main(words)
        verbs = [each[0] for each in program.asked]
        counts = [verbs.count(verb) for verb in ("tokenize", "pretrain", "transfer", "finetune")]
        assert counts == [1, 7, 1, 28], times
        names, told = found.pop()
        assert [name for name, _ in names] == [arm.name for arm in script.ARMS]
        assert all(scores == sorted(script.TASKS) or (name == "ib_bert" and not scores) for name, scores in names)
        assert (told.tuned, told.of_task, told.jobs) == (script.TUNED, script.TUNED_TASKS, 3) and told.paper is None
        assert told.tuned_at == [{"git": "beef"}] * 28
        assert told.took["jobs"] == 3 and 0 < told.took["minutes"] < 5
        took.append(told.took["minutes"])
    assert took[0] == took[1], "what asks for nothing takes none"
    data = f"--data.source={tmp_path / 'corpus'}"
    trained = {each[-1]: each for each in program.asked if each[0] in ("pretrain", "transfer")}
    assert all(each[-2] == data for each in trained.values())
    assert f"--teacher={tmp_path / 'ib_bert'}" in trained[f"--run_dir={tmp_path / 'mobilebert_transfer'}"]
    tuned = [each for each in program.asked if each[0] == "finetune"]
    for each in tuned:
        task = each[2].removeprefix("--task=")
        assert {*script.TUNED, *script.TUNED_TASKS[task]} <= {*each}
    assert {(*each[2:5],) for each in tuned if f"--from={tmp_path / 'bert'}" in each} == {
        (f"--task={task}", f"--data_dir={tmp_path / 'glue' / folder}", f"--from={tmp_path / 'bert'}")
        for task, folder in script.TASKS.items()
    }
    kept = (tmp_path / "bert" / "config.toml").read_text()
    (tmp_path / "bert" / "config.toml").write_text(kept.replace("beta2 = 0.98", "beta2 = 0.9"))
    with pytest.raises(SystemExit, match=r"bert was trained otherwise \(optimizer.beta2: 0.9 -> 0.98\)"):
        script.main(words)
    (tmp_path / "bert" / "config.toml").write_text(kept)
    monkeypatch.setattr(script, "TUNED", ("--seeds=4", *script.TUNED[1:]))
    with pytest.raises(SystemExit, match="was fine-tuned otherwise"):
        script.main(words)


def test_minutes_are_of_all_calls(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that fails counts too; where runs are of nobody knows when, there is no sum."""
    assert script.spent_before(tmp_path, script.ARMS) == {"minutes": 0, "done": 0}
    (tmp_path / "bert").mkdir()
    assert script.spent_before(tmp_path, script.ARMS) is None
    (tmp_path / "bert" / "heldout.json").write_text("{}")
    (tmp_path / "minutes.json").write_text('{"minutes": 7.5}')
    assert script.spent_before(tmp_path, script.ARMS) == {"minutes": 7.5, "done": 1}

    def bertzoo(*words: str) -> str:
        if words[0] == "tokenize":
            Program(script, tmp_path)(*words)
            return ""
        run = tmp_path / "bert-mrpc"
        run.mkdir()
        (run / "results.json").write_text("{}")
        raise RuntimeError("no")

    monkeypatch.setattr(script, "bertzoo", bertzoo)
    with pytest.raises(RuntimeError):
        script.main([f"--runs={tmp_path}", "--jobs=1"])
    assert json.loads((tmp_path / "minutes.json").read_text())["minutes"] > 7.5


def test_one_failure_stops_what_is_waiting(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def bertzoo(*words: str) -> str:
        asked.append(words[0])
        raise RuntimeError("no")

    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "manifest.json").write_text(json.dumps({"settings": {"source": "embedded:python"}}))
    monkeypatch.setattr(script, "bertzoo", bertzoo)
    with pytest.raises(RuntimeError):
        script.main([f"--runs={tmp_path}", "--jobs=1"])
    assert len(asked) < len(script.ARMS)


def test_the_papers_models(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has the options of its trial, and each task those of ELECTRA's fine-tuning."""
    program, found = Program(script, tmp_path), []
    monkeypatch.setattr(script, "bertzoo", program)
    fitted = "--optimizer.schedule.warmup_steps=0"
    monkeypatch.setattr(script, "fitting", lambda arm, runs, data, minutes: [f"--stages.0.steps={minutes:g}", fitted])
    monkeypatch.setattr(script, "figures", lambda arm, run, scores: arm.name)
    monkeypatch.setattr(script.learning_page, "write", lambda *given: found.append(given))
    for folder in script.TASKS.values():
        (tmp_path / "glue" / folder).mkdir(parents=True)
    words = ["--paper", "--text", __file__, "--minutes=7", f"--runs={tmp_path}", f"--glue={tmp_path / 'glue'}"]
    for _ in range(2):  # the second asks for nothing, whatever a trial would say now
        script.main(words)
    assert len(program.asked) == len({*program.asked})
    (names, told), _ = found
    assert names == ["bert_small", "electra_small", "convbert_small"] and told.paper == 7
    trained = [each for each in program.asked if each[0] == "pretrain"]
    assert len(trained) == 3 and all("--stages.0.steps=7" in each for each in trained)
    stsb = next(each for each in program.asked if "--task=stsb" in each)
    assert {"--epochs=10", "--scale=5", "--double_unordered=true", "--reduction=sum"} <= set(stsb)
    assert not any("--epochs=10" in each for each in program.asked if "--task=cola" in each)
    with pytest.raises(SystemExit, match="have 7 minutes each, not 8"):
        script.main([word.replace("=7", "=8") for word in words])


def test_the_papers_models_have_the_steps_that_fit(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """256 rows a second are 2 steps of 128, so that 20 minutes are 2,400."""
    (arm,) = [arm for arm in script.PAPER if arm.name == "electra_small"]
    trial = tmp_path / "electra_small-trial"

    def bertzoo(*words: str) -> None:
        trial.mkdir(exist_ok=True)
        tried = recipe(arm, *[word for word in words[2:] if "run_dir" not in word])
        (trial / "config.toml").write_text(config.dump(tried))
        (trial / "run.json").write_text("{}")
        line = {"step": script.TRIAL, "stage": 0, "split": "train", "loss": 1.0, "examples_per_second": 256.0}
        (trial / "metrics.jsonl").write_text(json.dumps(line) + "\n")

    monkeypatch.setattr(script, "bertzoo", bertzoo)
    options = script.fitting(arm, tmp_path, Path("corpus"), 20)
    assert script.fitting(arm, tmp_path, Path("corpus"), 1e9)[0] == "--stages.0.steps=1000000", "the paper's"
    made = recipe(arm, *options)
    assert made.stages[0].steps == 2400 and made.run.evaluate_every == 120
    assert made.optimizer.schedule.warmup_steps == 0 and made.optimizer.schedule.warmup_share == 0.01
    differing = {line.split(":")[0] for line in config.difference(recipe(arm), made)}
    assert differing == {option.removeprefix("--").split("=")[0] for option in options}


def test_figures_of_a_run(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (arm,) = [arm for arm in script.ARMS if arm.name == "mobilebert_transfer"]
    made = recipe(arm)
    (tmp_path / "config.toml").write_text(config.dump(made))
    (tmp_path / "heldout.json").write_text(json.dumps({"mlm_hidden_loss": 3.0}))
    history = report.History(
        train=[{"elapsed_seconds": 90.0}], heldout=[{"step": 100, "mlm_hidden_loss": 4.0}, {"step": 1070, "loss": 3.0}]
    )
    seen = report.Run(directory=tmp_path, history=history, config={}, facts={"git": "1"})
    monkeypatch.setattr(script.report, "open_run", lambda run: seen)
    monkeypatch.setattr(
        script.directory, "read", lambda run: dataclasses.make_dataclass("Model", ["parameter_count"])(7)
    )
    stages = [(stage.steps, 10 + index) for index, stage in enumerate(made.stages)]
    monkeypatch.setattr(script, "spent", lambda recipe: stages)
    found = script.figures(arm, tmp_path, {})
    assert found.minutes == 1.5 and found.steps == 4 * 100 + 670 + 67 and found.parameters == 7
    assert [flops for flops, _ in found.curve] == [100 * stages[0][1], found.longer]
    assert found.flops - found.longer == 67 * stages[-1][1]
