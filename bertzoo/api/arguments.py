"""Convert and check arguments that several API functions share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertzoo.api.options import Config, FinetuneOptions, PretrainOptions, PruneOptions, RunOptions, TransferOptions
from bertzoo.core import config as loader
from bertzoo.core import paths


def recipe_of(options: RunOptions | FinetuneOptions) -> Any:
    """Return the config of a training command, complete and with the overrides; raises ConfigError."""
    from bertzoo.core.kinds import KINDS

    names: dict[type, str] = {
        PretrainOptions: "pretrain",
        TransferOptions: "transfer",
        PruneOptions: "prune",
        FinetuneOptions: "finetune",
    }
    cls = next(KINDS[name].config() for declared, name in names.items() if isinstance(options, declared))
    overrides = loader.as_options(options.overrides)
    if isinstance(options.config, cls):
        return loader.changed(options.config, overrides)
    if not isinstance(options, PretrainOptions):
        return loader.load(cls, config_files(options.config), overrides)
    from bertzoo.runs.pretrain import load_recipe

    return load_recipe(config_files(options.config), overrides, options.from_model, options.run_dir)


def config_files(config: Config) -> list[str | Path]:
    """Return `config` as a list; raises UserError unless it is a name, a file or a list of these."""
    from bertzoo.core.errors import UserError

    files = [config] if isinstance(config, str | Path) else config if isinstance(config, Sequence) else None
    if files is None or not all(isinstance(file, str | Path) for file in files):
        raise UserError(
            f"config has the type {type(config).__name__}. Give a name, a file, a list of these, or a config object."
        )
    return list(files)


def execution(options: RunOptions) -> Any:
    """Return the `runs.training.Options` of a run; process 0 alone logs from now on."""
    from bertzoo.runs.training import Options
    from bertzoo.train import hosts

    hosts.log_in_first()
    return Options(corpus=options.corpus, workers=options.workers)


def output_folder(name: Path | str) -> Path:
    """Return the folder of --output; raises UserError if it cannot be written."""
    from bertzoo.core.atomic import check_folder
    from bertzoo.core.errors import UserError

    folder = paths.on_disk(name, "--output", "Name a directory on this machine.")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--output={folder} is a file. Name a directory.")
    check_folder(next(path for path in (folder, *folder.parents) if path.exists()), f"--output={folder}")
    return folder
