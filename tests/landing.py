"""Choose the slow and parity test files of a landing, and keep tests/ledger.json (docs/testing.md).

python tests/landing.py           write what this landing runs to .pytest_cache/chosen.txt, and print the reasons
python tests/landing.py REV       the same for what can reach a change since REV, and nothing else
python tests/landing.py --landed REV   record what the landing that ended with REV ran, and begin the next one
"""

import argparse
import ast
import json
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple

from impact import Tree, git

ROOT = Path(__file__).parents[1]
LEDGER = "tests/ledger.json"
CHOSEN, POSTPONED = ".pytest_cache/chosen.txt", ".pytest_cache/postponed.txt"
TURNS = 5  # landings within which every file runs
WORKERS = 2
LIMIT = 10 * 60 * WORKERS  # seconds of processor time beyond which tests far from the change wait for the next landing
MOST = 20 * 60 * WORKERS  # seconds beyond which also near tests wait: CI ends after 90 minutes, with all of `.ci/run`
NEAR = 3  # references between a test and a change
UNMEASURED = 60  # seconds of a file that the ledger does not know
COMMITS = 400  # of one landing; more mean that nobody has run `make landing`

Reach = Mapping[str, Mapping[str, int]]  # test file -> {file that it reaches: how many references away}


class Choice(NamedTuple):
    """Whether a file runs, and why: the nearest changed file, or its turn.

    postponed: it reaches a change, but waits.
    """

    file: str
    runs: bool
    reason: str
    seconds: int
    postponed: bool = False


def choose(reach: Reach, ledger: Mapping[str, Any], changed: Mapping[int, Set[str] | None]) -> list[Choice]:
    """Return a choice for each test file, those that run first.

    changed: for each landing, the files that changed since; None where that is unknown. A file runs if it reaches a
    change since its own last run, or if it is among those that ran longest ago and make up a fifth of all seconds: so
    all have run after five landings. Files without a recorded run come first in this turn, and compare with the oldest
    landing. Beyond LIMIT, the files more than NEAR references from a change wait, beyond MOST all.
    """
    entries = {file: ledger["files"].get(file, {}) for file in reach}
    ran = {file: entry.get("ran", -1) for file, entry in entries.items()}
    seconds = {file: entry.get("seconds", UNMEASURED) for file, entry in entries.items()}
    impact: dict[str, tuple[int, str]] = {}  # file -> how near the nearest change is, and which it is
    for file, distances in reach.items():
        since = changed.get(ran[file], changed[min(changed)])
        if entries[file].get("postponed"):
            impact[file] = (0, "the last landing postponed it")
        elif since is None:
            impact[file] = (0, "its last landing is not in this clone")
        elif steps := [(distances[path], path) for path in since if path in distances]:
            impact[file] = min(steps)
    turn, total = set(), 0
    for file in sorted(reach, key=lambda file: (ran[file], zlib.crc32(file.encode()))):  # of all environments
        if total * TURNS < sum(seconds.values()):
            turn.add(file)
            total += seconds[file]
    chosen, total = [], 0
    for file in sorted(turn | impact.keys(), key=lambda file: (file not in turn, *impact.get(file, (0, "")), file)):
        distance, reason = impact.get(file, (0, "its turn"))
        runs = total + seconds[file] <= (MOST if file in turn or distance <= NEAR else LIMIT)
        total += runs * seconds[file]
        chosen.append(Choice(file, runs, reason, seconds[file], file in impact and not runs))
    rest = sorted(reach.keys() - turn - impact.keys())
    last = {file: f"last ran in landing {ran[file]}" if ran[file] >= 0 else "no run recorded" for file in rest}
    return [*chosen, *(Choice(file, False, last[file], seconds[file]) for file in rest)]


def impacted(reach: Reach, ledger: Mapping[str, Any], changed: Set[str]) -> list[Choice]:
    """Return a choice for each test file: it runs if it reaches a changed file."""
    choices = []
    for file, distances in reach.items():
        nearest = min(((distances[path], path) for path in changed if path in distances), default=None)
        seconds = ledger["files"].get(file, {}).get("seconds", UNMEASURED)
        choices.append(Choice(file, nearest is not None, nearest[1] if nearest else "reaches no change", seconds))
    return sorted(choices, key=lambda choice: (not choice.runs, choice.file))


def changes(root: Path, revision: str) -> set[str] | None:
    """The files that differ from a revision, committed or not; None if the clone lacks the revision.

    A Python file of which only comments or docstrings differ is FILE#text: only the site's tests read these. Docstrings
    of commands count as code, because they are the help.
    """
    files = set(git(root, "ls-files", "--others", "--exclude-standard").splitlines())
    if subprocess.run(["git", "cat-file", "-e", f"{revision}^{{commit}}"], cwd=root, capture_output=True).returncode:
        return None
    for line in git(root, "diff", "--name-status", "--no-renames", revision).splitlines():
        kind, file = line.split("\t")
        code = kind == "M" and file.endswith(".py") and not file.startswith("bertzoo/cli/")
        text = (root / file).read_text(encoding="utf-8") if code else ""
        only_text = code and _code(git(root, "show", f"{revision}:{file}")) == _code(text)
        files.add(f"{file}#text" if only_text else file)
    return files - {LEDGER}


