"""Kills at system calls, hostile inputs, and faults in a run of two processes: the figures of docs/reliability.md.

    python -m benchmarks reliability.attack
    python -m benchmarks reliability.attack --kills=10 --inputs=500

Each of ten commands that write is killed before a random system call that changes a file, and repeated; then it must
have the files of an undisturbed command, bit for bit apart from times. Damaged files and command lines must be
accepted or end in one line of error. A run of two processes with a killed, stopped or slowed one must end with the
same parameters. Fails if anything is lost or wrong in silence, a process or a temporary file is left, or a traceback
appears. --runs records the kills, so that the same command goes on where it stopped. Linux with a C compiler; needs the
extra test.
"""

import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.lib import program, results
from benchmarks.reliability import inputs, kills, members


def folder_of(command: str) -> str:
    """The name of a command's folder."""
    return "".join(filter(str.isalnum, command))


def recorded_kills(
    runs: Path, count: int, seed: int, source: Path, shim: Path, commands: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """Kill the commands in turns, `count` times in all; those that an earlier call recorded without a fault count."""
    ledger = runs / "kills.jsonl"
    past = [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []
    finished = {(kill["command"], kill["draw"]): kill for kill in past if not kill["faults"]}
    taken = []
    for position, (name, command) in enumerate(commands.items()):
        draws = {f"{seed}-{index}": f"{seed}-{name}-{index}" for index in range(position, count, len(commands))}
        taken += [finished[name, draw] for draw in draws if (name, draw) in finished]
        missing = [draw for draw in draws if (name, draw) not in finished]
        drawn = (random.Random(draws[draw]) for draw in missing)
        attack = kills.attack_command(name, command, source, runs / folder_of(name), shim, drawn)
        for draw, kill in zip(missing, attack, strict=True):
            taken.append({**kill._asdict(), "draw": draw, "commit": results.commit()})
            with ledger.open("a") as file:
                file.write(json.dumps(taken[-1]) + "\n")
            print(f"{name}: killed before {kill.call}; {'; '.join(kill.faults) or 'ended as undisturbed'}", flush=True)
    return taken


def kill_rows(taken: Sequence[Mapping[str, Any]], runs: Path) -> list[dict[str, Any]]:
    """A row for each command: its calls, its kills, and what was wrong after them."""
    rows = []
    for name in dict.fromkeys(kill["command"] for kill in taken):
        mine = [kill for kill in taken if kill["command"] == name]
        faults = [fault for kill in mine for fault in kill["faults"]]
        whole = json.loads((runs / folder_of(name) / "whole.json").read_text())
        row = {"command": name, "calls that change files": whole["calls"], "kills": len(mine)}
        row["of them during a write"] = sum(kill["call"].startswith(("write", "pwrite")) for kill in mine)
        rows.append({**row, "faults": len(faults), "met": not faults, "details": faults})
    return rows


def recorded(file: Path, settings: Mapping[str, Any], attack: Callable[[], list[dict[str, Any]]]) -> dict[str, Any]:
    """The rows of an attack and the commit that it attacked, from `file` if it has them without a fault."""
    if file.exists():
        record = json.loads(file.read_text())
        if record["settings"] == settings and all(row["met"] for row in record["rows"]):
            return record
    record = {"settings": settings, "commit": results.commit(), "rows": attack()}
    file.write_text(json.dumps(record))
    return record


def main() -> None:
    """Attack what has not been attacked, and write the result; exits with 1 if there is a fault."""
    parser = results.parser("reliability", __doc__, "runs/reliability")
    parser.add_argument("--only", choices=("kills", "members", "inputs"), help="run and record one part (default: all)")
    results.add_numbers(parser, kills=100, inputs=5000, seed=0)
    args = parser.parse_args()
    runs = args.runs.resolve()
    runs.mkdir(parents=True, exist_ok=True)
    shim, source = kills.compile_shim(runs), runs / "inputs"
    if not source.exists():
        program.in_new_process(kills.build_inputs, str(source), **kills.ENVIRONMENT)
    commands = {name: [*kills.PACKAGE, *words] for name, words in kills.COMMANDS.items()}
    if find_spec("litert_converter") is None:
        del commands["convert (LiteRT)"]
    tables, commits = {}, {results.commit()}
    if args.only in (None, "kills"):
        taken = recorded_kills(runs, args.kills, args.seed, source, shim, commands)
        tables["kills"] = kill_rows(taken, runs)
        commits |= {kill["commit"] for kill in taken}
    others = {
        "members": ({}, lambda: list(members.attack_members(source, runs / "members", shim))),
        "inputs": ({"inputs": args.inputs}, lambda: inputs.attack_inputs(args.inputs, runs / "inputs.xml")),
    }
    for name, (settings, part) in others.items():
        if args.only in (None, name):
            record = recorded(runs / f"{name}.json", settings, part)
            tables[name] = record["rows"]
            commits.add(record["commit"])
    for rows in tables.values():
        for row in rows:
            print("".join(f"{fault}\n" for fault in row.pop("details")), end="")
    if args.only:
        sys.exit(any(not row["met"] for rows in tables.values() for row in rows))
    results.write(args.out, [f"commit {', '.join(sorted(commits))}"], tables)
