# pyright: reportMissingImports=false
"""Score a model that embeds texts on a task of the package mteb, where it is installed (Muennighoff et al. 2023)."""

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.core.errors import UserError
from bertzoo.core.paths import on_disk
from bertzoo.finetuning.embed import DOCUMENT, QUERY, EmbeddingModel

PREFIX = "mteb:"  # before the name of a task, as in --task=mteb:STSBenchmark
_SPLITS = {"dev": "validation"}  # mteb's names of splits that differ from ours


class MtebEncoder:
    """A model as mteb's EncoderProtocol: mteb asks for vectors and compares them by the cosine."""

    def __init__(self, model: EmbeddingModel, batch_size: int = 0):
        self.model, self._batch_size = model, batch_size
        self.texts = 0  # number of texts embedded so far

    @property
    def mteb_model_meta(self) -> Any:
        """Metadata: the model's name alone."""
        from mteb.models import ModelMeta

        name = {"name": f"bertzoo/{Path(self.model.path).name}", "revision": "local"}
        return ModelMeta.create_empty(overwrites=name)

    def encode(self, inputs: Any, *, prompt_type: Any = None, **_: Any) -> np.ndarray:
        """Return the vectors of texts, (N,E). inputs: batches with `text`. prompt_type: "query" or "document"."""
        texts = [text for batch in inputs for text in batch["text"]]
        self.texts += len(texts)
        kind = getattr(prompt_type, "value", prompt_type)
        usual = {"query": QUERY, "document": DOCUMENT}.get(kind, ())
        prompt, long = self.model.prompt(None, *usual), "average" if kind else "cut"
        return self.model.embed(texts, prompt=prompt, long=long, batch_size=self._batch_size)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the cosines of vectors (M,E) and (N,E), (M,N)."""
        from mteb.similarity_functions import cos_sim

        return cos_sim(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the cosine of each vector (N,E) with the one at its place in the other array, (N,)."""
        from mteb.similarity_functions import pairwise_cos_sim

        return pairwise_cos_sim(embeddings1, embeddings2)


def score_mteb(
    model: EmbeddingModel, task: str, *, input: str = "", data_dir: str = "", split: str = "", batch_size: int = 0
) -> dict[str, Any]:
    """Score a model on a task of mteb; return the task, the number of texts embedded and its main score in points.

    task: PREFIX and the task's name. data_dir: folder of a copy of the task's data set, as `hf download --repo-type
    dataset` writes it; nothing is fetched. split: by default those of the task.
    Raises UserError if mteb or the task is missing, or for wrong files.
    """
    if input:
        raise UserError(f"--input={input} does not apply to --task={task}. Name its folder with --data_dir.")
    try:
        import mteb
    except ImportError as error:
        raise UserError(
            f"--task={task} needs the package mteb, which is not installed ({error}). Run `pip install "
            "'mteb>=2.26,<3'` in this environment."
        ) from error
    try:
        chosen = mteb.get_task(task.removeprefix(PREFIX))
    except KeyError as error:
        raise UserError(f"--task={task} is no task of mteb: {error.args[0]}. Use another name.") from error
    origin = chosen.metadata.dataset["path"]
    if not data_dir:  # mteb would fetch it
        raise UserError(
            f"--task={task} needs --data_dir with a copy of its data set, such as from `hf download "
            f"--repo-type=dataset {origin} --local-dir=DIR`."
        )
    folder = str(on_disk(data_dir, "--data_dir", "Copy it to this machine."))
    if not os.path.isdir(folder):
        raise UserError(f"--data_dir={data_dir} is not a folder. Name a copy of {origin}, the task's data set.")
    data = {**chosen.metadata.dataset, "path": folder}
    chosen.metadata = chosen.metadata.model_copy(update={"dataset": data})
    if split:
        chosen._eval_splits = [_SPLITS.get(split, split)]
    return score_task(model, chosen, task, batch_size)


def score_task(model: EmbeddingModel, task: Any, name: str, batch_size: int = 0) -> dict[str, Any]:
    """Score a model on a task object of mteb; the result is that of `score_mteb`. name: the task's name in it."""
    import mteb

    encoder = MtebEncoder(model, batch_size)
    try:
        with warnings.catch_warnings(action="ignore"):  # such as that of a task with a newer version
            result = mteb.evaluate(encoder, task, cache=None, show_progress_bar=False)  # pyright: ignore
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"mteb could not run {name}: {error}. Check --data_dir and --split.") from error
    metric = task.metadata.main_score
    scores = {
        split: {metric: 100 * float(np.mean([subset["main_score"] for subset in subsets]))}
        for split, subsets in result.task_results[0].scores.items()
    }
    return {
        "task": name,
        "examples": dict.fromkeys(scores, encoder.texts),
        "score": float(np.mean([named[metric] for named in scores.values()])),
        "scores": scores,
    }
