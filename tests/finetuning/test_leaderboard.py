"""A submission out of one model of each task, on test sets of four rows."""

import json
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import planted
import pytest
from messages import mentions

from bertzoo.cli import main as cli
from bertzoo.finetuning import evaluate
from bertzoo.finetuning.labels import LabelTask
from bertzoo.heads import SequenceClassification
from bertzoo.runs import load_model
from bertzoo.tasks import glue as submission
from bertzoo.tasks.glue import GLUE

ROWS = 4
TASKS = [name for name in GLUE if name != "ax"]
FILES = {name: (file, ROWS) for name, (file, _) in submission.FILES.items()}


@pytest.fixture(scope="module")
def glue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """GLUE's folders with test sets alone, and the diagnostic set in one of its own."""
    made, draw = tmp_path_factory.mktemp("glue"), np.random.default_rng(4)
    for layout in GLUE.values():
        columns = layout.tsv_test or layout.tsv
        for split in layout.test:
            rows = [[str(row), *(" ".join(draw.choice(planted.WORDS, 4)) for _ in columns)] for row in range(ROWS)]
            file = made / (layout.folders[1] if layout.name == "ax" else layout.folders[0]) / f"{split}.tsv"
            file = file.with_name("diagnostic.tsv") if layout.name == "ax" else file
            file.parent.mkdir(exist_ok=True)
            file.write_text("".join("\t".join(row) + "\n" for row in [[layout.tsv_key, *columns], *rows]))
    return made


@pytest.fixture(scope="module")
def models(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made, base = tmp_path_factory.mktemp("models"), load_model.read_model(folder / "model")
    for name in TASKS:
        labels = GLUE[name].labels or ("number",)
        problem = "single_label_classification" if GLUE[name].labels else "regression"
        head = SequenceClassification(labels=labels, problem_type=problem)
        planted.write(made / name, base.model, head, base.tokenizer, task=name, max_length=16)
    return {name: made / name for name in TASKS}


def submitted(models: list[Path], where: Path, *options: str, code: int = 0) -> Path:
    out = where / "glue.zip"
    assert cli.main(["submission", str(out), *map(str, models), *options]) == code
    return out


def read(path: Path) -> dict[str, list[list[str]]]:
    with zipfile.ZipFile(path) as archive:
        return {
            name: [line.split("\t") for line in archive.read(name).decode().splitlines()] for name in archive.namelist()
        }


@pytest.mark.slow
def test_every_test_set_is_predicted_by_the_model_of_its_task(models, glue, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(submission, "FILES", FILES)
    found = read(submitted([*models.values()], tmp_path, f"--data_dir={glue}", "--wnli=predicted"))
    assert sorted(found) == sorted(file for file, _ in FILES.values())
    assert all([row[0] for row in rows] == ["index", "0", "1", "2", "3"] for rows in found.values())
    capsys.readouterr()
    for name, (file, _) in FILES.items():
        task = "mnli" if name == "ax" else name.partition("_")[0]
        split = name.replace("mnli", "test") if "_" in name else "test"
        asked = ["predict", str(models[task]), f"--split={split}", f"--data_dir={glue}", "--json"]
        asked += ["--task=ax"] if name == "ax" else []
        assert cli.main(asked) == 0
        said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        wanted = [each["label"] if "label" in each else f"{each['number']:.6f}" for each in said]
        assert [row[1] for row in found[file][1:]] == wanted
    assert {row[1] for row in found["AX.tsv"][1:]} <= set(GLUE["mnli"].labels)
    assert {row[1] for row in found["QNLI.tsv"][1:]} <= {"entailment", "not_entailment"}
    usual = read(submitted([*models.values()], tmp_path, f"--data_dir={glue}"))
    assert [row[1] for row in usual["WNLI.tsv"][1:]] == ["0"] * ROWS
    assert mentions(capsys.readouterr().err, models["wnli"], "left out", "WNLI")


def test_the_folder_of_the_command_replaces_that_of_the_run(monkeypatch):
    model, read = SimpleNamespace(task_name="cola", recipe=SimpleNamespace(data_dir="of the run")), []
    model.task_class, model.task = LabelTask, lambda name: SimpleNamespace(adapt=lambda model: model)
    monkeypatch.setattr(evaluate, "load_task_model", lambda path: model)
    monkeypatch.setattr(evaluate, "_tests", lambda task, directory: read.append(directory) or {})
    monkeypatch.setattr(submission, "FILES", {"cola": ("CoLA.tsv", 0)})
    for data_dir in ("", "of the command"):
        evaluate.predict_test_sets([Path("m")], data_dir=data_dir, wnli="majority", batch_size=1)
    assert read == ["of the run", "of the command"]


def test_a_missing_model_raises_before_any_prediction(models, glue, folder, tmp_path, capsys):
    def error(paths: list[Path], *options: str) -> str:
        submitted(paths, tmp_path, *options, code=2)
        said = capsys.readouterr().err.splitlines()
        assert not list(tmp_path.iterdir()) and len(said) == 1
        return said[0]

    everything = [path for name, path in models.items() if name != "wnli"]
    fewer = [path for path in everything if path.name not in ("sst2", "rte")]
    assert mentions(error(fewer, f"--data_dir={glue}"), "predictions", "sst2, rte")
    # GLUE's own test sets have more rows than these.
    assert mentions(error(everything, f"--data_dir={glue}"), "1,063 rows", "cola", "4, 5")
    assert mentions(error([models["cola"], models["cola"]]), models["cola"], "both")
    assert mentions(error([folder / "model"]), folder / "model", "head", "task")
    assert mentions(error(everything, f"--data_dir={tmp_path}"), tmp_path, "test split", "CoLA")
    assert cli.main(["submission", str(tmp_path / "glue.tsv"), str(models["cola"])]) == 2
    assert mentions(capsys.readouterr().err, "glue.tsv", ".zip")
    (tmp_path / "glue.zip").mkdir()
    submitted(everything, tmp_path, f"--data_dir={glue}", code=2)
    assert mentions(capsys.readouterr().err, "glue.zip", "directory")


def test_the_diagnostic_set_is_found_beside_mnli(models: dict[str, Path], glue: Path, monkeypatch):
    monkeypatch.setattr(submission, "FILES", FILES)
    assert [example.key for example in evaluate._diagnostic(str(glue / "MNLI"))] == ["0", "1", "2", "3"]
