"""The file of a pipeline: its steps, what each reads, the command line of each, and errors."""

from pathlib import Path

import pytest
from messages import mentioning

from bertzoo.core.errors import ConfigError
from bertzoo.jobs import record as records
from bertzoo.jobs.job import JobList, OutputPaths
from bertzoo.jobs.pipeline import load_pipeline
from bertzoo.jobs.record import JobRecord

PIPELINE = """
[inputs]
text = "text/*.txt"
glue = ""
given = ""

[options.finetune]
data_dir = "{glue}"
seeds = 2

[stages.corpus]
verb = "tokenize"
source = "{text}"
config = ["base", "more.toml"]

[stages.student]
verb = "pretrain"
config = "squeezebert"
from = "given"
options.data.source = "{corpus}"

[stages.teacher_mnli]
verb = "finetune"
config = "finetune"
from = "given"
tasks = ["mnli"]

[stages.teachers]
verb = "finetune"
config = "finetune"
from = "teacher_mnli"
tasks = ["cola", "rte"]

[stages.students]
verb = "finetune"
config = "finetune"
from = "student"
teacher = "teachers"
options = { seeds = 3, batch_size = 16 }

[stages.students.tasks]
cola = { alpha = 1.0 }
rte = { from = "teacher_mnli", alpha = 0.9, batch_size = 32 }

[stages.found]
verb = "sweep"
config = "mobilebert"
from = "student"
tasks = ["cola"]
options.data_dir = "{glue}/{task}"

[stages.file]
verb = "convert"
from = "students"
tasks = ["cola", "rte"]
options = { to = "litert", lengths = "32,64" }

[stages.model]
verb = "convert"
from = "found"
tasks = ["cola"]
options.to = "huggingface"

[stages.score]
verb = "evaluate"
from = "file"
tasks = ["rte"]

[stages.packed]
verb = "phone"
from = "file"
tasks = ["rte"]

[stages.speed]
verb = "benchmark"
models = ["file", "given"]

[stages.table]
verb = "results"
models = ["students"]

[stages.zip]
verb = "submission"
models = ["students"]
"""
GIVEN = [("inputs.glue", "glue"), ("inputs.given", "g")]
PLACES = OutputPaths(folder=Path("S"), training="T")


@pytest.fixture
def pipeline(tmp_path: Path) -> JobList:
    return load(tmp_path)


def load(folder: Path, *overrides: tuple[str, str], tasks: tuple[str, ...] = (), text: str = PIPELINE) -> JobList:
    (folder / "pipeline.toml").write_text(text)
    return load_pipeline(folder / "pipeline.toml", [*GIVEN, *overrides], tasks)


def commands(pipeline: JobList) -> dict[str, str]:
    return {step.name: " ".join(pipeline.words(step, PLACES)) for step in pipeline.jobs}


def test_the_command_line_of_every_step(pipeline: JobList) -> None:
    tuned = "--data_dir=glue --seeds"
    assert commands(pipeline) == {
        "corpus": "tokenize text/*.txt S/corpus --config=base --config=more.toml",
        "student": "pretrain squeezebert --run_dir=T/student --from=g --data.source=S/corpus",
        "teacher_mnli/mnli": f"finetune finetune --task=mnli --run_dir=S/teacher_mnli/mnli --from=g {tuned}=2",
        "teachers/cola": "finetune finetune --task=cola --run_dir=S/teachers/cola --from=S/teacher_mnli/mnli "
        f"{tuned}=2",
        "teachers/rte": f"finetune finetune --task=rte --run_dir=S/teachers/rte --from=S/teacher_mnli/mnli {tuned}=2",
        # With alpha = 1 the teacher does not contribute.
        "students/cola": f"finetune finetune --task=cola --run_dir=S/students/cola --from=T/student {tuned}=3 "
        "--batch_size=16 --alpha=1.0",
        "students/rte": "finetune finetune --task=rte --run_dir=S/students/rte --from=S/teacher_mnli/mnli "
        f"--teacher=S/teachers/rte {tuned}=3 --batch_size=32 --alpha=0.9",
        "found/cola": "sweep mobilebert --tasks=cola --run_dir=S/found/cola --from=T/student --data_dir=glue/cola",
        "file/cola": "convert S/students/cola S/file/cola.tflite --to=litert --lengths=32,64",
        "file/rte": "convert S/students/rte S/file/rte.tflite --to=litert --lengths=32,64",
        "model/cola": "convert S/found/cola/best/cola S/model/cola --to=huggingface",
        "score/rte": "evaluate S/file/rte.tflite --json",
        "packed/rte": "phone pack S/file/rte.tflite S/packed/rte",
        "speed": "benchmark S/file/cola.tflite S/file/rte.tflite g --json",
        "table": "results S/students/cola S/students/rte",
        "zip": "submission S/zip.zip S/students/cola S/students/rte",
    }


