"""A fine-tuned model as it is kept: of a run's best seed or another, or in any directory."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax

from bertzoo.conversion import huggingface
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core import config
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.core.paths import is_url
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.finetuning.seeds import MODEL, SCORES
from bertzoo.finetuning.settings import Finetune
from bertzoo.models import Compute
from bertzoo.models.parts import padding_seen
from bertzoo.models.tasks import JointSpanExtraction, SpanExtraction
from bertzoo.runs import any_model
from bertzoo.runs.kind import kind_of
from bertzoo.tasks.windows import Windowing
from bertzoo.train import sharding

CONFIG = "config.toml"
SPANS = (SpanExtraction, JointSpanExtraction)  # heads that answer questions


@dataclass(frozen=True, kw_only=True)
class Kept:
    """path: as it was named. recipe: its run's, the default one where it is of no run; named: its task, empty where
    that is not known; max_length: of its rows.
    """

    path: Path
    pretrained: Pretrained
    tokenizer: Tokenizer
    recipe: Finetune
    named: str
    max_length: int

    def module(self) -> tuple[Any, Any]:
        """The model under its head, computed as in its run, and its parameters."""
        compute = replace(self.recipe.compute, vocab_multiple=1)
        _, params = self.pretrained.module()
        return self.pretrained.head.build(self.pretrained.model, compute), params

    @property
    def knows_task(self) -> bool:
        """Whether it says on which task it was trained, and one's own is in its run."""
        return bool(self.named) and (self.named != "own" or self.recipe.task == "own")

    @property
    def padding(self) -> int:
        """How many tokens of padding behind a row the model sees."""
        return padding_seen(self.pretrained.model)

    def size(self, batch_size: int) -> int:
        """So many rows at a time, or as many as in training."""
        return batch_size or self.recipe.batch_size


def mesh() -> jax.sharding.Mesh:
    """One device."""
    return sharding.make_mesh(sharding.Mesh(data=1), jax.local_devices()[:1])


def is_finetuned(name: str | Path) -> bool:
    """Whether a name is of a fine-tuning run, a seed of one or a model's directory, not of a pretraining run."""
    if is_url(str(name)):
        return False
    path = Path(name)
    marks = (any_model.RESULTS, any_model.MODEL, SCORES, huggingface.CONFIG)
    return any((path / mark).is_file() for mark in marks) or kind_of(path / CONFIG) == "finetune"


def read(path: Path, seed: int | None = None) -> Kept:
    """The model of a run's best seed or of the one named, of the directory of a seed, or of a directory of a model.

    Raises UserError where there is none.
    """
    folder, recipe = _folder(path, seed)
    found = any_model.read_model(folder)
    if found.tokenizer is None:
        raise ConfigError(f"{path} holds no tokenizer, without which no text can be read")
    usual = Windowing.max_length if isinstance(found.head, SPANS) else Finetune().max_length
    longest = recipe.max_length if recipe else int(found.source.get("max_length", usual))
    return Kept(
        path=path,
        pretrained=found,
        tokenizer=found.tokenizer,
        recipe=recipe or Finetune(compute=Compute()),
        named=recipe.task if recipe else str(found.source.get("task", "")),
        max_length=min(longest, found.model.max_positions),
    )


def _folder(path: Path, seed: int | None) -> tuple[Path, Finetune | None]:
    """Where the model lies, and the config of its run where it is in one."""
    if kind_of(path / CONFIG) == "finetune":
        recipe = config.load(Finetune, [path / CONFIG])
        if seed is None and not (path / any_model.RESULTS).is_file():
            raise UserError(f"{path} is unfinished: run the same bertzoo finetune again, or name a seed with --seed")
        if seed is None:
            return path, recipe
        folder = path / f"seed-{seed}" / MODEL
        if not folder.is_dir():
            have = sorted(each.parent.name.removeprefix("seed-") for each in path.glob(f"seed-*/{MODEL}"))
            raise UserError(f"--seed={seed}: {path} has a model of the seeds {', '.join(have) or 'none yet'}")
        return folder, recipe
    if seed is not None:
        raise UserError(f"--seed={seed} is for a run of several seeds, which {path} is not")
    folder = path / MODEL if (path / SCORES).is_file() else path
    if folder.name == MODEL and kind_of(run := folder.parent.parent / CONFIG) == "finetune":
        return folder, config.load(Finetune, [run])
    return folder, None
