"""Write and check a fine-tuning run's config and run.json."""

from collections.abc import Mapping
from typing import Any

import jax

from bertzoo.core import config
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.finetuning.settings import Finetune
from bertzoo.runs import provenance
from bertzoo.runs.provenance import software
from bertzoo.runs.run_dir import RunDirectory

EXAMPLES = "examples_sha256"  # key of run.json
FREE = ("seeds", "log_every", "data_dir")  # keys that may change when a run resumes


def check_config(run: RunDirectory, recipe: Finetune) -> None:
    """Raise ConfigError if a resumed run changes a key that is not in FREE, or leaves out a seed that was trained."""
    if not run.config.exists():
        return
    before = config.load(Finetune, [run.config])
    changed = [line for line in config.difference(before, recipe) if line.split(":")[0] not in FREE]
    if _begun(run):
        config.reject(run.name, changed)
    last = recipe.seed + recipe.seeds - 1
    if left := [seed for seed in range(last + 1, before.seed + before.seeds) if (run.path / f"seed-{seed}").is_dir()]:
        raise ConfigError(
            f"{run.name} has trained seed {left[0]}, which seeds = {recipe.seeds} would drop from the results. Use "
            f"seeds = {left[-1] + 1 - recipe.seed} or more, or a different --run_dir."
        )


def claim(run: RunDirectory, recipe: Finetune, models: dict[str, dict[str, Any]], digests: Mapping[str, str]) -> None:
    """Write config.toml and run.json; raises UserError if the run began with other parameters or examples.

    models: records of the model to fine-tune ("from") and of the "teacher". digests: hash of the examples by split.
    """
    for name, record in models.items():
        run.check_same_model(name, run.origin(name) if _begun(run) else None, record)
    before = run.provenance().get(EXAMPLES, {}) if _begun(run) else {}
    if differing := [split for split, digest in digests.items() if before.get(split, digest) != digest]:
        where = f" in {recipe.data_dir}" if recipe.data_dir else ""
        raise UserError(
            f"the examples of {' and '.join(differing)}{where} differ from those that {run.name} started with. "
            "Restore the files or use a different --run_dir."
        )
    run.path.mkdir(parents=True, exist_ok=True)
    run.write_config(recipe)
    quantise = {} if recipe.quantise == "none" else {"quantise": recipe.quantise}
    devices = sorted({device.device_kind for device in jax.devices()})
    provenance.write_run_json(
        run.path, {**software(), "devices": devices, EXAMPLES: dict(digests), **models, **quantise}
    )


def _begun(run: RunDirectory) -> bool:
    return any(run.path.glob("seed-*"))
