"""Average the scores of several tasks, in points, as papers do; each paper averages its own choice of scores."""

from collections.abc import Mapping

from bertzoo.core.errors import UserError

WNLI = 65.1  # accuracy of the majority class on WNLI's test set, which SqueezeBERT and MobileBERT report
_MNLI = ("mnli_matched/accuracy", "mnli_mismatched/accuracy")
_QQP, _MRPC = (("qqp/accuracy", "qqp/f1"), ("mrpc/accuracy", "mrpc/f1"))
_STSB = ("stsb/pearson", "stsb/spearman")
_ALONE = (("qnli/accuracy",), ("sst2/accuracy",), ("cola/matthews",), ("rte/accuracy",))
_EIGHT = (_MNLI, _QQP, _MRPC, _STSB, *_ALONE)
_NINE = (*_EIGHT, ("wnli/accuracy",))

# Each average is the mean, over its inner tuples, of the mean score in a tuple. SqueezeBERT: Iandola et al. 2020,
# Appendix A, listings 1 and 2. Listing 2 is the leaderboard's average. MobileBERT prints it too, beside F1 and Spearman
# alone for tasks with two scores (Sun et al. 2020, Table 4). ConvBERT: Jiang et al. 2020, Tables 2 and 3. schuBERT:
# Khetan and Karnin 2020, recomputed from its tables.
AVERAGES: dict[str, tuple[tuple[str, ...], ...]] = {
    "squeezebert_dev": _EIGHT,
    "squeezebert_test": _NINE,
    "mobilebert_test": _NINE,
    "convbert": (("mnli_matched/accuracy",), ("qqp/accuracy",), ("mrpc/accuracy",), ("stsb/spearman",), *_ALONE),
    "schubert": (
        ("squad1/f1",),
        ("squad2/best_f1",),
        ("mnli_matched/accuracy",),
        ("mrpc/accuracy",),
        ("sst2/accuracy",),
        ("rte/accuracy",),
    ),
}


def average(name: str, scores: Mapping[str, float]) -> float:
    """Return the average called `name` in AVERAGES, in points.

    scores: {key: score in points}. The keys are such as `cola/matthews`, `squad1/f1` and, for one of several
    splits, `mnli_matched/accuracy`. The accuracy of WNLI's majority class replaces a missing score of WNLI.

    Raises UserError naming the other missing scores.
    """
    known = {"wnli/accuracy": WNLI, **scores}
    if missing := [score for term in AVERAGES[name] for score in term if score not in known]:
        raise UserError(f"the average {name} lacks {', '.join(missing)}. Fine-tune on these tasks too.")
    terms = [sum(known[score] for score in term) / len(term) for term in AVERAGES[name]]
    return sum(terms) / len(terms)
