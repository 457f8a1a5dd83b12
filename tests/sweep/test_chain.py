"""A chain from the command line with a fake `bertzoo finetune`: order, resuming, failures and errors."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from messages import mentions
from searched import settings

from bertzoo.cli import main as cli
from bertzoo.core import config
from bertzoo.finetuning.results import published
from bertzoo.finetuning.sweep import chain, queue, slots

HERE = Path(__file__).parent
STAND_IN = HERE / "finetune.py"
CHAIN = """
[chain]
base = "finetune"
models = ["student", "teacher"]
table = "squeezebert_dev"

[options]
seeds = 2

[stages.students]
from = "student"
teacher = "teachers"
options = { batch_size = 16 }
tasks = { cola = { alpha = 1.0 }, rte = { from = "first", alpha = 0.9, optimizer.learning_rate = 3e-5 } }

[stages.first]
from = "teacher"
tasks = ["mrpc"]

[stages.teachers]
from = "first"
tasks = ["cola", "rte"]
"""
GIVEN = ["--model.student=m/student", "--model.teacher=m/teacher", "--data_dir=glue"]
# Runs a chain as the command line does, with the stand-in for its runs.
PROGRAM = f"""
import sys
from bertzoo.cli import main as cli
from bertzoo.finetuning.sweep import queue, slots
queue.COMMAND = ({str(STAND_IN)!r},)
slots.count_devices = lambda: ("cpu", 1)
cli.entry()
"""


class Place:
    def __init__(self, capsys: pytest.CaptureFixture):
        self._capsys = capsys
        Path("chain.toml").write_text(CHAIN)
        for name in ("student", "teacher"):
            Path("m", name).mkdir(parents=True)
            Path("m", name, "model.toml").touch()  # the chain checks no other file of a model
        columns = {
            "CoLA": None,
            "RTE": "index\tsentence1\tsentence2\tlabel",
            "MRPC": "Quality\ta\tb\t#1 String\t#2 String",
        }
        rows = {"CoLA": "x\t1\t\tA text.", "RTE": "0\tOne.\tOther.\tentailment", "MRPC": "1\t1\t2\tOne.\tOther."}
        for folder, head in columns.items():
            Path("glue", folder).mkdir(parents=True)
            for split in ("train", "dev"):
                lines = [line for line in (head, rows[folder]) if line]
                Path("glue", folder, f"{split}.tsv").write_text("\n".join(lines) + "\n")
        self.behave({})

    def behave(self, behaviour: dict[str, Any]) -> None:
        Path("behaviour.json").write_text(json.dumps(behaviour))

    def run(self, *options: str, code: int = 0, given: list[str] = GIVEN) -> tuple[str, str]:
        found = cli.main(["chain", "chain.toml", "--run_dir=runs/c", *given, *options])
        captured = self._capsys.readouterr()
        assert found == code, captured.err
        return captured.out, captured.err

    def calls(self) -> list[dict[str, str]]:
        """The options of the runs started since the last call."""
        file = Path("calls")
        lines = [json.loads(line)["line"] for line in file.read_text().splitlines()] if file.exists() else []
        file.unlink(missing_ok=True)
        return [dict(word[2:].split("=", 1) for word in line.split()[2:]) for line in lines]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Place:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(queue, "COMMAND", (str(STAND_IN),))
    monkeypatch.setattr(slots, "count_devices", lambda: ("cpu", 1))
    return Place(capsys)


def names(calls: list[dict[str, str]]) -> list[str]:
    return [call["run_dir"].removeprefix("runs/c/stages/") for call in calls]


def table() -> dict[str, dict[str, str]]:
    with open("runs/c/chain.csv", newline="") as file:
        return {line["run"].removeprefix("stages/"): line for line in csv.DictReader(file)}


ORDER = ["students/cola", "first/mrpc", "teachers/cola", "teachers/rte", "students/rte"]


def test_every_run_follows_its_prerequisites(place: Place) -> None:
    out, err = place.run()
    found = place.calls()
    assert names(found) == ORDER
    calls = dict(zip(names(found), found, strict=True))
    links = {name: (call["from"], call.get("teacher")) for name, call in calls.items()}
    assert links == {
        "students/cola": ("m/student", None),
        "first/mrpc": ("m/teacher", None),
        "teachers/cola": ("runs/c/stages/first/mrpc", None),
        "teachers/rte": ("runs/c/stages/first/mrpc", None),
        "students/rte": ("runs/c/stages/first/mrpc", "runs/c/stages/teachers/rte"),
    }
    assert calls["students/rte"]["optimizer.learning_rate"] == "3e-05" and calls["students/rte"]["batch_size"] == "16"
    assert all(call["seeds"] == "2" and call["data_dir"] == "glue" for call in found)
    assert {line["state"] for line in table().values()} == {"finished"}
    assert "## GLUE, development sets (SqueezeBERT, Table 2)" in out and "measured here" in out and "quoted" in out
    assert mentions(err, "5 points", "0 already")
    # Damaged results are computed again.
    Path("runs/c/stages/teachers/rte/results.json").write_text("{")
    place.run()
    assert names(place.calls()) == ["teachers/rte"]
    # Again: every run is finished, although the data has moved.
    Path("glue").rename("moved")
    _, err = place.run("--data_dir=moved")
    assert not place.calls() and mentions(err, "5 points", "5 already")


def test_options_apply_to_all_runs_a_stage_or_a_task(place: Place) -> None:
    out, _ = place.run("--seeds=1", "--stages.teachers.seeds=3", "--tasks.rte.seeds=4", "--alpha=0.5", "--list")
    lines = {line.split("--run_dir=runs/c/stages/")[1].split()[0]: line for line in out.splitlines()}
    seeds = {name: line.split("--seeds=")[1].split()[0] for name, line in lines.items()}
    assert seeds == {
        "first/mrpc": "1", "students/cola": "1", "teachers/cola": "3", "teachers/rte": "4", "students/rte": "4",
    }  # fmt: skip
    # With a share of the teacher CoLA needs one too.
    assert "--teacher=runs/c/stages/teachers/cola" in lines["students/cola"] and not Path("runs").exists()
    assert list(lines) == ["first/mrpc", "teachers/cola", "students/cola", "teachers/rte", "students/rte"]


def test_selected_tasks_include_their_prerequisites(place: Place) -> None:
    place.run("--tasks=cola", "--data_dir=glue")
    assert names(place.calls()) == ["students/cola", "first/mrpc", "teachers/cola"]
    _, err = place.run()
    assert names(place.calls()) == ["teachers/rte", "students/rte"] and mentions(err, "3 already")


def test_a_failed_run_blocks_its_dependents_and_is_retried(place: Place) -> None:
    place.behave({"first/mrpc": {"exit": 1, "say": "bertzoo: no memory for it"}})
    _, err = place.run(code=1)
    assert names(place.calls()) == ["students/cola", "first/mrpc"] and mentions(err, "1 of 5", "failed")
    found = table()
    assert {name: line["state"] for name, line in found.items()} == {
        "students/cola": "finished", "first/mrpc": "failed", "teachers/cola": "waiting", "teachers/rte": "waiting",
        "students/rte": "waiting",
    }  # fmt: skip
    error = found["first/mrpc"]["error"]
    assert error.startswith("no memory for it") and "exit code 1" in error
    assert mentions(found["students/rte"]["error"], "first/mrpc", "teachers/rte")
    place.behave({})
    place.run()
    assert names(place.calls()) == ORDER[1:] and {line["error"] for line in table().values()} == {""}


def test_runs_side_by_side_wait_for_one_another(place: Place) -> None:
    place.behave({"teachers/": {"together": 4}})  # both teachers at once, after the two that need nothing
    _, err = place.run("--processes=2")
    found = names(place.calls())
    assert set(found[:2]) == {"students/cola", "first/mrpc"} and set(found[2:4]) == {"teachers/cola", "teachers/rte"}
    assert found[4] == "students/rte" and mentions(err, "2 side")


@pytest.mark.slow
def test_a_killed_chain_resumes(place: Place) -> None:
    place.behave({"teachers/cola": {"wait": True}})
    command = [sys.executable, "-c", PROGRAM, "chain", "chain.toml", "--run_dir=runs/c", *GIVEN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            for _ in range(1200):
                if Path("calls").exists() and len(Path("calls").read_text().splitlines()) == 3:
                    break
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
            for line in Path("calls").read_text().splitlines():
                try:
                    os.kill(json.loads(line)["pid"], signal.SIGKILL)
                except ProcessLookupError:
                    continue
    assert process.returncode == 3 and mentions(err, "stopped", "2 of 5"), err
    assert table()["teachers/cola"]["state"] == "stopped"
    place.calls()
    place.behave({})
    place.run()
    assert names(place.calls()) == ORDER[2:]


def test_other_options_of_a_started_run_raise(place: Place) -> None:
    place.run("--tasks=mrpc")
    _, err = place.run("--seeds=3", code=2)
    assert mentions(err, "first/mrpc.seeds", "'2'", "->", "'3'") and len(place.calls()) == 1
    place.run("--stages.students.seeds=3")  # of runs that have not
    assert [call["seeds"] for call in place.calls()] == ["3", "2", "2", "3"]
    Path("m/other").mkdir()
    Path("m/other/model.toml").touch()
    _, err = place.run("--model.teacher=m/other", "--stages.students.seeds=3", code=2, given=[GIVEN[0], GIVEN[2]])
    assert "first/mrpc.from: " in err


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (
            ('from = "first"\ntasks', 'from = "frist"\ntasks'),
            [],
            ("stages.teachers.from", "'frist'"),
        ),
        (('from = "first"\ntasks', 'from = "frist"\ntasks'), [], ("'frist'", "first")),
        (
            ('from = "teacher"\n', 'from = "teachers"\n'),
            [],
            ("stages.first.from", "'teachers'", "2 tasks", "mrpc"),
        ),
        (
            ('from = "teacher"\n', 'from = "again"\n'),
            [],
            ("first/mrpc", "again/mrpc", "circle"),
        ),
        (("tasks = [", "task = ["), [], ("unknown", "stages.first.task", "tasks")),
        (("seeds = 2", "run_dir = 2"), [], ("options.run_dir",)),
        (("alpha = 0.9", "alfa = 0.9"), [], ("--alfa", "--alpha")),
        (("alpha = 0.9", "alpha = 9"), [], ("alpha = 9.0",)),
        (('"squeezebert_dev"', '"squeezebert"'), [], ("chain.table", "'squeezebert'", "unknown")),
        (("[stages.first]", "[stages.student]"), [], ("student ", "model", "stage")),
        (('from = "teacher"\n', ""), [], ("stages.first.tasks.mrpc", "stages.first.from")),
        (("", ""), ["--model.techer=m"], ("teacher", "--model.techer")),
        (("", ""), ["--model.teacher=m"], ("m is not a ", "Hugging Face")),
        (("", ""), ["--data_dir=nowhere"], ("nowhere", "train", "CoLA")),
        (("", ""), ["--tasks=sst2"], ("--tasks", "sst2")),
        (("", ""), ["--stages.studens.seeds=1"], ("--stages.studens.seeds", "students")),
        (("", ""), ["--from=m/student"], ("--from ", "cannot")),
    ],
)
def test_impossible_options_raise_before_anything_starts(
    place: Place, change: tuple[str, str], options: list[str], message: tuple[object, ...]
) -> None:
    text = CHAIN.replace(*change, 1) if change[0] else CHAIN
    if "again" in change[1]:
        text += '[stages.again]\nfrom = "teachers"\ntasks = ["mrpc"]\n'.replace('"teachers"', '"first"')
    Path("chain.toml").write_text(text)
    given = GIVEN if not any(option.startswith("--model") for option in options) else GIVEN[:1]
    _, err = place.run(*options, code=2, given=given)
    assert mentions(err, *message) and err.count("\n") == 1
    assert not place.calls() and not Path("runs").exists()


def test_a_missing_model_option_raises(place: Place) -> None:
    _, err = place.run(code=2, given=GIVEN[:1])
    assert mentions(err, "teacher", "--model.teacher")
    place.run("--tasks=cola", "--stages.teachers.seeds=1", code=2, given=GIVEN[:1])
    Path("chain.toml").write_text(
        CHAIN.split("[stages.first]")[0].replace('from = "first", alpha = 0.9', "alpha = 1.0")
    )
    place.run(given=[GIVEN[0], GIVEN[2]])  # its students have no teacher
    assert names(place.calls()) == ["students/cola", "students/rte"]


def test_questions_have_a_place_in_a_chain(place: Place) -> None:
    asked = '[stages.answers]\nfrom = "first"\ntasks.squad1 = { max_length = 96, squad.stride = 32 }\n'
    Path("chain.toml").write_text(CHAIN + asked)
    options = ["--tasks=squad1", "--tasks.squad1.data_dir=squad"]
    for more, message in (
        ([], ("squad/train-v1.1.json", "exist")),
        (["--stages.answers.max_length=64"], ("max_length = 64", "room")),
        (["--stages.answers.alpha=0.5"], ("alpha = 0.5", "squad1", "teacher")),
    ):
        _, err = place.run(*options, *more, code=2)
        assert mentions(err, *message) and err.count("\n") == 1 and not place.calls() and not Path("runs").exists()
    question = {"id": "0", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}]}
    article = {"title": "A", "paragraphs": [{"context": "Ada was it.", "qas": [question]}]}
    Path("squad").mkdir()
    for split in ("train", "dev"):
        Path("squad", f"{split}-v1.1.json").write_text(json.dumps({"data": [article]}))
    place.run(*options)
    first, answers = place.calls()
    assert names([first, answers]) == ["first/mrpc", "answers/squad1"] and answers["data_dir"] == "squad"
    assert answers["from"] == "runs/c/stages/first/mrpc" and "teacher" not in answers


def test_a_teacher_at_alpha_1_raises_before_anything_starts(place: Place) -> None:
    Path("chain.toml").write_text(CHAIN.replace("alpha = 0.9, ", ""))
    _, err = place.run(code=2)
    assert mentions(err, "stages/teachers/rte", "alpha = 1") and not place.calls()


PAPER = {"mnli": "MNLI-m", "qqp": "QQP", "qnli": "QNLI", "sst2": "SST-2", "cola": "CoLA", "stsb": "STS-B"}
PAPER |= {"mrpc": "MRPC", "rte": "RTE"}
KEYS = {"final_dropout": "dropout", "learning_rate": "optimizer.learning_rate"}


def test_squeezeberts_chain_has_the_choices_of_its_table_5() -> None:
    made = chain.load_chain("squeezebert_glue")
    runs = {link.name: link for link in made.links}
    assert len(runs) == 16 and made.models == ("student", "teacher")
    for task, called in PAPER.items():
        link = runs[f"student_mnli/{task}" if task == "mnli" else f"students/{task}"]
        for name, (value,) in settings("SqueezeBERT", "5")[called].items():
            assert float(link.options[KEYS.get(name, name)]) == float(value), (task, name)
        begins = {"mnli": "student", "cola": "student"}.get(task, "student_mnli/mnli")
        teachers = {"mnli": "teacher_mnli/mnli"}.get(task, f"teachers/{task}")
        alone = float(settings("SqueezeBERT", "5")[called]["alpha"][0]) == 1
        assert link.links == {"from": begins} | ({} if alone else {"teacher": teachers})
        taught = runs[teachers]
        assert taught.links == {"from": "teacher" if task == "mnli" else "teacher_mnli/mnli"}


def test_squeezeberts_chain_shows_its_command() -> None:
    header = config.find("squeezebert_glue").read_text(encoding="utf-8").split("\n[")[0]
    assert "bertzoo chain squeezebert_glue " in header and "Expected" in header and "Source" in header
    printed = [value for value in published.paper_values() if value.paper == "SqueezeBERT" and value.table == "2"]
    found = {
        v.metric: v.value for v in printed if v.section == "dev, with bells and whistles" and v.model == "SqueezeBERT"
    }
    assert mentions(header, f" {found['glue_avg']}", f"{found['mnli_m']}/{found['mnli_mm']}", "MNLI")
