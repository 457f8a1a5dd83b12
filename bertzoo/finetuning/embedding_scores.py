"""Scores of a model that embeds texts: similarity, pair classification, retrieval and clustering, as MTEB defines them.

MTEB: Muennighoff et al. 2023, §3.2. Clustering differs: it runs KMeans from ten starts, where MTEB runs
MiniBatchKMeans. Each task is a file or a folder of the user's.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertzoo.core.errors import UserError
from bertzoo.core.paths import on_disk
from bertzoo.finetuning.embed import DOCUMENT, QUERY, EmbeddingModel, nearest_vectors, unit_vectors
from bertzoo.tasks import fields, metrics, readers

_FIRST = ("sentence1", "text_a", "text")  # the usual names of a file's columns
_SECOND = ("sentence2", "text_b")
_SCORE = ("score", "label", "labels", "similarity")
_TEXT = ("text", "sentences", "sentence", "sentence1")
_TOP = 10  # results of a query that count
_RECALLED = 100  # results of a query in which `recall_100` looks

Scores = dict[str, float]


class Retrieval(NamedTuple):
    """Documents and queries by identifier, and the relevance (1 or more) of documents by query."""

    documents: dict[str, str]
    queries: dict[str, str]
    relevance: dict[str, dict[str, float]]


def score_embeddings(
    model: EmbeddingModel, task: str, *, input: str = "", data_dir: str = "", split: str = "", batch_size: int = 0
) -> dict[str, Any]:
    """Score a model on a task of SCORERS; return the task, the number of examples and the scores in points.

    input: the file of "sts", "pair_classification" or "clustering". data_dir, split: the folder of "retrieval", and the
    name of its judgements (default: test). Raises UserError for wrong files.
    """
    if bool(input) == (task == "retrieval") or bool(data_dir) != (task == "retrieval"):
        need, other = ("--data_dir=DIR", "--input") if task == "retrieval" else ("--input=FILE", "--data_dir")
        raise UserError(f"--task={task} reads {need}. Name it, and leave {other} out.")
    if task != "retrieval" and split:
        raise UserError(f"--split={split} does not apply to --task={task}, which reads --input alone. Leave it out.")
    source = data_dir or input
    count, scores = SCORERS[task](model, source, split, batch_size)
    name = split or "test"
    main = next(iter(scores.values()))
    return {"task": task, "examples": {name: count}, "score": main, "scores": {name: scores}}


def _similarity(model: EmbeddingModel, file: str, split: str, batch_size: int) -> tuple[int, Scores]:
    rows = _read(file, (_FIRST, _SECOND, _SCORE))
    cosines = _pair_cosines(model, rows, batch_size)
    similarities = np.array([fields.number(row[2], line, "score") for line, row in rows])
    return len(rows), {
        "spearman": metrics.spearman(cosines, similarities),
        "pearson": metrics.pearson(cosines, similarities),
    }


def _pair_classification(model: EmbeddingModel, file: str, split: str, batch_size: int) -> tuple[int, Scores]:
    """Return the average precision of the cosine, and the accuracy and F1 at the thresholds that maximise them."""
    import sklearn.metrics

    rows = _read(file, (_FIRST, _SECOND, _SCORE))
    labels = np.array([fields.flag(row[2], line, "label") for line, row in rows], bool)
    if labels.all() or not labels.any():
        raise UserError(f"{file} has only pairs with the label {int(labels.all())}. Add pairs of the other label.")
    cosines = _pair_cosines(model, rows, batch_size)
    precision, recall, _ = sklearn.metrics.precision_recall_curve(labels, cosines)
    wrong, right, _ = sklearn.metrics.roc_curve(labels, cosines, drop_intermediate=False)
    f1 = 2 * precision * recall / np.maximum(precision + recall, np.finfo(np.float64).tiny)
    return len(rows), {
        "average_precision": 100 * float(sklearn.metrics.average_precision_score(labels, cosines)),
        "accuracy": 100 * float(np.max(right * labels.mean() + (1 - wrong) * (1 - labels.mean()))),
        "f1": 100 * float(np.max(f1)),
    }


def _clustering(model: EmbeddingModel, file: str, split: str, batch_size: int) -> tuple[int, Scores]:
    """Return the V-measure of k-means with as many clusters as labels, of ten starts the best."""
    import sklearn.cluster
    import sklearn.metrics

    rows = _read(file, (_TEXT, _SCORE))
    labels = [fields.label_name(row[1], line, "label") for line, row in rows]
    clusters = len(set(labels))
    if clusters < 2:
        raise UserError(f"{file} has only the label {labels[0]!r}. Add texts with another label.")
    texts = [fields.nonblank(row[0], line, "text") for line, row in rows]
    vectors = model.embed(texts, prompt=model.prompt(None), batch_size=batch_size)
    means = sklearn.cluster.KMeans(clusters, n_init=10, random_state=0)  # pyright: ignore[reportArgumentType]
    clusters_of_texts = means.fit_predict(vectors)
    return len(rows), {"v_measure": 100 * float(sklearn.metrics.v_measure_score(labels, clusters_of_texts))}


def _retrieval(model: EmbeddingModel, folder: str, split: str, batch_size: int) -> tuple[int, Scores]:
    data = read_retrieval(Path(on_disk(folder, "--data_dir", "Copy it to this machine.")), split or "test")
    names, queries = list(data.documents), list(data.queries)
    options: dict[str, Any] = {"long": "average", "batch_size": batch_size}
    documents = model.embed([*data.documents.values()], prompt=model.prompt(None, *DOCUMENT), **options)
    query_vectors = unit_vectors(model.embed([*data.queries.values()], prompt=model.prompt(None, *QUERY), **options))
    ranked: dict[str, list[str]] = {}
    for query, (cosines, best) in zip(queries, nearest_vectors(query_vectors, documents, _RECALLED + 1), strict=True):
        if not np.isfinite(cosines).all():
            raise UserError(
                f"the model's vectors of the query {query} or of a document are not finite. Train it again."
            )
        relevant = data.relevance[query]
        ranked[query] = [names[i] for i in best if names[i] != query or query in relevant][:_RECALLED]
    return len(queries), retrieval_scores(ranked, data.relevance)


def retrieval_scores(ranked: Mapping[str, Sequence[str]], relevance: Mapping[str, Mapping[str, float]]) -> Scores:
    """Return metrics in points over the queries, from each query's documents in order of their rank.

    ndcg_10: Σ relevance / log2(1 + rank) of the first 10, over that of the best order (as in trec_eval). mrr_10:
    reciprocal rank of the first relevant document of the first 10. recall_10, recall_100: share of the relevant
    documents among the first 10 and 100.
    """
    values_by_metric: dict[str, list[float]] = {"ndcg_10": [], "mrr_10": [], "recall_10": [], "recall_100": []}
    for query, judged in relevance.items():
        gains = [judged.get(name, 0.0) for name in ranked[query]]
        ideal = sorted(judged.values(), reverse=True)[:_TOP]
        values_by_metric["ndcg_10"].append(_discounted(gains[:_TOP]) / _discounted(ideal))
        values_by_metric["mrr_10"].append(
            next((1 / rank for rank, gain in enumerate(gains[:_TOP], 1) if gain > 0), 0.0)
        )
        for top in (_TOP, _RECALLED):
            values_by_metric[f"recall_{top}"].append(sum(gain > 0 for gain in gains[:top]) / len(judged))
    return {name: 100 * float(np.mean(values)) for name, values in values_by_metric.items()}


def _discounted(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(1 + rank) for rank, gain in enumerate(gains, 1))


def read_retrieval(folder: Path, split: str) -> Retrieval:
    """Read corpus.jsonl, queries.jsonl (`_id`, `text`, perhaps `title`) and qrels/SPLIT.tsv, the files of BEIR.

    Queries without a relevant document are left out. A document with the identifier of a query is no result of it,
    unless it is judged relevant, as in BEIR. Raises UserError if a file is missing or names an unknown text.
    """
    documents, queries = (_read_texts(folder / f"{name}.jsonl") for name in ("corpus", "queries"))
    table = readers.read_table(folder / "qrels" / f"{split}.tsv")
    relevance: dict[str, dict[str, float]] = {}
    for line, (query, document, score) in table.valid_rows(["query-id", "corpus-id", "score"]):
        for name, texts, file in ((query, queries, "queries"), (document, documents, "corpus")):
            if name not in texts:
                raise UserError(f"{line} names {name!r}, which {file}.jsonl lacks. Add the text, or remove the row.")
        if (gain := fields.number(score, line, "score")) > 0:
            relevance.setdefault(query, {})[document] = gain
    if not relevance:
        raise UserError(f"{folder / 'qrels' / split}.tsv has no relevant document. Add rows with a score above 0.")
    return Retrieval(documents, {query: queries[query] for query in relevance}, relevance)


def _read_texts(file: Path) -> dict[str, str]:
    table = readers.read_table(file)
    columns = ["_id", "text", *(["title"] if "title" in table.columns else [])]
    texts: dict[str, str] = {}
    for line, (name, text, *title) in table.valid_rows(columns):
        if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
            raise UserError(f"{line} has the _id {name!r}. Use a text or an integer.")
        if str(name) in texts:
            raise UserError(f"{line} has the _id {str(name)!r}, as an earlier line. Give each line its own.")
        pieces = [fields.text(cell, line, "title") for cell in title if cell is not None]
        pieces.append(fields.text(text, line, "text"))
        texts[str(name)] = " ".join(filter(None, pieces)).strip()
    return texts


def _read(file: str, columns: Sequence[Sequence[str]]) -> list[tuple[str, Sequence[Any]]]:
    """Return (line in errors, cells) of each row of a table, with the first existing column of each group of names."""
    table = readers.read_table(file)
    chosen: list[str] = []
    for names in columns:
        name = next((name for name in names if name in table.columns and name not in chosen), None)
        if name is None:
            raise UserError(
                f"{table.name} has none of the columns {', '.join(names)}; its columns are {', '.join(table.columns)}. "
                "Rename one."
            )
        chosen.append(name)
    rows = list(table.valid_rows(chosen))
    if not rows:
        raise UserError(f"{table.name} holds no example. Add rows.")
    return rows


def _pair_cosines(model: EmbeddingModel, rows: Sequence[tuple[str, Sequence[Any]]], batch_size: int) -> np.ndarray:
    pairs = [tuple(fields.nonblank(cell, line, "text") for cell in row[:2]) for line, row in rows]
    number = {text: i for i, text in enumerate(dict.fromkeys(text for pair in pairs for text in pair))}
    vectors = model.embed(list(number), prompt=model.prompt(None), batch_size=batch_size)
    unit = unit_vectors(vectors.astype(np.float64))
    index = np.array([[number[text] for text in pair] for pair in pairs])
    return np.sum(unit[index[:, 0]] * unit[index[:, 1]], axis=-1)


SCORERS: dict[str, Callable[[EmbeddingModel, str, str, int], tuple[int, Scores]]] = {
    "sts": _similarity,
    "pair_classification": _pair_classification,
    "clustering": _clustering,
    "retrieval": _retrieval,
}
