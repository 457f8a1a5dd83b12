"""Regenerate the goldens that this project's own code makes: shardings.txt and programs.json.

usage: python -m tests.golden [CONFIG …]    # only these shipped configs; default: all, which takes minutes

Run it after a change that is meant to move parameters or to change compiled programs, read the difference, and say so
in the commit. The .npz files are from torch and transformers, and stay as they are.
"""

import sys
from collections.abc import Sequence

from bertzoo.core.errors import UserError
from tests.golden import make_programs, make_shardings


def main(configs: Sequence[str]) -> None:
    """Write both files; with names, only the lines of those configs."""
    if unknown := sorted({*configs} - {*make_shardings.names(), *make_programs.names()}):
        sys.exit(f"{', '.join(unknown)}: no shipped config has this name and a model of its own")
    try:
        texts = {module.FILE: module.text(configs) for module in (make_shardings, make_programs)}
    except UserError as error:
        sys.exit(str(error))
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8")
        print(f"wrote {file}")


if __name__ == "__main__":
    main(sys.argv[1:])
