"""The averages of the papers, on rows that they print."""

import pytest
from messages import mentioning

from benchmarks.lib.averages import average, score_name
from bertzoo.core.errors import UserError
from bertzoo.tasks.glue import GLUE

SQUEEZEBERT = ("mnli_m", "mnli_mm", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte")
# SqueezeBERT (Iandola et al. 2020), Table 2, dev: BERT-base, SqueezeBERT without and with bells and whistles.
DEV = [
    ((85.2, 84.8, 89.9, 92.2, 92.7, 62.8, 90.7, 91.2, 76.5), 85.1),
    ((82.3, 82.9, 89.4, 90.5, 92.0, 53.7, 89.4, 89.8, 71.8), 82.4),
    ((82.5, 82.9, 89.5, 90.9, 92.2, 53.7, 90.3, 92.0, 80.9), 84.0),
]
# Table 3, test: BERT-base by the authors and of the leaderboard, SqueezeBERT without, BERT-of-Theseus, MobileBERT and
# SqueezeBERT with bells and whistles. MobileBERT's row is that of MobileBERT w/o OPT (Sun et al. 2020, Table 4): 78.5.
TEST = [
    ((84.4, 84.2, 80.5, 91.4, 92.8, 51.3, 86.9, 87.9, 70.7), 79.0),
    ((84.6, 83.4, 80.2, 90.5, 93.5, 52.1, 86.5, 86.9, 66.4), 78.3),
    ((82.0, 81.1, 80.1, 90.1, 91.0, 46.5, 84.9, 86.1, 66.7), 76.9),
    ((82.4, 82.1, 80.5, 89.6, 92.2, 47.8, 84.9, 85.4, 66.2), 77.1),
    ((84.3, 83.4, 79.4, 91.6, 92.6, 51.1, 85.5, 86.7, 70.4), 78.5),
    ((82.0, 81.1, 80.3, 90.1, 91.4, 46.5, 86.7, 87.8, 73.2), 78.1),
]
# ConvBERT (Jiang et al. 2020), Table 2, dev, and Table 3, test: mnli, qnli, qqp, rte, sst2, mrpc, cola, stsb.
CONVBERT = [
    ((78.9, 87.9, 88.3, 68.5, 88.3, 87.4, 56.8, 86.8), 80.4),
    ((79.9, 85.3, 89.2, 63.9, 86.9, 83.1, 53.4, 83.9), 78.2),
    ((81.1, 87.6, 90.1, 64.3, 88.9, 86.8, 59.3, 86.7), 80.6),
    ((81.5, 88.5, 88.0, 62.2, 89.2, 83.3, 54.8, 83.4), 78.9),
    ((88.3, 93.2, 90.0, 77.9, 95.7, 88.3, 67.8, 89.7), 86.4),
]
# schuBERT (Khetan and Karnin 2020), Table 6, dev: BERT-base, schuBERT-all, -f, BERT-all uniform, schuBERT-a.
SCHUBERT = [
    ((90.2, 80.4, 84.1, 87.8, 92.1, 71.4), 84.3),
    ((89.8, 80.1, 83.9, 87.5, 92.4, 71.1), 84.1),
    ((89.8, 79.6, 83.5, 87.4, 91.6, 70.7), 83.8),
    ((89.7, 79.8, 83.7, 87.2, 92.0, 69.8), 83.7),
    ((89.3, 79.1, 83.3, 86.8, 91.1, 69.1), 83.1),
]


def pairs(values, apart=0.0):
    """A row of SqueezeBERT's table as scores; its figure for two metrics is their mean."""
    row = dict(zip(SQUEEZEBERT, values, strict=True))
    scores = {f"{name}/accuracy": row[name] for name in ("qnli", "sst2", "rte")} | {"cola/matthews": row["cola"]}
    scores |= {"mnli_matched/accuracy": row["mnli_m"], "mnli_mismatched/accuracy": row["mnli_mm"]}
    for name, metrics in (("qqp", ("accuracy", "f1")), ("mrpc", ("accuracy", "f1")), ("stsb", ("pearson", "spearman"))):
        scores |= {
            f"{name}/{metric}": row[name] + shift for metric, shift in zip(metrics, (apart, -apart), strict=True)
        }
    return scores


@pytest.mark.parametrize(("values", "printed"), DEV)
def test_squeezebert_dev(values, printed):
    assert average("squeezebert_dev", pairs(values, 3.0)) == pytest.approx(printed, abs=0.0501)


@pytest.mark.parametrize(("values", "printed"), TEST)
@pytest.mark.parametrize("name", ["squeezebert_test", "mobilebert_test"])
def test_the_leaderboards(name, values, printed):
    # 78.3 is the leaderboard's figure for BERT-base; the mean of its rounded columns is 78.36.
    assert average(name, pairs(values, 3.0)) == pytest.approx(printed, abs=0.0501 if printed != 78.3 else 0.07)


@pytest.mark.parametrize(("values", "printed"), CONVBERT)
def test_convbert(values, printed):
    names = ("mnli_matched", "qnli", "qqp", "rte", "sst2", "mrpc")
    scores = {f"{name}/accuracy": value for name, value in zip(names, values, strict=False)}
    scores |= {"cola/matthews": values[6], "stsb/spearman": values[7]}
    other = {"mnli_mismatched/accuracy": 0.0, "qqp/f1": 0.0, "mrpc/f1": 0.0, "stsb/pearson": 0.0, "wnli/accuracy": 0.0}
    assert average("convbert", scores | other) == pytest.approx(printed, abs=0.0501)


@pytest.mark.parametrize(("values", "printed"), SCHUBERT)
def test_schubert(values, printed):
    names = ("squad1/f1", "squad2/best_f1", "mnli_matched/accuracy", "mrpc/accuracy", "sst2/accuracy", "rte/accuracy")
    assert average("schubert", dict(zip(names, values, strict=True))) == pytest.approx(printed, abs=0.0501)


def test_wnli_is_the_majoritys_score_by_default():
    scores = pairs(TEST[0][0])
    given = average("squeezebert_test", scores | {"wnli/accuracy": 65.1 - 9})
    assert average("squeezebert_test", scores) - given == pytest.approx(1)
    assert average("squeezebert_dev", scores | {"wnli/accuracy": 0.0}) == average("squeezebert_dev", scores)


def test_errors_name_missing_parts():
    with pytest.raises(UserError, match=mentioning("qqp/accuracy", "stsb/spearman")):
        average("convbert", {k: v for k, v in pairs(DEV[0][0]).items() if k not in ("qqp/accuracy", "stsb/spearman")})
    with pytest.raises(UserError, match=mentioning("squeezebert_dev", "'bert'")):
        average("bert", {})


def test_scores_have_the_names_that_averages_take():
    found = {
        score_name(task, split, metric)
        for task in GLUE.values()
        for split in task.dev
        for metric in task.metrics
        if task.name != "wnli"
    }
    assert found == set(pairs(DEV[0][0]))
    assert score_name(GLUE["mnli"], "test_mismatched", "accuracy") == "mnli_mismatched/accuracy"
