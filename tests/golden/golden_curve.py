"""Compare a run's held-out losses with the losses recorded for its shipped config.

    python tests/golden/golden_curve.py RUN [NAME]

The exit code is 1 if the losses differ or the run cannot be compared.
`curves/NAME.toml` is the record of the shipped config NAME. It has `corpus_sha256`, the hash of the tokenised corpus;
`tolerance`, in nats; and `points`, each a `step` and the held-out losses after it, in nats.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

from bertzoo.core import config
from bertzoo.core.kinds import config_class
from bertzoo.runs import report

FOLDER = Path(__file__).parent / "curves"
RECORDS = {path.stem: config.read_toml(path) for path in FOLDER.glob("*.toml")}
# Keys that change losses only by rounding, and keys of the text, which the hash of the corpus identifies.
FREE = (
    *("kind: ", "run.log_every", "run.evaluate_every", "run.save_every", "run.keep_"),
    *("mesh.", "data.source", "data.mixture"),
)


class Comparison(NamedTuple):
    """Whether every loss is within the tolerance, a sentence about it, and the number of losses compared."""

    matches: bool
    text: str
    compared: int


def shipped(name: str) -> dict[str, Any]:
    """The keys and values of a shipped config."""
    return config.plain(config.load(config_class(name), [name]))


def differences(shipped: Any, resolved: Any) -> list[str]:
    """A line for each key that may change losses and differs between a run's config and the shipped one.

    A run records the number of microbatches that its config leaves open; one is what the recorded run had.
    """
    lines = config.difference(shipped, resolved)
    return [line for line in lines if not line.startswith(FREE) and not line.endswith("accumulate: 'none' -> 1")]


def compare(directory: Path, name: str = "demo") -> Comparison:
    """Compare a run of the shipped config `name` with its record; exits if it has another config or corpus."""
    run, record = report.read_run(directory), RECORDS[name]
    if apart := differences(shipped(name), run.config):
        sys.exit(f"{directory} is not a run of {name}: {'; '.join(apart)}")
    corpus = run.provenance.get("corpus_sha256")
    if corpus != record["corpus_sha256"]:
        sys.exit(f"{directory} has corpus {corpus}, not {record['corpus_sha256']} ({record['corpus']})")
    lines = {line["step"]: line for line in run.history.heldout}
    points = [
        (abs(lines[point["step"]][key] - expected), key, point["step"], lines[point["step"]][key], expected)
        for point in record["points"]
        for key, expected in point.items()
        if key != "step" and key in lines.get(point["step"], {})
    ]
    off = [point for point in points if not point[0] < record["tolerance"]]  # a NaN is off, too
    furthest = off[0] if off else max(points, default=None)
    text = f"{len(points)} losses of {name} compared, tolerance {record['tolerance']:g} nats"
    if furthest is not None:
        _, key, step, loss, expected = furthest
        text += f"; {report.title(key)} {loss:.4f} at step {step}, on record {expected:.4f}"
    return Comparison(not off, text, len(points))


if __name__ == "__main__":
    result = compare(*map(Path, sys.argv[1:2]), *sys.argv[2:3])
    print(result.text)
    sys.exit(not result.matches)
