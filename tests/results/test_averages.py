"""The averages of the papers, on rows that they print; test_paper_tables.py has those of development sets."""

import pytest
from messages import mentioning

from benchmarks.lib.averages import average
from bertzoo.core.errors import UserError

NAMES = ("mnli_matched/accuracy", "mnli_mismatched/accuracy", "qnli/accuracy", "sst2/accuracy", "cola/matthews")
NAMES += ("rte/accuracy",)
PAIRS = ("qqp/accuracy", "qqp/f1", "mrpc/accuracy", "mrpc/f1", "stsb/pearson", "stsb/spearman")
# SqueezeBERT (Iandola et al. 2020), Table 3, test: BERT-base by the authors, and MobileBERT, whose row is that of
# MobileBERT w/o OPT (Sun et al. 2020, Table 4). In the order of NAMES; then QQP, MRPC and STS-B.
TEST = [
    ((84.4, 84.2, 91.4, 92.8, 51.3, 70.7), (80.5, 87.9, 86.9), 79.0),
    ((84.3, 83.4, 91.6, 92.6, 51.1, 70.4), (79.4, 86.7, 85.5), 78.5),
]


def scores_of(values: tuple[float, ...], means: tuple[float, ...]) -> dict[str, float]:
    """A row as scores; its figure for two metrics is their mean."""
    apart = [mean + shift for mean in means for shift in (3.0, -3.0)]
    return dict(zip((*NAMES, *PAIRS), (*values, *apart), strict=True))


@pytest.mark.parametrize(("values", "means", "printed"), TEST)
@pytest.mark.parametrize("name", ["squeezebert_test", "mobilebert_test"])
def test_the_leaderboards(name, values, means, printed):
    assert average(name, scores_of(values, means)) == pytest.approx(printed, abs=0.0501)


def test_wnli_is_the_majoritys_score_by_default():
    scores = scores_of(*TEST[0][:2])
    given = average("squeezebert_test", scores | {"wnli/accuracy": 65.1 - 9})
    assert average("squeezebert_test", scores) - given == pytest.approx(1)
    assert average("squeezebert_dev", scores | {"wnli/accuracy": 0.0}) == average("squeezebert_dev", scores)


def test_errors_name_missing_parts():
    scores = scores_of(*TEST[0][:2])
    with pytest.raises(UserError, match=mentioning("qqp/accuracy", "stsb/spearman")):
        average("convbert", {k: v for k, v in scores.items() if k not in ("qqp/accuracy", "stsb/spearman")})
