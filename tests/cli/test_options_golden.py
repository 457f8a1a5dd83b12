"""Every verb keeps its flags, config keys, Python arguments and exit codes: those in tests/golden/options.json.

`PYTHONPATH=. python tests/cli/test_options_golden.py` writes the file after a change that adds or removes one.
"""

import argparse
import importlib
import inspect
import json
from itertools import chain
from pathlib import Path
from typing import Any

import bertzoo
from bertzoo.cli import main as cli
from bertzoo.core import errors
from bertzoo.core.config import paths_by_name

GOLDEN = Path(__file__).parents[1] / "golden" / "options.json"


def flags(verb: str) -> dict[str, str]:
    """The number of values, choices and default of each argument of a verb, as text."""
    found = {}
    for action in cli.verb_parser(verb, importlib.import_module(f"bertzoo.cli.{verb}"))._actions:
        name = action.option_strings[-1] if action.option_strings else action.metavar or action.dest
        parts = ["required"] if action.required else [f"default {action.default!r}"] if action.default else []
        parts += [f"one of {', '.join(action.choices)}"] if action.choices else []
        parts += ["repeatable"] if isinstance(action, argparse._AppendAction) else []
        found[str(name)] = ", ".join([f"{1 if action.nargs is None else action.nargs} values", *parts])
    return found


def keys() -> dict[str, list[str]]:
    """The dotted keys of each config class, by its name."""
    modules = [importlib.import_module(f"bertzoo.cli.{verb}") for verb in cli.VERBS]
    classes = {module.config() for module in modules if hasattr(module, "config")}
    return {cls.__name__: sorted(chain.from_iterable(paths_by_name(cls).values())) for cls in sorted(classes, key=str)}


def parameters(name: str) -> list[str]:
    """The arguments of a Python function, positional ones first."""
    names = [*inspect.signature(getattr(bertzoo, name)).parameters]
    if name == "embed":
        names += [*inspect.signature(bertzoo.TextEncoder.encode).parameters][2:]
    return sorted({*names} - {"options"})


def declared() -> dict[str, Any]:
    functions = [name for name in bertzoo.__all__ if inspect.isfunction(getattr(bertzoo, name))]
    codes = {
        name: error.exit_code
        for name, error in vars(errors).items()
        if isinstance(error, type) and hasattr(error, "exit_code")
    }
    return {
        "flags": {verb: flags(verb) for verb in cli.VERBS},
        "keys": keys(),
        "python": {name: parameters(name) for name in functions},
        "exit codes": codes,
    }


def test_flags_keys_and_arguments_stay() -> None:
    assert json.loads(json.dumps(declared())) == json.loads(GOLDEN.read_text())


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(declared(), indent=1) + "\n")