def _code(text: str) -> str:
    """A Python file without comments and docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False):
            del node.body[0]
    return ast.dump(tree)


def read_ledger(root: Path) -> dict[str, Any]:
    return json.loads((root / LEDGER).read_text(encoding="utf-8"))


def write_ledger(root: Path, ledger: Mapping[str, Any]) -> None:
    """Write the ledger with one line per file."""
    lines = [f"    {json.dumps(file)}: {json.dumps(entry)}" for file, entry in sorted(ledger["files"].items())]
    head = json.dumps({key: value for key, value in ledger.items() if key != "files"}, indent=2)
    (root / LEDGER).write_text(head[:-2] + ',\n  "files": {\n' + ",\n".join(lines) + "\n  }\n}\n", encoding="utf-8")


def record_seconds(seconds: Mapping[str, float]) -> None:
    """Write the processor time of each file's tests to the ledger."""
    ledger = read_ledger(ROOT)
    for file, spent in seconds.items():
        ledger["files"].setdefault(file, {})["seconds"] = round(spent)
    write_ledger(ROOT, ledger)


def choices(root: Path, since: str | None) -> list[Choice]:
    """Return the choices for a checkout, of its landing or since a revision."""
    ledger = read_ledger(root)
    if since is not None:
        changed = changes(root, since)
        if changed is None:
            sys.exit(f"SINCE={since} is no commit of this clone. Name one, or SINCE=landing.")
        tree = Tree(root, changed)
        return impacted({file: tree.reach(file) for file in tree.tests}, ledger, changed)
    since_landing = {int(number): changes(root, revision) for number, revision in ledger["revisions"].items()}
    newest = ledger["revisions"][str(ledger["landing"] - 1)]
    if since_landing[ledger["landing"] - 1] is None:
        print(f"{newest}, the last landing, is not in this clone: every file counts as changed")
    elif (commits := int(git(root, "rev-list", "--count", f"{newest}..HEAD"))) > COMMITS:
        sys.exit(
            f"{LEDGER}: the last landing, {newest}, is {commits} commits ago, more than {COMMITS}. "
            "Run `make landing REV=…`."
        )
    tree = Tree(root, set().union(*(each or () for each in since_landing.values())))
    return choose({file: tree.reach(file) for file in tree.tests}, ledger, since_landing)


def report(choices: list[Choice]) -> str:
    """Describe the choices: what runs and why, what does not run and when it last did."""
    lines = []
    for runs, title in ((True, "run"), (False, "not run")):
        files = [choice for choice in choices if choice.runs == runs]
        minutes = sum(choice.seconds for choice in files) / WORKERS / 60
        lines.append(f"{title}: {len(files)} of {len(choices)} files, {minutes:.0f} minutes of {WORKERS} workers")
        lines += [f"  {choice.seconds:4} s  {choice.file}  ({choice.reason})" for choice in files]
    if postponed := [choice.file for choice in choices if choice.postponed]:
        limit, most = (seconds // 60 // WORKERS for seconds in (LIMIT, MOST))
        lines += [
            f"WARNING: {len(postponed)} files CAN REACH THE CHANGE AND DO NOT RUN; the next landing runs them first:",
            *(f"  {file}" for file in postponed),
            f"They are more than {NEAR} references from it and beyond {limit} minutes, or beyond the cap of {most}.",
            "`make rest` runs them now.",
        ]
    return "\n".join(lines)


def record_landing(root: Path, revision: str) -> None:
    """Record in the ledger which files the landing that ended with `revision` ran, and begin the next one."""
    ledger = read_ledger(root)
    number, commit = ledger["landing"], git(root, "rev-parse", revision).strip()
    if commit in ledger["revisions"].values():
        sys.exit(f"{LEDGER} has the landing of {commit} already. Name the commit that landed last.")
    with tempfile.TemporaryDirectory() as folder:
        landed = Path(folder) / "landed"
        git(root, "worktree", "add", "--detach", str(landed), commit)
        try:
            subprocess.run([sys.executable, "tests/landing.py"], cwd=landed, check=True, stdout=subprocess.DEVNULL)
            for file in (landed / CHOSEN).read_text(encoding="utf-8").split():
                ledger["files"].setdefault(file, {})["ran"] = number
                ledger["files"][file].pop("postponed", None)
            for file in (landed / POSTPONED).read_text(encoding="utf-8").split():
                ledger["files"].setdefault(file, {})["postponed"] = True
        finally:
            git(root, "worktree", "remove", "--force", str(landed))
    ledger["files"] = {file: entry for file, entry in ledger["files"].items() if (root / file).is_file()}
    ledger["landing"] = number + 1
    ledger["revisions"][str(number)] = commit
    ledger["revisions"] = {key: value for key, value in ledger["revisions"].items() if int(key) > number - TURNS}
    write_ledger(root, ledger)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("since", nargs="?", metavar="REV")
    parser.add_argument("--landed", metavar="REV")
    arguments = parser.parse_args()
    if arguments.landed:
        record_landing(ROOT, arguments.landed)
    else:
        plan = choices(ROOT, None if arguments.since in (None, "landing") else arguments.since)
        (ROOT / CHOSEN).parent.mkdir(exist_ok=True)
        for name, files in (
            (CHOSEN, [choice.file for choice in plan if choice.runs]),
            (POSTPONED, [choice.file for choice in plan if choice.postponed]),
        ):
            (ROOT / name).write_text("".join(f"{file}\n" for file in files), encoding="utf-8")
        print(report(plan))
