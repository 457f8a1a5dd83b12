"""`run.json`: what a run says of itself beside its config."""

import json
from pathlib import Path
from typing import Any

from bertzoo.core import atomic
from bertzoo.core.errors import UserError

NAME = "run.json"
TOKENIZER = "tokenizer"  # the folder beside it, and in it the hash of every file there


def write(directory: Path, said: dict[str, Any]) -> None:
    """Write it anew."""
    atomic.write_json(directory / NAME, said, indent=2)


def read(directory: Path, run: str) -> dict[str, Any]:
    """What stands there, nothing where nothing has begun; raises UserError, naming the `run`, where it is damaged."""
    path = directory / NAME
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("it is no table")
    except ValueError as error:
        raise UserError(
            f"{run}/{NAME} is damaged ({error}): put back a copy of it, or remove it and resume the run, which writes "
            "it anew"
        ) from error
    return found
