"""What the figures of a page are of."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertzoo.runs.provenance import git_revision


def processor() -> str:
    """The name of this machine's, and whether it multiplies int8 four at a time."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    said = dict(line.split(":", 1) for line in text.split("\n\n")[0].replace("\t", "").splitlines() if ":" in line)
    vectors = [name for name in ("avx512_vnni", "avx_vnni", "avx512f", "avx2") if name in said.get("flags", "").split()]
    return f"{said.get('model name', 'unknown').strip()} ({', '.join(vectors) or 'no vectors that are known of'})"


def revision(facts: Mapping[str, Any]) -> str:
    """The commit of a run, by its run.json, cut short, and whether files differed from it."""
    if not facts.get("git"):
        return "unknown"
    commit, mark, changes = str(facts["git"]).partition("+")
    return commit[:12] + mark + changes


def commit() -> str:
    """The checkout's, cut short, with a mark where what computes differs from it."""
    return revision({"git": git_revision("benchmarks", "configs")})
