"""Compare a run's held-out losses with the losses recorded for its shipped config.

`configs/curves/NAME.toml` is the record of the shipped config NAME. It has `corpus_sha256`, the hash of the tokenised
corpus; `tolerance`, in nats; and `points`, each a `step` and the held-out losses after it, in nats.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bertzoo.core import config
from bertzoo.core.errors import UserError
from bertzoo.runs.report.page import RunRecord, title

FOLDER = "curves"
# Keys that change losses only by rounding, and keys of the text, which the hash of the corpus identifies.
FREE = (
    "kind: ",
    "run.log_every",
    "run.evaluate_every",
    "run.save_every",
    "run.keep_",
    "mesh.",
    "data.source",
    "data.mixture",
)


@dataclass(frozen=True, kw_only=True)
class LossPoint:
    """A held-out loss of a run after a step, and the recorded loss (`expected`), in nats."""

    step: int
    name: str
    loss: float
    expected: float

    @property
    def off(self) -> float:
        """Absolute difference of the two losses in nats; infinite for NaN."""
        difference = abs(self.loss - self.expected)
        return difference if difference == difference else float("inf")

    def __str__(self) -> str:
        return f"{title(self.name)} {self.loss:.4f} at step {self.step}, on record {self.expected:.4f}"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The comparison of a run's held-out losses with the recorded losses.

    name: name of the shipped config.
    tolerance: the difference in nats at which two losses no longer agree.
    points: the run's loss and the recorded loss, wherever both exist, by step.
    recorded: number of all recorded losses, also of those that the run lacks.
    """

    name: str
    tolerance: float
    points: list[LossPoint]
    recorded: int

    @property
    def on(self) -> bool:
        """Whether every loss is within `tolerance` of the recorded loss."""
        return all(point.off < self.tolerance for point in self.points)

    def __str__(self) -> str:
        where = f"{len(self.points)} of the {self.recorded} held-out losses on record for {self.name}"
        if not self.on:
            first = next(point for point in self.points if point.off >= self.tolerance)
            return (
                f"off the golden curve of {self.name}: {first}, a difference of {self.tolerance:g} nats or more. This "
                "code, its libraries or this machine computes other values than the recorded run"
            )
        worst = max(self.points, key=lambda point: point.off)
        return f"on the golden curve: {where} compared, each within {self.tolerance:g} nats; the furthest is {worst}"


def records() -> dict[str, dict[str, Any]]:
    """Return the package's records of held-out losses, by the name of their config."""
    return {name: config.read_toml(path) for name, path in config.shipped(FOLDER).items()}


def differences(shipped: Any, resolved: Any) -> list[str]:
    """Return a line for each key that may change losses and differs between a run's config and the shipped one.

    A run records the number of microbatches that its config leaves open; one is what the recorded run had.
    """
    lines = config.difference(shipped, resolved)
    return [line for line in lines if not line.startswith(FREE) and not line.endswith("accumulate: 'none' -> 1")]


def compare_with_golden_curve(
    run: RunRecord, shipped: Mapping[str, Any], recorded: Mapping[str, Mapping[str, Any]]
) -> Comparison:
    """Compare a run's held-out losses with those recorded for its config.

    shipped: resolved configs by name. recorded: records by name. Raises UserError if the run has none of the shipped
    configs, was trained on another corpus, or has not reached a recorded step.
    """
    apart = {name: differences(table, run.config) for name, table in shipped.items()}
    name = min(apart, key=lambda name: len(apart[name]))
    if apart[name]:
        more = f" and {len(apart[name]) - 3} more" if len(apart[name]) > 3 else ""
        raise UserError(
            f"{run.directory} is not a run of a config with a golden curve ({', '.join(shipped)}). Its config differs "
            f"from {name}: {'; '.join(apart[name][:3])}{more}. Run the shipped config unchanged."
        )
    record = recorded[name]
    corpus, known = run.provenance.get("corpus_sha256"), record["corpus_sha256"]
    if corpus != known:
        raise UserError(
            f"{run.directory} was trained on a corpus with hash {corpus}, but the golden curve of {name} on one with "
            f"hash {known} ({record['corpus']}). To compare, train on the golden curve's corpus."
        )
    points = list(_points(run, record["points"]))
    if not points:
        steps = ", ".join(str(point["step"]) for point in record["points"])
        raise UserError(
            f"{run.directory} has no held-out losses at the steps of the golden curve of {name}: {steps}. Let it "
            "train that far."
        )
    whole = sum(len(point) - 1 for point in record["points"])
    return Comparison(name=name, tolerance=record["tolerance"], points=points, recorded=whole)


def _points(run: RunRecord, recorded: Iterable[Mapping[str, Any]]) -> Iterator[LossPoint]:
    lines = {line["step"]: line for line in run.history.heldout}
    for point in recorded:
        line = lines.get(point["step"], {})
        for name, expected in point.items():
            if name != "step" and name in line:
                yield LossPoint(step=point["step"], name=name, loss=line[name], expected=expected)
