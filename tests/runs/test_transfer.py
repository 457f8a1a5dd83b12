"""`bertzoo transfer`: whole runs of a tiny teacher and its student, resuming in any stage, and errors."""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pairs
import pytest
import tomli_w
from messages import mentioning, mentions
from test_pretrain import assert_same_state, error, records

from bertzoo.cli.main import main
from bertzoo.conversion.tensors import digest
from bertzoo.core import config
from bertzoo.core.errors import ConfigError
from bertzoo.runs import load_model
from bertzoo.runs.configs import Transfer
from bertzoo.runs.load_model import load_run
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.train import loop, optim
from bertzoo.train.state import named

pytestmark = pytest.mark.usefixtures("one_device")

SIZES = {
    "kind": "mobilebert", "vocab_size": 256, "embedding_size": 8, "hidden_size": 16, "layers": 2, "heads": 2,
    "feed_forward_size": 16, "feed_forwards": 1, "max_positions": 32,
}  # fmt: skip
TEACHER = {**SIZES, "bottleneck_size": 16, "attention_input": "stream", "norm": "layer_norm"}
SHAPE = {"batch_size": 8, "max_length": 24, "max_predictions": 4}


def written(path: Path, tiny_corpus: Path, **tables) -> Path:
    shared = {
        "objective": {"sentence": "nsp"},
        "data": {"source": str(tiny_corpus), "heldout": 0.2, "sentences": "lines", "tokenizer": {"vocab_size": 250}},
        "optimizer": {"kind": "lamb", "learning_rate": 0.02},
        "run": {"log_every": 1, "evaluate_every": 2, "evaluate_rows": 16, "save_every": 2},
    }
    path.write_text(tomli_w.dumps(shared | tables))
    return path