def test_steps_know_what_they_need(pipeline: JobList) -> None:
    needs = {step.name: (pipeline.needs(step), pipeline.inputs_of(step)) for step in pipeline.jobs}
    assert needs["corpus"] == ([], {"text": "text/*.txt"})
    assert needs["student"] == (["corpus"], {"given": "g"})
    assert needs["students/rte"] == (["teacher_mnli/mnli", "teachers/rte"], {"glue": "glue"})
    assert needs["speed"] == (["file/cola", "file/rte"], {"given": "g"})


def test_some_tasks_bring_what_they_need(tmp_path: Path) -> None:
    names = list(commands(load(tmp_path, tasks=("rte",))))
    assert names == [
        *("corpus", "student", "teacher_mnli/mnli", "teachers/rte", "students/rte"),
        *("file/rte", "score/rte", "packed/rte", "speed", "table"),  # a submission has every task
    ]
    assert commands(load(tmp_path, tasks=("rte",)))["table"] == "results S/students/rte"


def test_options_of_a_stage_win_over_those_of_its_command(tmp_path: Path) -> None:
    shown = commands(load(tmp_path, ("stages.students.seeds", "7"), ("finetune.seeds", "5"), ("finetune.epochs", "1")))
    assert "--seeds=5" in shown["teachers/rte"] and "--seeds=7" in shown["students/rte"]
    assert "--epochs=1" in shown["students/rte"] and "--epochs" not in shown["found/cola"]


def test_an_option_of_the_command_line_decides_on_the_teacher(tmp_path: Path) -> None:
    shown = commands(load(tmp_path, ("stages.students.alpha", "0.5")))
    assert "--teacher=S/teachers/cola" in shown["students/cola"]
    assert "--teacher" not in commands(load(tmp_path, ("stages.students.alpha", "1")))["students/rte"]


def test_a_bucket_holds_the_training_runs_but_prunings(tmp_path: Path) -> None:
    text = PIPELINE + '\n[stages.small]\nverb = "prune"\nconfig = "prune_66m"\nfrom = "student"\n'
    pipeline = load(tmp_path, text=text)
    places = OutputPaths(folder=Path("S"), training="gs://b/t")
    shown = {step.name: " ".join(pipeline.words(step, places)) for step in pipeline.jobs}
    assert "--run_dir=gs://b/t/student" in shown["student"]
    assert shown["small"] == "prune prune_66m --run_dir=S/small --from=gs://b/t/student"


