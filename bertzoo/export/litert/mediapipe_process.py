# pyright: reportMissingImports=false
"""Run MediaPipe's text tasks: reads jobs as JSON from stdin, prints {"version", "labels", "results"} or {"error"}."""

import json
import os
import sys
from importlib.metadata import version
from typing import Any

from bertzoo.core.child import forbid_network
from bertzoo.core.documents import parse_json


def classify(file: str, texts: list[str]) -> tuple[list[str], list[list[float]]]:
    """Return the names of the labels, and for every text a score per label, in the same order."""
    from mediapipe.tasks.python import BaseOptions, text

    options = text.TextClassifierOptions(base_options=BaseOptions(model_asset_path=file))
    with text.TextClassifier.create_from_options(options) as task:
        results = [task.classify(one).classifications[0].categories for one in texts]
    ordered = [sorted(categories, key=lambda one: one.index) for categories in results]
    return [one.category_name for one in ordered[0]], [[one.score for one in categories] for categories in ordered]


def embed(file: str, texts: list[str]) -> tuple[list[str], list[list[float]]]:
    """Return no labels, and the embedding of every text."""
    from mediapipe.tasks.python import BaseOptions, text

    options = text.TextEmbedderOptions(base_options=BaseOptions(model_asset_path=file))
    with text.TextEmbedder.create_from_options(options) as task:
        return [], [[float(value) for value in task.embed(one).embeddings[0].embedding] for one in texts]


def main() -> None:
    """Run the jobs of stdin and print their results."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # MediaPipe may print to stdout, too
    sys.modules["tensorflow"] = None  # pyright: ignore[reportArgumentType] (MediaPipe would import it for its documentation)
    try:
        forbid_network()  # MediaPipe has no option against the report of its use to play.googleapis.com
        run = {"classifier": classify, "embedder": embed}
        results = [run[task](file, texts) for task, file, texts in parse_json(sys.stdin.read(), [(str, str, [str])])]
        labels, results = zip(*results, strict=True)
        answer: dict[str, Any] = {"version": version("mediapipe"), "labels": labels, "results": results}
    except Exception as error:  # MediaPipe raises any type
        answer = {"error": f"{type(error).__name__}: {error}"}
    with answers:
        json.dump(answer, answers)


if __name__ == "__main__":
    main()
