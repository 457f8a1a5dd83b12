"""Vectors of texts by a teacher and its students: parameters, size, time, similarity and search, beside BM25.

    python -m benchmarks learning.embeddings minilm runs/embed_* --sts=glue/STS-B --retrieval help/retrieval

The models take turns in LiteRT, with one thread and one row of 32 tokens. Spearman is that of STS-B's development set,
of the model and of its int8 file. The search is for sections of held-out documentation by their headings. Files and
scores stay under --runs, and later calls reuse them. Also draws docs/embeddings.png. Needs the extras litert, parity.
Nothing else should run at the same time.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.lib import results
from benchmarks.lib.program import bertzoo, evaluate, litert_file, read_or_measure
from bertzoo.finetuning.embedding_scores import read_retrieval, retrieval_scores

LENGTH, INT8 = 32, "int8-dynamic"
FOUND = 100  # documents of a query that count
NDCG = "nDCG@10, {}"


def score(model: Path, runs: Path, task: str, folder: Path) -> float:
    """The score of a model or a file on a task, in points; a file in `runs` keeps it."""
    file = runs / f"{model.name} {changed(model)} {task} {name_of(folder)}.json"
    return read_or_measure(file, lambda: evaluate(model, f"--task={task}", f"--data_dir={folder}"))["score"]


def changed(model: Path) -> int:
    """When a model was last changed, in nanoseconds: a model that was trained again has other scores."""
    return max(path.stat().st_mtime_ns for path in (model, *model.rglob("*")))


def int8_file(model: Path, runs: Path) -> Path:
    """The model's int8 file, made if it is missing."""
    file = runs / f"{model.name} {changed(model)}.tflite"
    return litert_file(model, file, f"--precision={INT8}", f"--lengths={LENGTH},64")


def bm25(folder: Path) -> float:
    """The nDCG@10 of BM25 on the documents and queries of a folder, in points; English stop words are left out."""
    import bm25s

    data = read_retrieval(folder, "test")
    names = list(data.documents)
    index = bm25s.BM25()
    index.index(bm25s.tokenize(list(data.documents.values()), show_progress=False), show_progress=False)
    queries = bm25s.tokenize(list(data.queries.values()), return_ids=False, show_progress=False)
    ranks, _ = index.retrieve(queries, k=min(FOUND, len(names)), show_progress=False)
    ranked = {query: [names[number] for number in row] for query, row in zip(data.queries, ranks, strict=True)}
    return retrieval_scores(ranked, data.relevance)["ndcg_10"]


def times(models: Sequence[Path], args: Any) -> dict[str, dict[str, Any]]:
    """What `bertzoo benchmark` measures of each model, by the model's name and precision."""
    words = [f"--lengths={LENGTH}", f"--precision=fp32,{INT8}", f"--runs={args.rows}", f"--rounds={args.rounds}"]
    rows = json.loads(bertzoo("benchmark", *map(str, models), *words, "--json"))["rows"]
    return {f"{Path(row['model']).name} {row['precision']}": row for row in rows}


def row(model: Path, measured: dict[str, dict[str, Any]], args: Any) -> dict[str, Any]:
    """A model's cells."""
    exact, rounded = (measured[f"{model.name} {precision}"] for precision in ("fp32", INT8))
    cells = {"model": model.name, "parameters, M": round(exact["parameters"] / 1e6, 1)}
    cells |= {"int8, MB": round(rounded["file_bytes"] / 1e6, 1)}
    cells |= {"ms": round(exact["median_ms"], 2), "int8, ms": round(rounded["median_ms"], 2)}
    cells |= {"Spearman": round(score(model, args.runs, "stsb", args.sts), 2)}
    cells |= {"Spearman, int8": round(score(int8_file(model, args.runs), args.runs, "stsb", args.sts), 2)}
    search = {folder: score(model, args.runs, "retrieval", folder) for folder in args.retrieval}
    return cells | {NDCG.format(name_of(folder)): round(points, 1) for folder, points in search.items()}


def name_of(folder: Path) -> str:
    """The name of held-out documentation: that of the folder above `retrieval`."""
    return folder.parent.name if folder.name == "retrieval" else folder.name


def draw(rows: Sequence[dict[str, Any]], out: Path) -> None:
    """Draw Spearman over milliseconds, of float32 and int8 models, with a line from one to the other."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.subplots()
    for cells in rows:
        x, y = (cells["ms"], cells["int8, ms"]), (cells["Spearman"], cells["Spearman, int8"])
        axes.plot(x, y, "-", color="0.7", zorder=1)
        axes.plot(x[0], y[0], "o", color="C0", label="float32" if cells is rows[0] else None)
        axes.plot(x[1], y[1], "s", color="C1", label="int8" if cells is rows[0] else None)
        axes.annotate(cells["model"], (x[0], y[0]), xytext=(6, 4), textcoords="offset points", fontsize=8)
    axes.set_xscale("log")
    axes.margins(x=0.15, y=0.1)
    axes.set_xlabel(f"ms for a text of {LENGTH} tokens, one thread")
    axes.set_ylabel("Spearman on STS-B's development set")
    axes.legend(frameon=False, loc="lower right")
    axes.grid(alpha=0.3)
    figure.savefig(out, dpi=150)


def main() -> None:
    """Measure the models, write the result and draw it."""
    parser = results.parser("embeddings", __doc__, "runs/embeddings")
    parser.add_argument("models", type=Path, nargs="+", help="the teacher and its students")
    parser.add_argument("--sts", type=Path, required=True, help="GLUE's folder of STS-B")
    parser.add_argument("--retrieval", type=Path, nargs="+", default=[], help="folders of corpora, queries and qrels")
    results.add_numbers(parser, rows=100, rounds=20)
    args = parser.parse_args()
    args.runs.mkdir(parents=True, exist_ok=True)
    measured = times(args.models, args)
    rows = [row(model, measured, args) for model in args.models]
    lexical = dict.fromkeys(rows[0]) | {"model": "BM25"}
    lexical |= {NDCG.format(name_of(folder)): round(bm25(folder), 1) for folder in args.retrieval}
    draw(rows, results.picture(args.out))
    versions = results.packages("bm25s")
    litert = next(iter(measured.values()))["version"]
    context = [f"LiteRT {litert}, one thread, one row of {LENGTH} tokens", versions, f"commit {results.commit()}"]
    results.write(args.out, context, {"models": [*rows, lexical]})
