"""Runs as the papers' tables: rows, notes and errors."""

import csv
import io
import json
from pathlib import Path

import pytest
from made import TABLE_2, begin, dev, finish, glue, mnli, results
from messages import mentions

from bertzoo.cli import main as cli
from bertzoo.finetuning.results import layouts, published, render, rows, runs
from bertzoo.tasks import averages

# By hand, from the paper's page.
QUOTED_2 = (
    "| SqueezeBERT, trained by the authors (dagger); none "
    "| quoted: SqueezeBERT, Table 2, dev, without bells and whistles "
    "| 51.1 | 82.3 | 82.9 | 89.4 | 90.5 | 92.0 | 53.7 | 89.4 | 89.8 | 71.8 | 82.4 |"
)


SQUAD_2 = dev(exact=70, f1=75, best_exact=77, best_exact_thresh=-1.5, best_f1=80, best_f1_thresh=-2.5)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def shown(capsys: pytest.CaptureFixture, *argv: str, code: int = 0) -> tuple[str, str]:
    assert cli.main(["results", *argv]) == code
    captured = capsys.readouterr()
    return captured.out, captured.err


def measured(*names: str, table: str = "squeezebert_dev") -> rows.ResultTable:
    found, wrong = runs.collect_runs(names)
    assert not wrong
    whole = rows.build_table(layouts.PAPER_TABLES[table], found)
    return rows.ResultTable(
        layout=whole.layout, rows=[r for r in whole.rows if r.origin == "measured here"], notes=whole.notes
    )


def test_a_papers_rows_are_as_printed_with_ours_beside_them(capsys: pytest.CaptureFixture) -> None:
    glue(Path("runs/glue"))
    out, err = shown(capsys, "runs/glue")
    lines = [line for line in out.splitlines() if line.startswith("| ")]
    assert lines[0] == (
        "| model |  | parameters (M) | MNLI-m | MNLI-mm | QQP | QNLI | SST-2 | CoLA | STS-B | MRPC | RTE | average |"
    )
    assert QUOTED_2 in lines and len(lines) == 2 + 9 + 1 and not err
    # The same scores measured give the same row, with the same average.
    assert lines[-1] == (
        "| squeezebert | measured here: runs/glue, from runs/first "
        "| 51.1 | 82.3 | 82.9 | 89.4 | 90.5 | 92.0 | 53.7 | 89.4 | 89.8 | 71.8 | 82.4 |"
    )


@pytest.mark.parametrize("name", layouts.PAPER_TABLES)
def test_every_printed_number_is_in_its_place(name: str) -> None:
    layout = layouts.PAPER_TABLES[name]
    table = rows.build_table(layout, [])
    sources = published.paper_rows(layout.paper, layout.tables, layout.sections)
    assert len(table.rows) == len(sources) > 3
    metrics = {column.name: column.metric for column in layout.columns}
    for row, source in zip(table.rows, sources, strict=True):
        assert {name: cell.text for name, cell in row.cells.items()} == {
            name: source.values[metric].value for name, metric in metrics.items() if metric in source.values
        }
        assert (row.average and row.average.text) == getattr(source.values.get(layout.average), "value", None)
        # Nothing that a paper prints of a task is left out.
        sizes = {"params_m", "flops_g", "latency_ms", "speedup", "train_flops", "train_flops_rel", layout.average}
        sizes |= {"h_inter", "h_intra", "heads", "ffn_count", "mha_params_m", "ffn_params_m"}
        sizes |= {"layers", "hidden_dim", "head_dim", "groups"}
        assert source.values.keys() <= {*metrics.values(), *sizes}
    assert not layout.convention or layout.convention in averages.AVERAGES


def test_every_table_of_scores_can_be_printed() -> None:
    tasks = {column.metric for layout in layouts.PAPER_TABLES.values() for column in layout.columns} | {
        "glue_avg",
        "avg",
    }
    scores = {(value.paper, value.table) for value in published.paper_values() if value.metric in tasks}
    assert scores == {(layout.paper, table) for layout in layouts.PAPER_TABLES.values() for table in layout.tables}


