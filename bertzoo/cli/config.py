"""Print, as TOML, the complete config that files and options describe.

`bertzoo config pretrain …` checks the options as `bertzoo pretrain …` would, and prints the config of that run. The
same holds for transfer and prune.

examples:
  bertzoo config squeezebert
  bertzoo config pretrain demo --run_dir=runs/demo --run.save_every=100
  bertzoo config configs/convbert_small.toml long.toml --model.layers=6 '--stages.*.batch_size=64'
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bertzoo.api.options import Config, config_field
from bertzoo.cli import main as cli
from bertzoo.core import config as loader
from bertzoo.core.errors import UserError
from bertzoo.core.kinds import kind_of_files
from bertzoo.core.schema import paths_by_name
from bertzoo.runs.kinds import PRETRAIN

PASSES_ON = True  # `main` below checks the options, once it knows the config
VERBS = ("pretrain", "transfer", "prune")  # commands whose options are checked; `finetune` names a config instead

config = PRETRAIN.config  # for the hint of a mistyped option


@dataclass(frozen=True)
class ConfigFlags:
    """The command's arguments."""

    config: Config = config_field()
    overrides: tuple[tuple[str, str], ...] = ()


def main(options: ConfigFlags) -> int:
    """Print the complete config."""
    if options.config[0] in VERBS:
        recipe = command_config([*options.config, *(f"--{key}={value}" for key, value in options.overrides)])
    else:
        cls = kind_of_files(*options.config).config()
        for key, _ in options.overrides:
            cli.check_key(key, ["debug"], paths_by_name(cls))
        recipe = loader.load(cls, options.config, options.overrides)
    print(loader.dump(recipe), end="")
    return 0


def command_config(argv: Sequence[str]) -> Any:
    """Return the config of a command line of pretrain, transfer or prune; raises the command's UserError."""
    verb, options = cli.parse(argv)
    if options is None:
        raise UserError(
            f"`bertzoo config {argv[0]}` prints the config and takes no --help. Run `bertzoo {argv[0]} --help`."
        )
    if argv[0] == "pretrain":
        from bertzoo.runs.pretrain import load_recipe

        def absent() -> Any:
            raise UserError(
                f"no CONFIG has [model], and --from={options.from_model}, whose [model] would apply, does not exist on "
                "this machine. Add the model.toml of that model as one more CONFIG."
            )

        if options.from_model is not None and not options.from_model.exists():
            return loader.load(verb.config(), options.config, options.overrides, {"model": absent})
        return load_recipe(options.config, options.overrides, options.from_model, options.run_dir)
    return loader.load(verb.config(), options.config, options.overrides)
