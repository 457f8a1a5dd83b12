"""One seed of a fine-tuning run: its epochs, the score after each, and the model of the best."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core import atomic
from bertzoo.core.errors import UserError
from bertzoo.core.paths import model_name
from bertzoo.finetuning.rates import layerwise
from bertzoo.finetuning.settings import Finetune
from bertzoo.finetuning.task_kind import Judged, Lessons
from bertzoo.finetuning.warm_start import Begun
from bertzoo.models.tasks import parameter_shapes
from bertzoo.nn.flops import matmul_flops
from bertzoo.runs import any_model
from bertzoo.train import loop, state
from bertzoo.train.checkpoint import Checkpoints
from bertzoo.train.progress import Console, JsonLines, Reporter
from bertzoo.train.stage_setup import StageSetup
from bertzoo.train.step import Batch

SCORES, MODEL = "scores.json", "model"
_WANTED = {"epoch", "step", "score", "scores", "collapsed"}  # of every epoch, in scores.json


@dataclass(frozen=True, kw_only=True)
class Work:
    """What all seeds share; `task` is its name."""

    recipe: Finetune
    begun: Begun
    task: str
    mesh: jax.sharding.Mesh
    lessons: Lessons
    tell: Callable[[str], None]
    programs: dict[int, Callable[..., Any]] = field(default_factory=dict)
    flops: dict[int, int] = field(default_factory=dict)  # of a row of training, by its length

    def row_flops(self, batch: Batch) -> int:
        """Model operations of one row of a batch; the backward pass has two products for every one of the forward."""
        objective, length = self.begun.objective, _length(batch)
        if length not in self.flops:
            row = {name: jax.ShapeDtypeStruct((1, *array.shape[1:]), array.dtype) for name, array in batch.items()}
            params = nn.unbox(state.boxed_shapes(objective))
            self.flops[length] = 3 * matmul_flops(lambda params, row: objective(params, None, row, None), params, row)
        return self.flops[length]


class Seed:
    """One seed in a directory of its own: its scores after every epoch, its model, and at work its checkpoints."""

    def __init__(self, work: Work, seed: int, folder: Path):
        self._work, self.seed, self._folder = work, seed, folder
        self._stage = work.recipe.stage(work.lessons.rows)
        self._epoch = self._stage.steps // work.recipe.epochs
        self.history = _scores(folder / SCORES)
        if self.history and not (folder / MODEL).is_dir():
            work.tell(f"seed {seed}: its model is gone from {folder / MODEL}: it is trained anew")
            self._clear()
            self.history = []

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return bool(self.history) and (self.history[-1]["step"] == self._stage.steps or self._enough())

    @property
    def chosen(self) -> Judged:
        """The epoch whose model is kept: the first of the best score, or the last."""
        last = self._work.recipe.select == "last"
        return self.history[-1] if last else max(self.history, key=lambda entry: entry["score"])

    def run(self) -> None:
        """Train to the end, from the newest checkpoint where there is one; raises as the loop does."""
        recipe, begun = self._work.recipe, self._work.begun
        if self.finished:
            self._clear()  # it may have been stopped before that
            return
        self._work.tell(f"seed {self.seed}")
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._work.lessons.constant is not None:
            self._measure(self._stage.steps, self._saying(self._work.lessons.constant))
            return
        every = self._epoch
        shapes = parameter_shapes(begun.model, begun.head)
        setup = StageSetup(
            objective=begun.objective, optimizer=recipe.optimizer, rates=layerwise(shapes, recipe.layer_decay)
        )
        reporters: list[Reporter] = [JsonLines(self._folder / "metrics.jsonl"), Console([self._stage])]
        try:
            with Checkpoints(self._folder / "checkpoints", keep_last=1, keep_best=0) as checkpoints:
                loop.run(
                    loop.Job(
                        setups=[setup],
                        stages=[self._stage],
                        config=loop.RunSettings(
                            log_every=recipe.log_every, evaluate_every=every, save_every=every, keep_last=1, keep_best=0
                        ),
                        mesh=self._work.mesh,
                        seed=self.seed,
                        batches=lambda _, row: self._work.lessons.batches(self.seed, row),
                        checkpoints=checkpoints,
                        reporters=reporters,
                        initial=begun.initial,
                        fallbacks=recipe.mesh.fallbacks,
                        length=_length,
                        flops_per_example=lambda _, batch: self._work.row_flops(batch),
                        measure=self._measure,
                        programs=self._work.programs,
                        enough=lambda step: step == self._last and self._enough(),
                    )
                )
        finally:
            for reporter in reporters:
                reporter.close()
        self._clear()

    def _saying(self, label: int) -> Any:
        """Parameters with which the head says one class of every row: no weight but one bias."""
        begun = self._work.begun
        made = state.fresh(
            begun.objective,
            optax.identity(),
            self._work.mesh,
            self.seed,
            begun.initial,
            self._work.recipe.mesh.fallbacks,
        ).params

        def leaf(path: Any, array: Any) -> Any:
            name = state.name_of(path)
            if name == "classifier/output/kernel":
                return jnp.zeros_like(array)
            return jnp.zeros_like(array).at[label].set(1.0) if name == "classifier/output/bias" else array

        return jax.tree_util.tree_map_with_path(leaf, made)

    def _clear(self) -> None:
        """Remove the checkpoints: what is kept of a seed is its model."""
        shutil.rmtree(self._folder / "checkpoints", ignore_errors=True)

    @property
    def _last(self) -> int:
        return self.history[-1]["step"] if self.history else -1

    def _enough(self) -> bool:
        """Whether so many epochs have not been better that no more are waited for."""
        patience = self._work.recipe.patience
        return bool(patience) and len(self.history) - 1 - self.history.index(self.chosen) >= patience

    def _measure(self, step: int, params: Any) -> dict[str, float]:
        judged, save = self._work.lessons.judge(params)
        entry = {"epoch": step // self._epoch, "step": step, **judged}
        self.history = [*(one for one in self.history if one["step"] < step), entry]
        if self.chosen is entry:
            self._keep(params, entry)  # before it is recorded: a killed run does it again
            save(self._folder)
        atomic.write_json(self._folder / SCORES, self.history)
        flat = {f"{split}_{name}": value for split, found in judged["scores"].items() for name, value in found.items()}
        return {"loss": judged["loss"], **flat}

    def _keep(self, params: Any, entry: Judged) -> None:
        begun, teacher, folder = self._work.begun, self._work.lessons.teacher, self._folder / MODEL
        made = self._folder / f"{MODEL}.new"
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
        shapes = parameter_shapes(begun.model, begun.head)
        found = {
            name: np.asarray(leaf)[tuple(slice(size) for size in shapes[name])]
            for name, leaf in state.named(params).items()
        }
        source: dict[str, str | int] = {
            "format": "finetune",
            "task": self._work.task,
            "seed": self.seed,
            "epoch": entry["epoch"],
            "max_length": self._work.recipe.max_length,
            "from": model_name(begun.record["path"]),
            "from_sha256": begun.record["parameters_sha256"],
            **({"from_step": begun.record["step"]} if "step" in begun.record else {}),
            **({"teacher_sha256": teacher["parameters_sha256"]} if teacher else {}),
            **self._work.lessons.notes,
        }
        any_model.write_model(
            Pretrained(
                model=begun.model,
                head=begun.head,
                params=found,
                tokenizer=begun.tokenizer,
                origin=str(folder),
                source=source,
            ),
            made,
        )
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)


def _length(batch: Batch) -> int:
    return batch["input_ids"].shape[1]


def _scores(file: Path) -> list[Judged]:
    """The scores of a seed, none where it has not begun; raises UserError where they are damaged."""
    if not file.is_file():
        return []
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if not all(entry.keys() >= _WANTED for entry in found):
            raise ValueError(f"an epoch lacks {', '.join(sorted(_WANTED))}")
        return found
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"{file} is damaged ({error}): put back a copy of it, or remove {file.parent}, and the same command trains "
            "that seed anew"
        ) from error