def test_medians_of_the_seeds_with_lowest_and_highest() -> None:
    finish(Path("runs/cola"), "cola", dev(matthews=50), dev(matthews=55.5), dev(matthews=48.25))
    finish(Path("runs/mrpc"), "mrpc", dev(accuracy=80, f1=90), dev(accuracy=84, f1=88), dev(accuracy=82, f1=92))
    (row,) = measured("runs").rows
    assert row.cells["CoLA"] == rows.Cell(value=50, text="50.0 (48.2–55.5)", low=48.25, high=55.5, seeds=3)
    # The mean of the medians 82 and 90; the seeds' means are 85, 86 and 87.
    mrpc = row.cells["MRPC"]
    assert (mrpc.text, mrpc.value) == ("86.0 (85.0–87.0)", pytest.approx(86))


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        # By hand: (82.6 + 89.4 + 90.5 + 92.0 + 53.7 + 89.4 + 89.8 + 71.8) / 8
        ("squeezebert_dev", 659.2 / 8),
        # matched, accuracy, Spearman: (82.3 + 90.5 + 90.9 + 71.8 + 92.0 + 88.2 + 53.7 + 89.2) / 8
        ("convbert_dev", 658.6 / 8),
        ("schubert", (90 + 80 + 82.3 + 88.2 + 92.0 + 71.8) / 6),
    ],
)
def test_each_paper_averages_in_its_own_way(table: str, expected: float) -> None:
    glue(Path("runs/glue"))
    finish(Path("runs/glue/squad1"), "squad1", dev(exact_match=83, f1=90))
    finish(Path("runs/glue/squad2"), "squad2", SQUAD_2)
    (row,) = measured("runs/glue", table=table).rows
    assert row.average and row.average.value == pytest.approx(expected)


def test_squad_scores_stand_beside_published_ones(capsys: pytest.CaptureFixture) -> None:
    finish(Path("runs/squad1"), "squad1", dev(exact_match=80, f1=90), dev(exact_match=82, f1=91))
    finish(Path("runs/squad2"), "squad2", SQUAD_2)
    out, err = shown(capsys, "runs")
    lines = [line for line in out.splitlines() if line.startswith("| ")]
    columns = "| model |  | parameters (M) | SQuAD 1.1 EM | SQuAD 1.1 F1 | SQuAD 2.0 EM | SQuAD 2.0 F1 |"
    assert out.startswith("## SQuAD, development sets (ConvBERT, Table 4)") and lines[0] == columns and not err
    # By hand, from the paper's page.
    assert any(
        line.startswith("| ConvBERT-base, 1M updates |") and line.endswith("| 84.7 | 90.9 | 80.6 | 83.1 |")
        for line in lines
    )
    assert lines[-1].startswith("| squeezebert | measured here: runs, from runs/first | 51.1 ")
    assert lines[-1].endswith("| 51.1 | 81.0 (80.0–82.0) | 90.5 (90.0–91.0) | 77.0 | 80.0 |")
    assert mentions(out, "squad2: ", "threshold", "F1", "75.0")
    # Beside runs of GLUE, a note names its table.
    finish(Path("runs/rte"), "rte", dev(accuracy=70))
    out, err = shown(capsys, "runs")
    assert out.startswith("## GLUE, development sets (SqueezeBERT, Table 2)") and "| 70.0 |" in out
    for line, task in zip(err.splitlines(), ("squad1", "squad2"), strict=True):
        assert line.startswith("left out: ") and mentions(line, task, "squeezebert_dev", "--table=convbert_squad")
    _, err = shown(capsys, "runs/squad1", "--table=squeezebert_dev", code=2)
    assert mentions(err, "squad1", "squeezebert_dev", "--table=convbert_squad")
    out, _ = shown(capsys, "runs/squad1", "--table=mobilebert_search")
    assert "| MobileBERT, h_intra=128 | quoted: MobileBERT, Table 3," in out and "| 83.4 |" in out and "| 90.5 (" in out