def test_an_output_in_a_bucket_is_hashed_anew_when_its_step_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = load(tmp_path)
    record, step = JobRecord(str(tmp_path), pipeline, "gs://b/t"), pipeline.job("student")
    monkeypatch.setattr(records, "to_path", lambda name: tmp_path)  # which exists
    for digest in ("first", "second"):
        monkeypatch.setattr(records, "content_hash", lambda kind, place, digest=digest: digest)
        record.finish(step, record.begin(step), 1.0)
        assert (record.entry(step) or {})["output"] == digest


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ('verb = "tokenize"', 'verb = "tokenise"', ("corpus.verb", "tokenise", "tokenize")),
        ('verb = "tokenize"', "", ("corpus.verb",)),
        ("[stages.corpus]", "[stage.corpus]", ("stage", "stages")),
        ("source = ", "sauce = ", ("stages.corpus.sauce", "source")),
        ('source = "{text}"', "", ("stages.corpus.source", "missing")),
        ('source = "{text}"', 'source = "{texts}"', ("texts", "corpus")),
        ('from = "given"\noptions', 'from = "nowhere"\noptions', ("stages.student.from", "nowhere")),
        ('from = "given"\noptions', 'from = "teachers"\noptions', ("stages.student.from", "teachers")),
        ('from = "teacher_mnli"\ntasks', 'from = "corpus"\ntasks', ("stages.teachers.from", "a tokenised corpus")),
        ('teacher = "teachers"', 'teacher = "student"', ("stages.students.teacher", "a model", "a fine-tuned model")),
        ('{ from = "teacher_mnli"', '{ from = "found"', ("stages.students.from", "found")),
        ('"results"\nmodels = ["students"]', '"results"\nmodels = ["file"]', ("stages.table.models", "a file")),
        ('"phone"\nfrom = "file"', '"phone"\nfrom = "model"', ("packed",)),
        ('[stages.zip]\nverb = "submission"\nmodels', '[stages.zip]\nverb = "submission"\nteacher', ("zip.teacher",)),
        ('tasks = ["mnli"]', "", ("stages.teacher_mnli.tasks", "finetune")),
        ('tasks = ["mnli"]', 'tasks = ["../mnli"]', ("stages.teacher_mnli.tasks", "../mnli")),
        ('teacher = "teachers"', 'teacher = "students"', ("stages.students.teacher", "students")),
        ('from = "file"', "", ("stages.score.from", "evaluate")),
        ('tasks = ["mnli"]', "tasks = 3", ("stages.teacher_mnli.tasks", "3")),
        ('models = ["file", "given"]', 'models = "file"\ntasks = ["rte"]', ("stages.speed.tasks", "benchmark")),
        ("seeds = 2", 'run_dir = "x"', ("options.finetune.run_dir",)),
        ("[options.finetune]", "[options.tune]", ("options.tune",)),
        ('[inputs]\ntext = "text/*.txt"', '[inputs]\nstudent = "x"\ntext = "text/*.txt"', ("student",)),
        ("[stages.found]", '[stages."a/b"]', ("a/b",)),
        ("options.data_dir", "options.data_dri", ()),
    ],
)
def test_mistakes_in_the_file_name_their_place(tmp_path: Path, old: str, new: str, parts: tuple[str, ...]) -> None:
    assert old in PIPELINE
    if not parts:  # the commands themselves know their options
        assert "--data_dri" in commands(load(tmp_path, text=PIPELINE.replace(old, new, 1)))["found/cola"]
        return
    with pytest.raises(ConfigError, match=mentioning(tmp_path / "pipeline.toml", *parts)):
        load(tmp_path, text=PIPELINE.replace(old, new, 1))


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("inputs.txt", ("--inputs.txt=5", "text")),
        ("stages.studens.seeds", ("studens", "students")),
        ("stages.students", ("--stages.students=5",)),
        ("evaluat.seeds", ("evaluat", "evaluate")),
        ("prune.seed", ("prune.seed",)),
        ("finetune.task", ("task",)),
        ("seeds", ("--seeds=5",)),
    ],
)
def test_mistakes_on_the_command_line_name_the_option(tmp_path: Path, key: str, parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=mentioning(*parts)):
        load(tmp_path, (key, "5"))


def test_a_missing_input_and_an_unknown_task_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=mentioning("--inputs.glue=PATH", "given")):
        (tmp_path / "pipeline.toml").write_text(PIPELINE)
        load_pipeline(tmp_path / "pipeline.toml")
    with pytest.raises(ConfigError, match=mentioning("--tasks=colla", "cola")):
        load(tmp_path, tasks=("colla",))
