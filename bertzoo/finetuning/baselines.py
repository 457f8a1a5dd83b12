"""Simple classifiers on the examples of a fine-tuning run, which a fine-tuned model should beat."""

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from bertzoo.finetuning.labels import LabelSplit

_MOST = 20_000  # training examples, evenly spaced, for a minute at most


def compare_baselines(train: "LabelSplit", dev: Mapping[str, "LabelSplit"], words: np.ndarray) -> dict[str, Any]:
    """Return `rows`, the number of training examples in use, and `scores` of each classifier by split and metric.

    The classifiers are the most common label, and logistic regressions on tf-idf of words and pairs of words, and on
    the mean of the model's word embeddings, `words` (V,E), before training. They have the class weights of `train`,
    except for multi_label.
    """
    import scipy.sparse
    from sklearn.dummy import DummyClassifier
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def texts(split: "LabelSplit", chosen: Sequence[int]) -> list[str]:
        return [" ".join(split.examples[row].texts) for row in chosen]

    def vectors(split: "LabelSplit", chosen: Sequence[int]) -> np.ndarray:
        rows = split.rows
        ends = np.append(rows.starts, len(rows.ids))
        counts = scipy.sparse.csr_array((np.ones(len(rows.ids), np.float32), rows.ids, ends), (len(rows), len(words)))
        return counts[chosen] @ words / rows.lengths[chosen, None]

    known = [row for row, example in enumerate(train.examples) if example.label is not None]
    drawn = known[:: -(-len(known) // _MOST)]
    labels: Any = np.array([train.examples[row].label for row in drawn])
    several = train.task.kind == "multi_label"
    weights = None if several or train.weights is None else dict(enumerate(train.weights.tolist()))
    model: Any = LogisticRegression(max_iter=1000, class_weight=weights)
    if several:
        model = OneVsRestClassifier(model)
    elif len(np.unique(labels)) < 2:
        model = DummyClassifier()
    tokens = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]")
    models = {
        "the most common label": (texts, DummyClassifier()),
        "logistic regression on tf-idf": (texts, make_pipeline(tokens, model)),
        "logistic regression on the model's word embeddings": (vectors, make_pipeline(StandardScaler(), model)),
    }
    scores = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a label that all or no examples have
        for name, (read_features, classifier) in models.items():
            classifier.fit(read_features(train, drawn), labels)
            scores[name] = {
                part: split.scores(classifier.predict(read_features(split, range(len(split.examples)))))
                for part, split in dev.items()
            }
    return {"rows": len(drawn), "scores": scores}