def test_the_average_of_the_test_sets_counts_the_majority_on_wnli(capsys: pytest.CaptureFixture) -> None:
    for task, scores in TABLE_2.items():
        finish(Path("runs") / task, task, {split.replace("dev", "test"): each for split, each in scores.items()})
    table = measured("runs", table="squeezebert_test")
    (row,) = table.rows
    assert row.average and row.average.value == pytest.approx((659.2 + 65.1) / 9)
    assert any("WNLI" in note and "65.1" in note for note in table.notes) and "WNLI" not in row.cells
    # Scores of development sets do not appear among those of test sets.
    _, err = shown(capsys, "runs", "--table=squeezebert_dev", code=2)
    assert mentions(err, "cola", "squeezebert_dev", "--table=squeezebert_test")


def leaderboard(name: str, **changes: float) -> Path:
    """A file of test scores, equal to TABLE_2."""
    scores = {
        f"{task}{split.removeprefix('dev')}/{metric}": value
        for task, splits in TABLE_2.items()
        for split, found in splits.items()
        for metric, value in found.items()
    }
    Path(name).write_text("".join(f"{line}\n" for line in ["score,value", *(f"{k},{v}" for k, v in scores.items())]))
    return Path(name)


def test_leaderboard_scores_have_their_own_row(capsys: pytest.CaptureFixture) -> None:
    leaderboard("mine.csv")
    out, err = shown(capsys, "--leaderboard=mine.csv")  # uses the first table of test sets
    line = next(line for line in out.splitlines() if "by the leaderboard: mine.csv" in line)
    assert line.startswith("| mine | by the leaderboard: mine.csv |  | 82.3 | 82.9 |") and not err
    assert line.endswith(f"| {(659.2 + 65.1) / 9:.1f} |") and mentions(out, "WNLI", "65.1")
    Path("mine.csv").write_text(Path("mine.csv").read_text() + "wnli/accuracy,34.9\n")
    line = next(line for line in shown(capsys, "--leaderboard=mine.csv")[0].splitlines() if "leaderboard: mine" in line)
    assert line.endswith(f"| 34.9 | {(659.2 + 34.9) / 9:.1f} |")
    out, _ = shown(capsys, "--leaderboard=mine.csv", "--table=mobilebert_test", "--csv")
    assert mentions(out, "leaderboard,mine.csv,,CoLA,53.7,,,")
    err = shown(capsys, "--leaderboard=mine.csv", "--table=convbert_dev", code=2)[1]
    assert mentions(err, "mine.csv", "convbert_dev") and "--table=squeezebert_test" in err


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["rte/acuracy,3"], ("line 2", "'rte/acuracy'", "rte/accuracy")),
        (["rte/accuracy,high"], ("line 2", "rte/accuracy", "'high'", -100, " 100")),
        (["rte/accuracy,nan"], ("line 2", "rte/accuracy", "'nan'")),
        (["rte/accuracy,101"], ("line 2", "rte/accuracy", "'101'")),
        (["rte/accuracy,70", "rte/accuracy,71"], ("line 3", "rte/accuracy", "twice")),
        (["rte/accuracy"], ("line 2", "columns")),
        ([], ("mine.csv", "score", "value")),
    ],
)
def test_scores_of_the_leaderboard_are_known_numbers(
    lines: list[str], message: tuple[object, ...], capsys: pytest.CaptureFixture
) -> None:
    Path("mine.csv").write_text("\n".join(["score,value", *lines]) + "\n")
    err = shown(capsys, "--leaderboard=mine.csv", code=2)[1]
    assert mentions(err, *message) and err.count("\n") == 1


