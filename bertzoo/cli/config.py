"""Print, as TOML, the complete config that files and options describe.

`bertzoo config pretrain …` checks the options as `bertzoo pretrain …` would, and prints the config of that run. The
same holds for transfer and prune.

examples:
  bertzoo config squeezebert
  bertzoo config pretrain demo --run_dir=runs/demo --run.save_every=100
  bertzoo config configs/convbert_small.toml long.toml --model.layers=6 '--stages.*.batch_size=64'
"""

from dataclasses import dataclass

from bertzoo.api.options import Config, config_field, recipe_of
from bertzoo.cli import main as cli
from bertzoo.core import config as loader
from bertzoo.core.config import paths_by_name
from bertzoo.core.errors import UserError
from bertzoo.core.kinds import kind_of_files
from bertzoo.runs.kinds import PRETRAIN

PASSES_ON = True  # `main` below checks the options, once it knows the config
VERBS = ("pretrain", "transfer", "prune")  # commands whose options are checked; `finetune` names a config instead

config = PRETRAIN.config  # for the hint of a mistyped option


@dataclass(frozen=True)
class ConfigFlags:
    config: Config = config_field()
    overrides: tuple[tuple[str, str], ...] = ()


def main(options: ConfigFlags) -> int:
    if options.config[0] in VERBS:
        command = cli.parse([*options.config, *(f"--{key}={value}" for key, value in options.overrides)])[1]
        if command is None:
            raise UserError(f"`bertzoo config {options.config[0]}` takes no --help. Leave it out.")
        recipe = recipe_of(command)
    else:
        cls = kind_of_files(*options.config).config()
        for key, _ in options.overrides:
            cli.check_key(key, ["debug"], paths_by_name(cls))
        recipe = loader.load(cls, options.config, options.overrides)
    print(loader.dump(recipe), end="")
    return 0
