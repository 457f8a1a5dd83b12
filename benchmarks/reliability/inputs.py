"""Damaged files and command lines, by the thousand: the second part of `attack`, by tests/test_fuzz*.py."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
TESTS = ["tests/test_fuzz.py", "tests/test_fuzz_verbs.py"]
FUZZED = re.compile(r"^fuzzed (.*?)(?: \(.*\))?: (\d+) files, (\d+) refused, (-?\d+) MB$", re.MULTILINE)


def attack_inputs(count: int, report: Path, tests: Sequence[str] = TESTS) -> list[dict[str, Any]]:
    """A row for each kind of input, of `count` in all; report: the file for pytest's report."""
    pytest = [sys.executable, "-m", "pytest", "-m", "slow", "-p", "no:cacheprovider", *tests]
    options: dict[str, Any] = {"cwd": ROOT, "stdout": subprocess.PIPE, "text": True}
    listed = subprocess.run([*pytest, "--collect-only", "-q", "-n", "0"], check=True, **options).stdout
    each = -(-count // listed.count("::"))
    # One worker: one that ends by itself, as an input took too long, is a failed test, and another goes on.
    variables = os.environ | {"BERTZOO_FUZZ": str(each), "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    subprocess.run(
        [*pytest, "-n", "1", "-o", "junit_logging=system-out", f"--junitxml={report}"], env=variables, **options
    )
    return rows(report)


def rows(report: Path) -> list[dict[str, Any]]:
    """The rows of a report: inputs and rejected ones by kind, and the messages of failed tests."""
    kinds: dict[str, dict[str, Any]] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        wrong = [error.get("message", "") for error in (*case.iter("failure"), *case.iter("error"))]
        name, tried, rejected, grown = case.get("name", ""), 0, 0, 0
        for match in FUZZED.finditer(case.findtext("system-out") or ""):
            name, (tried, rejected, grown) = match[1], map(int, match.groups()[1:])
        row = kinds.setdefault(name, {"input": name, "tried": 0, "rejected": 0, "largest growth in MB": 0, "faults": 0})
        row["tried"] += tried
        row["rejected"] += rejected
        row["largest growth in MB"] = max(row["largest growth in MB"], grown)
        row["faults"] += len(wrong)
        row["met"] = not row["faults"]
        row.setdefault("details", []).extend(f"{case.get('name')}: {message}" for message in wrong)
    return list(kinds.values())
