"""`bertzoo sweep` over the config of a pruning: its points, their ranking by held-out loss, and errors."""

from pathlib import Path
from typing import Any

import planted
import pytest
import tiny
from messages import mentions
from place import table

PRUNING = """
[sweep]
base = "demo_prune"

[options]
data.source = "text.txt"

[grid]
weigh.gamma = [0.3, 0.1]
weigh.learning_rate = [1e-3, 2e-3]
"""


@pytest.fixture
def pruning(sweeps: Any) -> Any:
    """The place, with a sweep of four prunings, a text and a model."""
    Path("sweep.toml").write_text(PRUNING)
    tiny.write_text(Path("text.txt"), documents=8)
    Path("planted").mkdir()
    planted.fill(Path("planted"))
    return sweeps


def test_the_lowest_held_out_loss_is_the_best(pruning: Any) -> None:
    out, err = pruning.sweep("--from=planted/model")
    lines = [call["line"] for call in pruning.started()]
    assert len(lines) == 4 and all(line.startswith("prune demo_prune --run_dir=runs/s/points/prune/") for line in lines)
    assert all("--data.source=text.txt --from=planted/model" in line and "--task" not in line for line in lines)
    assert mentions(out, "4.0000", "weigh.gamma=0.1", "weigh.learning_rate=0.001")
    assert mentions(err, "report runs/s/best/prune")
    rows = table()
    assert [(row["state"], float(row["loss"])) for row in rows] == [("finished", 4.2)] * 2 + [("finished", 4.0)] * 2
    best = Path("runs/s/best/prune").resolve()
    assert best == Path("runs/s").resolve() / rows[2]["run"]
    pruning.sweep("--from=planted/model")
    assert pruning.started() == []  # all are finished


def test_a_pruning_without_a_held_out_loss_has_failed(pruning: Any) -> None:
    pruning.behave({"gamma=0.3": {"silent": True}})
    assert mentions(pruning.sweep("--from=planted/model", code=1)[1], "run.evaluate_every", "2 of 4 points failed")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--weigh.gama=1", "--from=planted/model"], ("gama", "gamma")),
        (["--weigh.gamma=-1", "--from=planted/model"], ("gamma", "-1")),
        (["--from=nowhere"], ("nowhere",)),
        ([], ("--from",)),
        (["--run.evaluate_every=0", "--from=planted/model"], ("run.evaluate_every", 0)),
        (["--data.source=nowhere.txt", "--from=planted/model"], ("nowhere.txt",)),
        (["--tasks=rte", "--from=planted/model"], ("--tasks=rte",)),
    ],
)
def test_prunings_are_checked_before_the_first(pruning: Any, options: list[str], parts: tuple[str, ...]) -> None:
    assert mentions(pruning.sweep(*options, code=2)[1], *parts) and pruning.started() == []


def test_a_pruning_has_no_tasks(pruning: Any) -> None:
    Path("sweep.toml").write_text(PRUNING.replace("[options]", 'tasks = ["rte"]\n[options]'))
    assert mentions(pruning.sweep("--from=planted/model", code=2)[1], "sweep.tasks", "rte", "demo_prune")
