"""The shipped pipelines on tiny text and tables: every one passes the checks that come before its first step."""

from pathlib import Path
from types import SimpleNamespace

import labelled
import pytest
import quiz
import tiny
from messages import mentioning
from tiers import quick

from bertzoo.cli import main as cli
from bertzoo.cli.support import planned_runs
from bertzoo.core import config
from bertzoo.core.errors import ConfigError
from bertzoo.jobs import pipeline as recipe
from bertzoo.jobs import run
from bertzoo.jobs.record import JobRecord
from bertzoo.jobs.run import Checks
from bertzoo.runs.configs import Pretrain
from bertzoo.tasks.glue import GLUE

SIZES = {"batch_size": "4096", "max_predictions": "77"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, GLUE's tasks of three rows each, SQuAD's files, and two labelled texts."""
    folder = tmp_path_factory.mktemp("data")
    tiny.write_text(folder / "text.txt", documents=4)
    for name, task in GLUE.items():
        for split in (*task.train, *task.dev):
            labelled.write_split(name, split, folder)
    quiz.fill(folder)
    for split in ("train", "dev"):
        labelled.write(folder / f"{split}.csv", "text,label", "A cat sat.,0", "The cat slept.,1")
    return folder


@pytest.mark.parametrize("name", quick(sorted(config.shipped(recipe.FOLDER)), "demo_pipeline"))
def test_a_shipped_pipeline_passes_its_checks(
    name: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run.shutil, "disk_usage", lambda folder: SimpleNamespace(free=10**15))
    here = {"text": data / "text.txt", "glue": data, "squad": data, "labels": data}
    known = recipe.load_pipeline(name, [(f"inputs.{key}", "x") for key in inputs(name)]).inputs
    overrides = [(f"inputs.{key}", str(here[key])) for key in known if key in here]
    if name.startswith("mobilebert"):
        overrides.append(("sweep.random", "2"))  # of 270 points of each task
    pipeline = recipe.load_pipeline(name, overrides)
    record = JobRecord(str(tmp_path / "run"), pipeline)
    checks = Checks(record, planned_runs)
    checks.prepare(pipeline.jobs)
    assert not (tmp_path / "run").exists()
    assert all(checks.parameters(step) > 0 for step in pipeline.jobs if step.verb in ("pretrain", "transfer"))


def inputs(name: str) -> list[str]:
    return list(config.read_over_base(config.find(name, recipe.FOLDER), recipe.FOLDER)["inputs"])


@pytest.mark.parametrize("name", sorted(config.shipped(recipe.FOLDER)))
def test_the_list_prints_the_whole_pipeline(name: str, capsys: pytest.CaptureFixture) -> None:
    words = [f"--inputs.{key}=any" for key in inputs(name)]
    assert cli.main(["pipeline", name, "--run_dir=runs/x", *words, "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    steps = recipe.load_pipeline(name, [(f"inputs.{key}", "any") for key in inputs(name)]).jobs
    assert len(lines) == len(steps) >= 8
    for line, step in zip(lines, steps, strict=True):
        assert line.startswith(f"bertzoo {step.verb} ")


def test_squeezebert_distils_every_task_but_those_with_alpha_one() -> None:
    steps = recipe.load_pipeline("squeezebert", [("inputs.text", "t"), ("inputs.glue", "g")]).jobs
    students = {step.task: step for step in steps if step.stage == "students"}
    taught = {task for task, step in students.items() if "teacher" in step.links}
    assert taught == {"qqp", "sst2", "stsb", "mrpc", "rte"}  # Table 5: alpha is 1 of QNLI and CoLA
    assert students["cola"].links["from"] == "student" and students["rte"].links["from"] == "student_mnli/mnli"
    assert {step.options["dropout"] for step in students.values()} == {"0.1"}


def test_mobilebert_paper_changes_only_its_student() -> None:
    inputs = [(f"inputs.{name}", "x") for name in ("text", "glue", "squad")]
    readme, paper = (recipe.load_pipeline(name, inputs).jobs for name in ("mobilebert", "mobilebert_paper"))
    changed = {step.name: step.options for step, other in zip(paper, readme, strict=True) if step != other}
    data = {"data.source": "{corpus}"}
    numbers = {f"{part}.{key}": text for part in ("transfer", "distillation.0") for key, text in SIZES.items()}
    assert changed == {"student": {**data, "model.attention_input": "stream", **numbers}}
    teacher = config.load(Pretrain, paper[1].config, [])
    assert paper[1].name == "teacher" and {(s.batch_size, s.max_predictions) for s in teacher.stages} == {(4096, 77)}


def test_a_base_of_a_base_raises(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text('base = "mobilebert_paper"')
    with pytest.raises(ConfigError, match=mentioning(file, "mobilebert")):
        recipe.load_pipeline(file)


@pytest.mark.slow
def test_a_teacher_of_another_shape_is_an_error(data: Path, tmp_path: Path) -> None:
    options = [("stages.teacher.model.feed_forward_size", "256"), ("inputs.labels", str(data))]
    pipeline = recipe.load_pipeline("demo_pipeline", options)
    with pytest.raises(ConfigError, match=mentioning("student", "teacher", "256", "512")):
        Checks(JobRecord(str(tmp_path / "run"), pipeline), planned_runs).prepare(pipeline.jobs)