def test_missing_scores_are_blank_named_and_prevent_an_average() -> None:
    glue(Path("runs/glue"))
    for task in ("qqp", "mnli"):
        (Path("runs/glue") / task / "results.json").unlink()
        (Path("runs/glue") / task / "config.toml").unlink()
    table = measured("runs/glue")
    (row,) = table.rows
    assert row.average is None and set(row.cells) == {"QNLI", "SST-2", "CoLA", "STS-B", "MRPC", "RTE"}
    (note,) = table.notes
    assert mentions(note, "squeezebert", "runs/glue", "runs/first", "average", "MNLI-m,", "MNLI-mm", "QQP")
    line = render.markdown(table).splitlines()[4]
    assert line.endswith("| 51.1 |  |  |  | 90.5 | 92.0 | 53.7 | 89.4 | 89.8 | 71.8 |  |")


def test_rows_are_runs_of_one_model_in_one_place() -> None:
    """A run that starts from a fine-tuned model belongs to that model's source."""
    finish(Path("a/mnli"), "mnli", mnli(82, 83))
    (Path("a/mnli/run.json")).write_text(json.dumps({"from": {"path": "/models/first", "parameters_sha256": "0"}}))
    finish(Path("a/rte"), "rte", dev(accuracy=70), **{"from": "a/mnli/model"})
    finish(Path("a/cola"), "cola", dev(matthews=50), **{"from": "/models/first"})
    finish(Path("a/sst2"), "sst2", dev(accuracy=90), **{"from": "/models/second"})
    finish(Path("a/qnli"), "qnli", dev(accuracy=88), model={"kind": "bert", "parameters": 1})
    finish(Path("b/rte"), "rte", dev(accuracy=72), **{"from": "/models/first"})
    by = {row.source: (row.model, set(row.cells)) for row in measured("a", "b").rows}
    assert by == {
        "a, from /models/first": ("squeezebert", {"MNLI-m", "MNLI-mm", "RTE", "CoLA"}),
        "a, from /models/second": ("squeezebert", {"SST-2"}),
        "a, from runs/first": ("bert", {"QNLI"}),
        "b, from /models/first": ("squeezebert", {"RTE"}),
    }
    # Runs named one by one lie in one place, too, and none counts twice.
    (row,) = measured("a/cola", "a/rte", "a/rte").rows
    assert row.source == "a, from /models/first" and set(row.cells) == {"CoLA", "RTE"}


def test_the_best_of_several_runs_of_a_task_is_shown_and_named() -> None:
    for name, scores in {"x": (50, 51, 52), "y": (40, 60, 70), "z": (10, 11, 12)}.items():
        finish(Path("sweep") / name, "cola", *(dev(matthews=score) for score in scores))
    table = measured("sweep")
    (row,) = table.rows
    assert row.cells["CoLA"].text == "60.0 (40.0–70.0)"
    (note,) = [note for note in table.notes if "sweep/" in note and "3 runs" in note]
    assert mentions(note, "cola", "sweep/y")


def test_collapse_and_partial_training_are_marked() -> None:
    whole = results("cola", [dev(matthews=0), dev(matthews=40)], config={"task": "cola", "train_rows": 2000})
    whole["seeds"][0]["collapsed"] = True
    (begin(Path("runs/cola"), "cola") / "results.json").write_text(json.dumps(whole))
    notes = measured("runs").notes
    (collapsed,), (part,) = ([note for note in notes if words in note] for words in ("1 of 2", "2,000"))
    assert mentions(collapsed, "cola: ", "seeds", "runs/cola") and mentions(part, "cola: ", "examples", "runs/cola")


def test_other_forms(capsys: pytest.CaptureFixture) -> None:
    glue(Path("runs/a_&_b"))
    finish(Path("runs/a_&_b/x"), "cola", dev(matthews=60), dev(matthews=62))
    out, err = shown(capsys, "runs/a_&_b", "--csv")
    assert mentions(err, "cola", "runs/a_&_b/x", "2 runs")  # for which a line a number has no place
    lines = list(csv.DictReader(io.StringIO(out)))
    (cola,) = [line for line in lines if line["origin"] == "measured here" and line["column"] == "CoLA"]
    assert (cola["value"], cola["low"], cola["high"], cola["seeds"]) == ("61", "60", "62", "2")
    assert sum(line["origin"] == "quoted" and line["column"] == "average" for line in lines) == 3
    whole = json.loads(shown(capsys, "runs/a_&_b", "--json")[0])
    assert whole["rows"][-1]["cells"]["CoLA"] == {
        "value": 61.0,
        "text": "61.0 (60.0–62.0)",
        "low": 60.0,
        "high": 62.0,
    } | {"seeds": 2}
    assert whole["columns"][0] == "MNLI-m" and any("2 runs" in note for note in whole["notes"])


