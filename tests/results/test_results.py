"""`bertzoo results`: rows, notes, formats and errors."""

import json
from pathlib import Path

import pytest
from made import TABLE_2, begin, dev, finish, glue, mnli, results
from messages import mentions

from bertzoo.cli import main as cli
from bertzoo.finetuning.results import Cell, ResultRow, best_runs, build_rows, collect_runs


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def shown(capsys: pytest.CaptureFixture, *argv: str, code: int = 0) -> tuple[str, str]:
    assert cli.main(["results", *argv]) == code
    captured = capsys.readouterr()
    return captured.out, captured.err


def measured(*names: str) -> tuple[list[ResultRow], list[str]]:
    found, wrong = collect_runs(names)
    assert not wrong
    groups, notes = best_runs(found)
    return build_rows(groups), notes


def test_every_score_of_every_task_has_its_column(capsys: pytest.CaptureFixture) -> None:
    glue(Path("runs/glue"))
    (row,), notes = measured("runs/glue")
    assert row[:3] == ("squeezebert", "runs/glue, from runs/first", "51.1") and not notes
    assert {name: cell.value for name, cell in row.cells.items()} == {
        f"{task} {split} {metric}": value
        for task, splits in TABLE_2.items()
        for split, named in splits.items()
        for metric, value in named.items()
    }
    finish(Path("runs/more/squad2"), "squad2", dev(exact=70, best_exact=77, best_exact_thresh=-1.5))
    finish(Path("runs/more/cola"), "cola", dev(matthews=50), dev(matthews=55.5), dev(matthews=48.25))
    out, err = shown(capsys, "runs/more")
    assert out.splitlines()[0] == (
        "| model | runs | parameters (M) | cola dev matthews | squad2 dev exact | squad2 dev best_exact |"
    )
    assert "| 51.1 | 50.0 (48.2–55.5) | 70.0 | 77.0 |" in out and not err  # thresholds are no scores


def test_rows_are_runs_of_one_model_in_one_place() -> None:
    """A run that starts from a fine-tuned model belongs to that model's source."""
    finish(Path("a/mnli"), "mnli", mnli(82, 83))
    (Path("a/mnli/run.json")).write_text(json.dumps({"from": {"path": "/models/first", "parameters_sha256": "0"}}))
    finish(Path("a/rte"), "rte", dev(accuracy=70), **{"from": "a/mnli/model"})
    finish(Path("a/cola"), "cola", dev(matthews=50), **{"from": "/models/first"})
    finish(Path("a/sst2"), "sst2", dev(accuracy=90), **{"from": "/models/second"})
    finish(Path("a/qnli"), "qnli", dev(accuracy=88), model={"kind": "bert", "parameters": 1})
    finish(Path("b/rte"), "rte", dev(accuracy=72), **{"from": "/models/first"})
    by = {row.source: (row.model, {name.split()[0] for name in row.cells}) for row in measured("a", "b")[0]}
    assert by == {
        "a, from /models/first": ("squeezebert", {"mnli", "rte", "cola"}),
        "a, from /models/second": ("squeezebert", {"sst2"}),
        "a, from runs/first": ("bert", {"qnli"}),
        "b, from /models/first": ("squeezebert", {"rte"}),
    }
    # Runs named one by one lie in one place, too, and none counts twice.
    (row,), _ = measured("a/cola", "a/rte", "a/rte")
    assert row.source == "a, from /models/first" and set(row.cells) == {"cola dev matthews", "rte dev accuracy"}


def test_the_best_of_several_runs_of_a_task_is_shown_and_named() -> None:
    for name, scores in {"x": (50, 51, 52), "y": (40, 60, 70), "z": (10, 11, 12)}.items():
        finish(Path("sweep") / name, "cola", *(dev(matthews=score) for score in scores))
    (row,), (note,) = measured("sweep")
    assert row.cells["cola dev matthews"] == Cell(60, 40, 70, 3) and mentions(note, "cola", "sweep/y", "3 runs")


def test_collapse_and_partial_training_are_marked() -> None:
    whole = results("cola", [dev(matthews=0), dev(matthews=40)], config={"task": "cola", "train_rows": 2000})
    whole["seeds"][0]["collapsed"] = True
    (begin(Path("runs/cola"), "cola") / "results.json").write_text(json.dumps(whole))
    _, notes = measured("runs")
    (collapsed,), (part,) = ([note for note in notes if words in note] for words in ("1 of 2", "2,000"))
    assert mentions(collapsed, "cola: ", "seeds", "runs/cola") and mentions(part, "cola: ", "examples", "runs/cola")


def test_json_has_scores_and_notes(capsys: pytest.CaptureFixture) -> None:
    glue(Path("runs/a_&_b"))
    finish(Path("runs/a_&_b/x"), "cola", dev(matthews=60), dev(matthews=62))
    whole = json.loads(shown(capsys, "runs/a_&_b", "--json")[0])
    scores = {"value": 61.0, "low": 60.0, "high": 62.0, "seeds": 2, "text": "61.0 (60.0–62.0)"}
    assert whole["rows"][-1]["cells"]["cola dev matthews"] == scores
    assert "mnli dev_matched accuracy" in whole["columns"] and any("2 runs" in note for note in whole["notes"])


WHOLE = results("rte", [dev(accuracy=70)])
WORDS = WHOLE | {"seeds": [WHOLE["seeds"][0] | {"scores": {"dev": {"accuracy": "high"}}}]}
BROKEN = {  # results.json, and what the message must name
    "unfinished": (None, ("is unfinished", "results.json")),
    "cut": (json.dumps(WHOLE)[:-9], ("damaged",)),
    "list": ("[]", ("list", "object")),
    "version": (json.dumps(WHOLE | {"version": 2}), ("version", 2)),
    "text": (json.dumps(WORDS), ("high",)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_errors_name_damaged_and_unfinished_runs(capsys: pytest.CaptureFixture, name: str) -> None:
    path, (text, words) = begin(Path("runs") / name, "rte"), BROKEN[name]
    if text is not None:
        (path / "results.json").write_text(text)
    out, err = shown(capsys, "runs", code=2)
    assert mentions(err, *words) and err.count("\n") == 1 and f"runs/{name}" in err and not out
    finish(Path("runs/cola"), "cola", dev(matthews=50))
    out, err = shown(capsys, "runs")
    assert err.startswith("left out: ") and mentions(err, *words) and err.count("\n") == 1
    assert "| squeezebert | runs, from runs/first |" in out


def test_a_directory_without_runs_raises(capsys: pytest.CaptureFixture) -> None:
    Path("empty/deeper").mkdir(parents=True)
    Path("empty/deeper/config.toml").write_text("[model]\nkind = 'bert'\n")  # of a pretraining run
    err = shown(capsys, "empty", code=2)[1]
    assert err.startswith("bertzoo: ") and err.count("\n") == 1 and mentions(err, "empty", "fine-tuning")
    assert mentions(shown(capsys, "runs/none", code=2)[1], "runs/none", "directory")
    assert mentions(shown(capsys, "gs://x", code=2)[1], "gs://x", "URL")
