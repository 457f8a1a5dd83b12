"""Whether a run of a shipped config learns as that config does elsewhere: its held-out losses beside those on record.

A record is `configs/curves/NAME.toml`, of the shipped config of that name, and made by `benchmarks/golden_curve.py`:
`corpus_sha256`, the hash of the tokenised corpus that it belongs to; `tolerance`, in nats; `points`, each a `step` and
held-out losses in nats after it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bertzoo.core import config
from bertzoo.core.errors import UserError
from bertzoo.runs.report.page import Run, title

FOLDER = "curves"
# What changes how a run is done and not what comes of it, but for the rounding of sums; and the text, as the corpus's
# hash says what that was, even of one that was tokenised before.
FREE = ("run.log_every", "run.evaluate_every", "run.save_every", "run.keep_", "mesh.", "data.source", "data.mixture")


@dataclass(frozen=True, kw_only=True)
class Point:
    """One loss of a run, and the one on record."""

    step: int
    name: str
    found: float
    expected: float

    @property
    def off(self) -> float:
        """Nats between the two; infinite where what was found is no number."""
        difference = abs(self.found - self.expected)
        return difference if difference == difference else float("inf")

    def __str__(self) -> str:
        return f"{title(self.name)} {self.found:.4f} at step {self.step}, on record {self.expected:.4f}"


@dataclass(frozen=True, kw_only=True)
class Found:
    """What came of a comparison: the points, in the order of steps, that both sides have, and how many the record has.

    tolerance: in nats.
    """

    name: str
    tolerance: float
    points: list[Point]
    recorded: int

    @property
    def on(self) -> bool:
        """Whether every point is on the curve."""
        return all(point.off < self.tolerance for point in self.points)

    def __str__(self) -> str:
        where = f"{len(self.points)} of the {self.recorded} held-out losses on record for {self.name}"
        if not self.on:
            first = next(point for point in self.points if point.off >= self.tolerance)
            return (
                f"off the golden curve of {self.name}: {first}, {self.tolerance:g} nats away or more: this code, "
                "its libraries or this machine computes something else"
            )
        worst = max(self.points, key=lambda point: point.off)
        return f"on the golden curve: {where} compared, each within {self.tolerance:g} nats; the furthest is {worst}"


def records() -> dict[str, dict[str, Any]]:
    """Those that come with the package, by the names of their configs."""
    return {name: config.read(path) for name, path in config.shipped(FOLDER).items()}


def differences(shipped: Any, found: Any) -> list[str]:
    """One line for each key in which a run's resolved config is not the shipped one, and so may come to another end."""
    return [line for line in config.difference(shipped, found) if not line.startswith(FREE)]


def check(run: Run, shipped: Mapping[str, Any], recorded: Mapping[str, Mapping[str, Any]]) -> Found:
    """Compare a run with the record of the shipped config that it is a run of; both by name, configs resolved.

    Raises UserError where the run is of no such config, was trained on another corpus, or has not come to a point on
    record.
    """
    apart = {name: differences(table, run.config) for name, table in shipped.items()}
    name = min(apart, key=lambda name: len(apart[name]))
    if apart[name]:
        more = f" and {len(apart[name]) - 3} more" if len(apart[name]) > 3 else ""
        raise UserError(
            f"{run.directory} is no run of a config with a golden curve ({', '.join(shipped)}); from {name} it differs "
            f"in {'; '.join(apart[name][:3])}{more}"
        )
    record = recorded[name]
    corpus, known = run.facts.get("corpus_sha256"), record["corpus_sha256"]
    if corpus != known:
        raise UserError(
            f"{run.directory} was trained on another corpus than the golden curve of {name} is of: its hash is "
            f"{corpus}, the curve's {known} ({record['corpus']}); losses on other text, or on the same from "
            "another source, cannot be compared"
        )
    points = list(_points(run, record["points"]))
    if not points:
        steps = ", ".join(str(point["step"]) for point in record["points"])
        raise UserError(f"{run.directory} has no held-out losses at the steps of the golden curve of {name}: {steps}")
    whole = sum(len(point) - 1 for point in record["points"])
    return Found(name=name, tolerance=record["tolerance"], points=points, recorded=whole)


def _points(run: Run, recorded: Iterable[Mapping[str, Any]]) -> Iterator[Point]:
    lines = {line["step"]: line for line in run.history.heldout}
    for point in recorded:
        line = lines.get(point["step"], {})
        for name, expected in point.items():
            if name != "step" and name in line:
                yield Point(step=point["step"], name=name, found=line[name], expected=expected)
