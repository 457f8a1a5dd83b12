"""Load a fine-tuned model: a run's best seed, another seed, or any model directory."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from bertzoo.conversion import huggingface
from bertzoo.conversion.pretrained import Pretrained, source_number
from bertzoo.core import config
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.core.kinds import CONFIG, kind_of_run
from bertzoo.core.paths import is_url
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.finetuning.kind import FINETUNE, MODEL, RESULTS
from bertzoo.finetuning.question_answering import noted_options
from bertzoo.finetuning.seeds import SCORES
from bertzoo.finetuning.settings import EmbeddingOptions, Finetune
from bertzoo.finetuning.task_kind import outputs_and_losses
from bertzoo.runs import load_model
from bertzoo.runs.runner import FlaxRunner, RowRunner, Runner
from bertzoo.tasks.custom import CustomFiles
from bertzoo.tasks.rows import Rows, bucket_lengths
from bertzoo.tasks.windows import Windowing
from bertzoo.train import sharding


@dataclass(frozen=True, kw_only=True)
class SavedModel:
    """A fine-tuned model.

    recipe: the config of the model's run; if it belongs to no run, the default config with the options that it records.
    path: as the user wrote it. task_name: empty if unknown. max_length: greatest sequence length in tokens.
    file: an exported file that computes the outputs in place of `pretrained`, which then has no parameters.
    mesh: the devices that compute the outputs; None: one.
    aggregation: to predict entities of raw text by a model that tags words (`tasks.entities`); empty: as in training.
    """

    path: Path
    pretrained: Pretrained
    tokenizer: Tokenizer
    recipe: Finetune
    task_name: str
    max_length: int
    file: RowRunner | None = None
    mesh: jax.sharding.Mesh | None = None
    aggregation: str = ""

    def runner(self, rows: Sequence[Rows], batch_size: int = 0) -> Runner:
        """Return a runner for `rows`: the exported file, or the model on `mesh`.

        batch_size: rows in a batch; 0: as in training.
        """
        if self.file is not None:
            return self.file
        module, params = self.module()
        lengths = bucket_lengths(rows, self.recipe.buckets, self.max_length)
        size = batch_size or self.recipe.batch_size
        function = outputs_and_losses(self.pretrained.head.objective(module))
        return FlaxRunner(function, params, self.mesh or sharding.one_device(), size, lengths)

    def module(self) -> tuple[Any, Any]:
        """Return the Linen module of the model with its head, in the run's precision, and the parameters."""
        _, params = self.pretrained.module()
        return self.pretrained.head.build(self.pretrained.model, self.recipe.compute), params

    @property
    def knows_task(self) -> bool:
        """Whether the model's task is known; for the task `own`, whether a run's config names the task's files."""
        return bool(self.task_name) and (self.task_name != "own" or self.recipe.task == "own")

    @property
    def padding(self) -> int:
        """Number of padding tokens after a row that affect the model's outputs."""
        return self.pretrained.model.padding_seen


def is_finetuned(name: str | Path) -> bool:
    """Return whether a path is a fine-tuning run, a seed's directory or a model directory; False for a URL."""
    if is_url(str(name)):
        return False
    path = Path(name)
    marks = (load_model.MODEL, SCORES, huggingface.CONFIG)
    return any((path / mark).is_file() for mark in marks) or kind_of_run(path) is FINETUNE


def load_saved(path: Path, seed: int | None = None) -> SavedModel:
    """Load the model of a run (its best seed, or `seed`), of a seed's directory or of a model directory.

    Raises UserError if there is no model.
    """
    folder, recipe = path, None
    if kind_of_run(path) is FINETUNE:
        recipe = config.load(Finetune, [path / CONFIG])
        if seed is None and not (path / RESULTS).is_file():
            raise UserError(f"{path} is unfinished. Run the same bertzoo finetune again, or name a seed with --seed.")
        if seed is not None and not (folder := path / f"seed-{seed}" / MODEL).is_dir():
            seeds = sorted(model.parent.name.removeprefix("seed-") for model in path.glob(f"seed-*/{MODEL}"))
            advice = f"Use one of {', '.join(seeds)}." if seeds else "Run the same bertzoo finetune again."
            raise UserError(f"--seed={seed} has no model in {path}. {advice}")
    elif seed is not None:
        raise UserError(f"--seed={seed} applies only to a run of several seeds, not to {path}. Leave it out.")
    else:
        folder = path / MODEL if (path / SCORES).is_file() else path
        if folder.name == MODEL and kind_of_run(run := folder.parent.parent) is FINETUNE:
            recipe = config.load(Finetune, [run / CONFIG])
    return with_options(path, load_model.read_model(folder), recipe)


def with_options(path: Path, model: Pretrained, recipe: Finetune | None = None) -> SavedModel:
    """Return `model` as a SavedModel.

    recipe: the config of the model's run; None: the options recorded in `model.source`.

    Raises ConfigError if the model has no tokenizer.
    """
    if model.tokenizer is None:
        raise ConfigError(f"{path} has no tokenizer. Convert the model again, with its vocabulary.")
    usual = Windowing.max_length if model.head.form == "question" else Finetune().max_length
    longest = recipe.max_length if recipe else int(model.source.get("max_length", usual))
    task_name = recipe.task if recipe else str(model.source.get("task", ""))
    recipe = recipe or Finetune(
        own=config.from_dict(CustomFiles, model.source.get("own", {})),
        squad=noted_options(model.source, model.head)[0],
        scale=source_number(model.source, "scale", 1.0),
        embedding=EmbeddingOptions(sizes=getattr(model.head, "sizes", ())),
    )
    return SavedModel(
        path=path,
        pretrained=model,
        tokenizer=model.tokenizer,
        recipe=recipe,
        task_name=task_name,
        max_length=min(longest, model.model.max_positions),
    )
