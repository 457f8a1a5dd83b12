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
LEDGER, CHOSEN = "tests/ledger.json", ".pytest_cache/chosen.txt"
TURNS = 5  # landings within which every file runs
WORKERS = 2
LIMIT = 30 * 60 * WORKERS  # seconds of processor time beyond which tests far from the change wait for the next landing
UNMEASURED = 60  # seconds of a file that the ledger does not know
MOST = 400  # commits of one landing; more mean that nobody has run `make landing`

Reach = Mapping[str, Mapping[str, int]]  # test file -> {file that it reaches: how many references away}


class Choice(NamedTuple):
    """Whether a file runs, and why: the nearest changed file, or its turn."""

    file: str
    runs: bool
    reason: str
    seconds: int


def choose(reach: Reach, ledger: Mapping[str, Any], changed: Mapping[int, Set[str] | None]) -> list[Choice]:
    """Return a choice for each test file, those that run first.

    changed: for each landing, the files that changed since; None where that is unknown. A file runs if it reaches a
    change since its own last run, or if it is among those that ran longest ago and make up a fifth of all seconds: so
    all have run after five landings. Beyond LIMIT, the files furthest from a change wait.
    """
    ran = {file: ledger["files"].get(file, {}).get("ran", -1) for file in reach}
    seconds = {file: ledger["files"].get(file, {}).get("seconds", UNMEASURED) for file in reach}
    near: dict[str, tuple[int, str]] = {}
    for file, reached in reach.items():
        since = changed.get(ran[file])
        if since is None:
            near[file] = (0, "never ran, or too long ago")
        elif steps := [(reached[each], each) for each in since if each in reached]:
            near[file] = min(steps)
    turn, total = set(), 0
    for file in sorted(reach, key=lambda file: (ran[file], zlib.crc32(file.encode()))):  # of all environments
        if total * TURNS < sum(seconds.values()):
            turn.add(file)
            total += seconds[file]
    chosen, used = [], 0
    for file in sorted(turn | near.keys(), key=lambda file: (file not in turn, *near.get(file, (0, "")), file)):
        used += seconds[file]
        runs = file in turn or used <= LIMIT
        chosen.append(Choice(file, runs, near[file][1] if file in near else "its turn", seconds[file]))
    rest = sorted(reach.keys() - turn - near.keys())
    return [*chosen, *(Choice(file, False, f"last ran in landing {ran[file]}", seconds[file]) for file in rest)]


def impacted(reach: Reach, ledger: Mapping[str, Any], changed: Set[str]) -> list[Choice]:
    """Return a choice for each test file: it runs if it reaches a changed file."""
    found = []
    for file, reached in reach.items():
        near = min(((reached[each], each) for each in changed if each in reached), default=None)
        seconds = ledger["files"].get(file, {}).get("seconds", UNMEASURED)
        found.append(Choice(file, near is not None, near[1] if near else "reaches no change", seconds))
    return sorted(found, key=lambda choice: (not choice.runs, choice.file))


def changes(root: Path, revision: str) -> set[str] | None:
    """The files that differ from a revision, committed or not; None if the clone lacks the revision.

    A Python file of which only comments or docstrings differ is FILE#text: only the site's tests read these. Docstrings
    of commands count as code, because they are the help.
    """
    if subprocess.run(["git", "cat-file", "-e", f"{revision}^{{commit}}"], cwd=root, capture_output=True).returncode:
        return None
    files = set(git(root, "ls-files", "--others", "--exclude-standard"))
    for line in git(root, "diff", "--name-status", "--no-renames", revision):
        kind, file = line.split("\t")
        code = kind == "M" and file.endswith(".py") and not file.startswith("bertzoo/cli/")
        same = code and _code("\n".join(git(root, "show", f"{revision}:{file}"))) == _code((root / file).read_text())
        files.add(f"{file}#text" if same else file)
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
    for file, each in seconds.items():
        ledger["files"].setdefault(file, {})["seconds"] = round(each)
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
    elif (commits := int(git(root, "rev-list", "--count", f"{newest}..HEAD")[0])) > MOST:
        sys.exit(
            f"{LEDGER}: the last landing, {newest}, is {commits} commits ago, more than {MOST}. "
            "Run `make landing REV=…`."
        )
    tree = Tree(root, set().union(*(each or () for each in since_landing.values())))
    return choose({file: tree.reach(file) for file in tree.tests}, ledger, since_landing)


def report(found: list[Choice]) -> str:
    """Describe the choices: what runs and why, what does not run and when it last did."""
    lines = []
    for runs, title in ((True, "run"), (False, "not run")):
        those = [choice for choice in found if choice.runs == runs]
        minutes = sum(choice.seconds for choice in those) / WORKERS / 60
        lines.append(f"{title}: {len(those)} of {len(found)} files, {minutes:.0f} minutes of {WORKERS} workers")
        lines += [f"  {choice.seconds:4} s  {choice.file}  ({choice.reason})" for choice in those]
    return "\n".join(lines)


def record_landing(root: Path, revision: str) -> None:
    """Record in the ledger which files the landing that ended with `revision` ran, and begin the next one."""
    ledger = read_ledger(root)
    number, (commit,) = ledger["landing"], git(root, "rev-parse", revision)
    if commit in ledger["revisions"].values():
        sys.exit(f"{LEDGER} has the landing of {commit} already. Name the commit that landed last.")
    with tempfile.TemporaryDirectory() as folder:
        landed = Path(folder) / "landed"
        git(root, "worktree", "add", "--detach", str(landed), commit)
        try:
            subprocess.run([sys.executable, "tests/landing.py"], cwd=landed, check=True, stdout=subprocess.DEVNULL)
            for file in (landed / CHOSEN).read_text(encoding="utf-8").split():
                ledger["files"].setdefault(file, {})["ran"] = number
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
    given = parser.parse_args()
    if given.landed:
        record_landing(ROOT, given.landed)
    else:
        found = choices(ROOT, None if given.since in (None, "landing") else given.since)
        (ROOT / CHOSEN).parent.mkdir(exist_ok=True)
        (ROOT / CHOSEN).write_text("".join(f"{choice.file}\n" for choice in found if choice.runs), encoding="utf-8")
        print(report(found))
