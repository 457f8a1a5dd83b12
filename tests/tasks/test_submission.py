"""The zip that GLUE's leaderboard takes, read back as its files say."""

import zipfile

import pytest
from messages import mentioning

from bertzoo.core.errors import UserError
from bertzoo.tasks import glue
from bertzoo.tasks.glue import GLUE, check_files, check_rows, write_submission

# The rows of GLUE's test sets, without their headers.
ROWS = {"CoLA.tsv": 1063, "SST-2.tsv": 1821, "MRPC.tsv": 1725, "STS-B.tsv": 1379, "QQP.tsv": 390_965}
ROWS |= {"MNLI-m.tsv": 9796, "MNLI-mm.tsv": 9847, "QNLI.tsv": 5463, "RTE.tsv": 3000, "WNLI.tsv": 146, "AX.tsv": 1104}


@pytest.fixture
def few(monkeypatch):
    """Test sets of four rows."""
    monkeypatch.setattr(glue, "FILES", {name: (file, 4) for name, (file, _) in glue.FILES.items()})


def predicted(without=()):
    """For every task the last label in each row, for STS-B numbers above the range; rows in reverse order."""
    last = {n: 7.25 if n == "stsb" else len(GLUE[n.partition("_")[0]].labels) - 1 for n in glue.FILES}
    rows = {name: reversed(range(count)) for name, (_, count) in glue.FILES.items() if name not in without}
    return {name: {str(i): last[name] for i in several} for name, several in rows.items()}


def read(path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_a_submission_has_the_official_files_and_rows(tmp_path):
    write_submission(tmp_path / "glue.zip", predicted(without=("wnli",)))
    files = read(tmp_path / "glue.zip")
    assert {name: text.count("\n") - 1 for name, text in files.items()} == ROWS
    assert all(text.startswith("index\tprediction\n0\t") for text in files.values())


def test_labels_are_spelt_as_the_leaderboard_does(few, tmp_path):
    write_submission(tmp_path / "glue.zip", predicted(), wnli="predicted")
    said = {name: text.split("\n")[1:-1] for name, text in read(tmp_path / "glue.zip").items()}
    words = {"MNLI-m.tsv": "neutral", "MNLI-mm.tsv": "neutral", "AX.tsv": "neutral"}
    words |= {"QNLI.tsv": "not_entailment", "RTE.tsv": "not_entailment", "STS-B.tsv": "5.000000"}
    assert said == {name: [f"{i}\t{words.get(name, '1')}" for i in range(4)] for name in ROWS}


def test_wnli_is_the_majority_unless_predicted(few, tmp_path):
    write_submission(tmp_path / "a.zip", predicted())
    assert read(tmp_path / "a.zip")["WNLI.tsv"] == "index\tprediction\n0\t0\n1\t0\n2\t0\n3\t0\n"
    rest = [name for name in glue.FILES if name != "wnli"]
    check_files(rest, "majority")
    with pytest.raises(UserError, match=mentioning("predictions", "wnli")):
        check_files(rest, "predicted")


def test_equal_predictions_make_equal_files(few, tmp_path):
    for name in ("a.zip", "b.zip"):
        write_submission(tmp_path / name, predicted())
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rte": dict.fromkeys("0123", 2)}, ("row 0", "rte", 2, "entailment, not_entailment")),
        ({"rte": dict.fromkeys("0123", 0.5)}, ("row 0", "rte", 0.5)),
        ({"rte": dict.fromkeys("0123", float("nan"))}, ("row 0", "rte", "nan")),
        ({"stsb": dict.fromkeys("0123", float("nan"))}, ("row 0", "stsb", "nan", "finite")),
    ],
)
def test_errors_name_wrong_predictions(few, tmp_path, change, message):
    with pytest.raises(UserError, match=mentioning(*message)):
        write_submission(tmp_path / "glue.zip", {**predicted(), **change})
    assert not list(tmp_path.iterdir())


def test_a_number_below_the_range_is_clipped(few, tmp_path):
    write_submission(tmp_path / "glue.zip", predicted() | {"stsb": {"0": -0.5, "1": 0.1234567, "2": 5, "3": 2}})
    assert read(tmp_path / "glue.zip")["STS-B.tsv"].split("\n")[1:3] == ["0\t0.000000", "1\t0.123457"]


def test_missing_and_unknown_test_sets_are_named():
    with pytest.raises(UserError, match=mentioning("predictions", "qqp, ax")):
        check_files([name for name in glue.FILES if name not in ("ax", "qqp")], "predicted")
    with pytest.raises(UserError, match=mentioning("mnli", "cola, sst2")):
        check_files([*glue.FILES, "mnli"], "majority")


@pytest.mark.parametrize(("keys", "named"), [("02", "1, 3"), ("01234", "4"), ("0112", "3, 1")])
def test_missing_repeated_and_unknown_rows_are_named(few, keys, named):
    check_rows("rte", list("3120"))
    with pytest.raises(UserError, match=mentioning("rte", "4 rows", named)):
        check_rows("rte", list(keys))
