"""The averages that papers print, each by what the paper takes into it; scores in points."""

from collections.abc import Mapping

from bertzoo.core.errors import UserError
from bertzoo.tasks.task import Task

WNLI = 65.1  # of the majority class on WNLI's test set, which SqueezeBERT and MobileBERT report
_MNLI = ("mnli_matched/accuracy", "mnli_mismatched/accuracy")
_QQP, _MRPC = (("qqp/accuracy", "qqp/f1"), ("mrpc/accuracy", "mrpc/f1"))
_STSB = ("stsb/pearson", "stsb/spearman")
_ALONE = (("qnli/accuracy",), ("sst2/accuracy",), ("cola/matthews",), ("rte/accuracy",))
_EIGHT = (_MNLI, _QQP, _MRPC, _STSB, *_ALONE)
_NINE = (*_EIGHT, ("wnli/accuracy",))

# The mean of the means of these. SqueezeBERT: Iandola et al. 2020, Appendix A, listings 1 and 2; the second is the
# leaderboard's, which MobileBERT's is too, though its columns are F1 and Spearman (Sun et al. 2020, Table 4).
# ConvBERT: Jiang et al. 2020, Tables 2 and 3. schuBERT: Khetan and Karnin 2020, by recomputing its tables.
AVERAGES: dict[str, tuple[tuple[str, ...], ...]] = {
    "squeezebert_dev": _EIGHT,
    "squeezebert_test": _NINE,
    "mobilebert_test": _NINE,
    "convbert": (
        ("mnli_matched/accuracy",),
        ("qqp/accuracy",),
        ("mrpc/accuracy",),
        ("stsb/spearman",),
        *_ALONE,
    ),
    "schubert": (
        ("squad1/f1",),
        ("squad2/best_f1",),
        ("mnli_matched/accuracy",),
        ("mrpc/accuracy",),
        ("sst2/accuracy",),
        ("rte/accuracy",),
    ),
}


def score_name(task: Task, split: str, metric: str) -> str:
    """What a score is called here: `cola/matthews`, and of a split that is one of several `mnli_matched/accuracy`."""
    return f"{task.name}{split.removeprefix('dev').removeprefix('test')}/{metric}"


def average(name: str, scores: Mapping[str, float]) -> float:
    """An average by name, WNLI's score being the majority's where it is not given.

    Raises UserError naming the scores that are missing. scores: by `score_name`; SQuAD's are `squad1/f1` and so on.
    """
    if name not in AVERAGES:
        raise UserError(f"there is no average {name!r}: known are {', '.join(AVERAGES)}")
    given = {"wnli/accuracy": WNLI, **scores}
    if missing := [score for term in AVERAGES[name] for score in term if score not in given]:
        raise UserError(f"the average {name} needs {', '.join(missing)} too")
    terms = [sum(given[score] for score in term) / len(term) for term in AVERAGES[name]]
    return sum(terms) / len(terms)