@pytest.fixture(scope="module")
def teacher(tiny_corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher")
    file = written(folder / "teacher.toml", tiny_corpus, model=TEACHER, stages=[{"steps": 4, **SHAPE}])
    assert main(["pretrain", str(file), f"--run_dir={folder / 'run'}"]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def untrained(student, tiny_corpus, tmp_path_factory):
    """A teacher as a run that was not trained."""
    return pairs.write_run(
        config.load(Transfer, [student]), tmp_path_factory.mktemp("untrained") / "teacher", tiny_corpus
    )


@pytest.fixture(scope="module")
def student(tiny_corpus, tmp_path_factory):
    return written(
        tmp_path_factory.mktemp("student") / "student.toml",
        tiny_corpus,
        teacher=TEACHER,
        teacher_objective={"sentence": "nsp"},
        model={**SIZES, "bottleneck_size": 8},
        knowledge={"dtype": "float32"},
        transfer={"kind": "progressive", "steps": 3, "learning_rate": 0.02, **SHAPE},
        distillation=[{"steps": 4, **SHAPE}],
    )


@pytest.fixture(scope="module")
def finished(student, teacher, tmp_path_factory):
    run = tmp_path_factory.mktemp("run") / "run"
    assert main(["transfer", str(student), f"--teacher={teacher}", f"--run_dir={run}"]) == 0
    return run


@pytest.mark.slow
def test_the_log_files_and_report_of_a_run(finished, teacher, tmp_path):
    begun = [line for line in records(finished) if line.get("event") == "stage"]
    assert [(line["step"], line["stage"], line["name"]) for line in begun] == [
        (0, 0, "transfer, layer 1 of 2"), (3, 1, "transfer, layer 2 of 2"), (6, 2, "distillation"),
    ]  # fmt: skip
    train = [line for line in records(finished) if line.get("split") == "train"]
    assert {"feature_loss", "mean_loss", "variance_loss", "attention_loss"} <= train[0].keys()
    assert "mlm_loss" not in train[5] and {"mlm_loss", "distillation_loss", "teacher_mlm_loss"} <= train[6].keys()
    facts = json.loads((finished / "run.json").read_text())
    assert facts["teacher"]["path"] == str(teacher.resolve()) and "from" not in facts
    for part in ("params", "training"):  # every array's path, and each of the student's once
        paths = json.loads((finished / "checkpoints" / "10" / part / "_METADATA").read_text())["tree_metadata"]
        assert not any("teacher" in path for path in paths)
        if part == "params":
            params = named(load_run(finished, 10).params)
            assert {path.replace("', '", "/").strip("()',") for path in paths} == params.keys()
    run = shutil.copytree(finished, tmp_path / "run")
    assert main(["report", str(run)]) == 0
    assert "| 1 | transfer, layer 2 of 2 | 3 |" in re.sub(r" +", " ", (run / "report.md").read_text())
    # Only distillation's checkpoints are ranked: other stages have another loss.
    metrics = [path.parent.parent.name for path in (finished / "checkpoints").glob("*/metrics/metrics")]
    assert not set(metrics) & {"2", "3", "4", "6"}


@pytest.mark.slow  # train/test_loop.py has the resume
@pytest.mark.parametrize("stop_after", [2, 3, 5, 7])
def test_a_run_stopped_in_any_stage_resumes_to_the_same_state(
    finished, student, teacher, tmp_path, stop_after, monkeypatch
):
    run, original = tmp_path / "run", loop._due

    def due(job, step, stage_end):
        if step == stop_after:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(job, step, stage_end)

    monkeypatch.setattr(loop, "_due", due)
    assert main(["transfer", str(student), f"--teacher={teacher}", f"--run_dir={run}"]) == 3
    monkeypatch.undo()
    assert main(["transfer", str(student), f"--run_dir={run}"]) == 0  # the run knows its teacher
    assert_same_state(run, finished)


def test_auxiliary_transfer_is_one_stage_from_fresh_parameters():
    """MobileBERT §3.6: "a single loss" in one stage; only joint and progressive transfer copy embedding and head."""
    options = {"kind": "auxiliary", "steps": 740, "batch_size": 8, "max_length": 512, "learning_rate": 1e-3}
    words = [(f"transfer.{key}", str(value)) for key, value in options.items()]
    with pytest.raises(
        ConfigError, match=mentioning("transfer.kind", "auxiliary", 500000, "distillation = []", "joint")
    ):
        config.load(Transfer, ["mobilebert_transfer"], words)
    made = config.load(Transfer, ["mobilebert_transfer"], [*words, ("distillation", "[]")])
    assert [stage.steps for stage in made.stages] == [740] and not made.knowledge.copy
    assert config.load(Transfer, ["mobilebert_transfer"]).knowledge.copy
    # The rate of a step is that of the authors' distillation: 2 % of warm-up, then linear to a ten-thousandth.
    rate = optim.build_schedule(made.optimizer_of(0).schedule, 1.0, 1000)
    steps = np.array([0, 10, 20, 500, 1000])
    expected = np.where(steps < 20, steps / 20, 1 - (1 - 1e-4) * steps / 1000)
    np.testing.assert_allclose(rate(steps), expected, rtol=1e-5)


@pytest.mark.slow
def test_a_teacher_behind_a_url_is_recorded_and_compared(student, teacher, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(teacher, tmp_path / "bucket" / "teacher")
    url, run = f"file://{tmp_path}/bucket/teacher", tmp_path / "run"
    command = ["transfer", str(student), f"--run_dir={run}"]
    assert main([*command, f"--teacher={url}"]) == 0
    record = json.loads((run / "run.json").read_text())["teacher"]
    assert record["path"] == url
    assert record["parameters_sha256"] == digest(load_model.read_model(teacher).params)
    shutil.rmtree(tmp_path / "bucket" / "teacher" / "checkpoints" / "4")
    assert mentions(error(capsys, *command, f"--teacher={url}"), url, "differ")


@pytest.mark.slow
def test_another_teacher_raises(finished, student, teacher, tiny_corpus, tmp_path, capsys):
    other = tmp_path / "other"
    file = written(tmp_path / "other.toml", tiny_corpus, model=TEACHER, stages=[{"steps": 1, **SHAPE}], seed=1)
    assert main(["pretrain", str(file), f"--run_dir={other}"]) == 0
    said = error(capsys, "transfer", str(student), f"--teacher={other}", f"--run_dir={finished}")
    assert str(other) in said and str(teacher) in said
    said = error(capsys, "transfer", str(student), f"--teacher={finished}", f"--run_dir={tmp_path / 'run'}")
    assert mentions(said, finished, "teacher.bottleneck_size")
    assert mentions(said.replace(str(finished), ""), 8, 16)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("teacher.attention_dropout", 0.5),  # has no effect on a teacher, but is probably a mistake
        ("teacher_objective.sentence", "sop"),
        ("knowledge.ground_truth", 0.4),
        ("knowledge.feature", 1),
        ("knowledge.pads", "true"),
        ("knowledge.copy", "false"),
        ("transfer.kind", "joint"),
        ("transfer.steps", 2),
        ("transfer.batch_size", 16),
        ("transfer.max_length", 20),
        ("transfer.max_predictions", 3),
        ("transfer.masking_share", 0.1),
        ("distillation.0.batch_size", 16),
        ("distillation.0.max_predictions", 3),
    ],
)
def test_changes_that_a_resumed_transfer_rejects(key, value, student, tmp_path):
    more = {"learning_rate": 0.02, "steps": 6, **SHAPE} if key == "transfer.kind" else {}
    options = {key: value} | {f"transfer.{name}": size for name, size in more.items()}
    run = RunDirectory(tmp_path)
    run.write_config(config.load(Transfer, [student]))
    (tmp_path / "checkpoints" / "7").mkdir(parents=True)  # in the distillation
    with pytest.raises(ConfigError, match=rf"(: |; ){re.escape(key)}: ") as caught:
        run.changes(config.load(Transfer, [student], [(name, str(option)) for name, option in options.items()]))
    assert "stages." not in str(caught.value) and str(caught.value).count(f"{key}: ") == 1


def test_stage_steps_are_fixed_once_the_next_stage_began(student, tmp_path):
    shorter = [("transfer.steps", "2")]
    old, new = (config.load(Transfer, [student], options) for options in ([], shorter))
    run = RunDirectory(tmp_path)
    run.write_config(old)
    moved, fixed = ("step 3", "stage 0", "stage 1"), ("transfer.steps: 3 -> 2",)
    for done, refused in ((2, ()), (3, moved), (4, fixed), (7, fixed), (10, fixed)):
        (tmp_path / "checkpoints" / str(done)).mkdir(parents=True)
        assert run.latest() == done
        if refused:
            with pytest.raises(ConfigError, match=mentioning(*refused)):
                run.changes(new)
        else:
            assert run.changes(new) == ["transfer.steps: 3 -> 2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model.layers=1"], ("model.layers", 1, "teacher.layers", 2, "knowledge.layers")),
        (["--knowledge.layers=[1, 3]"], ("layer 3", 1, 2)),
        (["--knowledge.layers=[2, 1]"], ("knowledge.layers", "[2, 1]")),
        (["--knowledge.layers=[1]"], ("knowledge.layers", 1, "model.layers", 2)),
        (["--model.vocab_size=264"], ("teacher.vocab_size", 256, "model.vocab_size", 264)),
        (["--teacher.max_positions=20"], ("teacher.max_positions", 20)),
        (["--knowledge.ground_truth=2"], ("ground_truth", 2.0)),
        (["--transfer.lower_rate=2"], ("lower_rate", 2.0)),
        ([f"--knowledge.{name}=0" for name in ("feature", "mean", "variance", "attention")], ("weights",)),
        (["--transfer.kind=nothing", "--knowledge.layers=[1, 2]"], ("knowledge.layers", "transfer.kind")),
        (["--transfer.kind=nothing", "--distillation=[]"], ("transfer.kind",)),
        (
            ["--transfer.kind=nothing", "--knowledge.ground_truth=1", "--knowledge.copy=false"],
            ("transfer.kind", "knowledge.ground_truth", "knowledge.copy", "bertzoo pretrain"),
        ),
        (
            ["--teacher_objective.sentence=sop", "--objective.sentence=sop"],
            ("objective.sentence", '"nsp"', "teacher_objective.sentence", '"sop"'),
        ),
        (
            ["--teacher_objective.kind=replaced", "--objective.sentence=none", "--knowledge.ground_truth=1"],
            ("objective.kind", '"masked"', "teacher_objective.kind", '"replaced"'),
        ),
        (["--teacher="], ("--teacher", "empty")),
        (["--teacher_objective.kind=replaced", "--teacher_objective.sentence=none"], ("sentence",)),
    ],
)
def test_impossible_options_raise_one_error(options, message, student, untrained, tmp_path, capsys):
    run = tmp_path / "run"
    said = error(capsys, "transfer", str(student), f"--teacher={untrained}", f"--run_dir={run}", *options)
    assert mentions(said.replace(str(untrained), ""), *message) and not run.exists()


def test_a_teacher_must_be_named(student, tmp_path, capsys):
    said = error(capsys, "transfer", str(student), f"--run_dir={tmp_path / 'run'}")
    assert mentions(said, "--teacher") and not (tmp_path / "run").exists()
