"""Result files: what a benchmark measured, with its command, machine and software, as JSON under docs/data."""

import argparse
import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.lib import tables
from bertzoo.core import atomic
from bertzoo.core.machine import processor
from bertzoo.runs.provenance import git_revision

DATA = Path(__file__).parents[2] / "docs" / "data"
EXTENSIONS = ("amx_bf16", "avx512_bf16", "avx512_vnni", "avx_vnni", "avx512f", "avx2")


def parser(name: str, doc: str | None, runs: str = "") -> argparse.ArgumentParser:
    """A parser that shows a module's docstring and has --out, by default docs/data/NAME.json.

    runs: the default of --runs; "" for a benchmark without runs.
    """
    options = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=DATA / f"{name}.json", help="the result (default: %(default)s)")
    if runs:
        options.add_argument("--runs", type=Path, default=Path(runs), help="where finished work is kept")
    return options


def add_numbers(options: argparse.ArgumentParser, **defaults: int) -> None:
    """Add `--NAME=N` for each keyword, with its default."""
    for name, default in defaults.items():
        options.add_argument(f"--{name}", type=int, default=default, help=f"(default: {default})")


def names(options: argparse.ArgumentParser, option: str, value: str, known: Collection[str]) -> list[str]:
    """The names in an option's value, which commas separate; an unknown name ends the program with an error."""
    if unknown := set(value.split(",")) - set(known):
        options.error(f"--{option}: {', '.join(sorted(unknown))} is unknown; choose from {', '.join(known)}")
    return value.split(",")


def picture(out: Path) -> Path:
    """Where a result's picture goes: docs/NAME.png, or beside a result file that is not in docs/data."""
    return (DATA.parent / out.name if out.parent == DATA else out).with_suffix(".png")


def machine() -> str:
    """This machine's processor, which of the extensions that decide its speed in each format it has, and its cores."""
    name, extensions = processor()
    fast = ", ".join(each for each in EXTENSIONS if each in extensions)
    cores = len(os.sched_getaffinity(0))
    return f"{name or 'unknown processor'} ({fast or 'no known vector extensions'}), {cores} core{'s' * (cores != 1)}"


def revision(facts: Mapping[str, Any]) -> str:
    """The commit in a run.json, 12 digits, with "+changes" if files differed from it."""
    if not facts.get("git"):
        return "unknown"
    commit, mark, changes = str(facts["git"]).partition("+")
    return commit[:12] + mark + changes


def commit() -> str:
    """This checkout's commit, marked if what computes differs from it."""
    return revision({"git": git_revision("benchmarks", "configs")})


def packages(*names: str) -> str:
    """Names and versions of installed packages."""
    return ", ".join(f"{name} {version(name)}" for name in names)


def command() -> str:
    """The command of this process; of paths only the last component, as directories differ between machines.

    Different paths whose last components are equal also keep the folder above.
    """
    shown = []
    values = [part for word in sys.argv[1:] for part in word.rpartition("=")[2].split(",")]
    names = [Path(part).name for part in {*values} if "/" in part]
    for word in sys.argv[1:]:
        if not word.startswith("--out"):
            flag, equals, value = word.partition("=")
            parts = [Path(part) if "/" in part else part for part in (value if equals else flag).split(",")]
            shortened = (
                "/".join(part.parts[-2 if names.count(part.name) > 1 else -1 :]) if isinstance(part, Path) else part
                for part in parts
            )
            shown.append((flag + equals if equals else "") + ",".join(shortened))
    return " ".join(["python -m benchmarks", sys.argv[0], *shown])


def write(out: Path, context: Sequence[str], measured: Mapping[str, Sequence[tables.Row]]) -> None:
    """Write {"command", "context", "tables"} and print the tables; exit with 1 if a row has `met` false.

    The context ends with this machine; before it come strings such as versions and a commit. measured: rows by table,
    as `tables.table` reads them.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_json(out, {"command": command(), "context": [*context, machine()], "tables": measured})
    for rows in measured.values():
        print(f"\n{tables.table(rows)}")
    print(f"\nwrote {out}; python -m benchmarks render writes the pages")
    if missed := [(name, row) for name, rows in measured.items() for row in rows if row.get("met") is False]:
        sys.exit("\n".join(["missed targets:", *(f"{name}: {json.dumps(row)}" for name, row in missed)]))