def test_without_a_directory_only_the_papers_rows_are_shown(capsys: pytest.CaptureFixture) -> None:
    out, _ = shown(capsys, "--table=mobilebert_test")
    assert "| MobileBERT, w/o OPT | quoted: MobileBERT, Table 4, GLUE test | 25.3 | 51.1 | 92.6 | 88.8 | 84.8 |" in out
    assert "measured here:" not in out


def broken(name: str) -> tuple[object, ...]:
    """Writes a run with one thing wrong and returns the parts that its message must name."""
    path, whole = begin(Path("runs") / name, "rte"), results("rte", [dev(accuracy=70)])
    if name == "unfinished":
        return path, "is unfinished", "results.json"
    said = {
        "cut": ("be read",),
        "list": ("not an object",),
        "version": ("version 2",),
        "points": ("seeds[0].scores.dev.accuracy", "170.0"),
        "nan": ("seeds[0].scores.dev.accuracy", " nan"),
        "text": ("'high'",),
        "more": ("seeds[1].scores.dev.accuracy", "missing", "seeds[0]", "70"),
        "seedless": ("seeds is empty",),
    }
    texts = {
        "cut": json.dumps(whole)[:-9],
        "list": "[]",
        "version": json.dumps(whole | {"version": 2}),
        "points": json.dumps(results("rte", [{"dev": {"accuracy": 170.0}}])),
        "nan": json.dumps(results("rte", [dev(accuracy=float("nan"))])),
        "text": json.dumps(whole | {"seeds": [whole["seeds"][0] | {"scores": {"dev": {"accuracy": "high"}}}]}),
        "more": json.dumps(whole | {"seeds": [whole["seeds"][0], whole["seeds"][0] | {"scores": {"dev": {}}}]}),
        "seedless": json.dumps(whole | {"seeds": []}),
    }
    (path / "results.json").write_text(texts[name])
    return said[name]


NAMES = ("unfinished", "cut", "list", "version", "points", "nan", "text", "more", "seedless")


@pytest.mark.parametrize("name", NAMES)
def test_errors_name_damaged_and_unfinished_runs(capsys: pytest.CaptureFixture, name: str) -> None:
    words = broken(name)
    out, err = shown(capsys, "runs", code=2)
    assert mentions(err, *words) and err.count("\n") == 1 and f"runs/{name}" in err and not out
    finish(Path("runs/cola"), "cola", dev(matthews=50))
    out, err = shown(capsys, "runs")
    assert err.startswith("left out: ") and mentions(err, *words) and err.count("\n") == 1
    assert "measured here: runs" in out


def test_a_directory_without_runs_raises(capsys: pytest.CaptureFixture) -> None:
    Path("empty/deeper").mkdir(parents=True)
    Path("empty/deeper/config.toml").write_text("[model]\nkind = 'bert'\n")  # of a pretraining run
    err = shown(capsys, "empty", code=2)[1]
    assert err.startswith("bertzoo: ") and err.count("\n") == 1 and mentions(err, "empty", "fine-tuning")
    assert mentions(shown(capsys, "runs/none", code=2)[1], "runs/none", "directory")
    assert mentions(shown(capsys, "gs://x", code=2)[1], "gs://x", "URL")
    assert mentions(shown(capsys, "runs", "--table=convbert", code=2)[1], "--table", "'convbert'")
    assert mentions(shown(capsys, "runs", "--csv", "--json", code=2)[1], "argument --csv", "argument --json")
