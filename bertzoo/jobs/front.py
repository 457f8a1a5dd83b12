"""The Pareto front of a sweep under a budget: models that no other one beats in both milliseconds and held-out loss."""

import csv
import io
import shutil
from collections.abc import Sequence
from math import inf
from pathlib import Path

from bertzoo.core import atomic, config
from bertzoo.jobs.record import JobRecord
from bertzoo.runs.report import HELDOUT, new_figure

Points = Sequence[tuple[float, float]]
NAME = "pareto"  # of the table, the picture and the folder of configs, in the sweep's directory


def fronts(points: Points) -> list[int]:
    """Return the front of each point: 0 if no other one beats it, then 1 on the front of the rest, and so on.

    A point beats another one if it is at least as low in both values, and lower in one.
    """
    left, result, number = sorted(range(len(points)), key=points.__getitem__), [0] * len(points), 0
    while left:
        lowest, behind = (inf, inf), []
        for index in left:
            if points[index] == lowest or points[index][1] < lowest[1]:
                lowest, result[index] = points[index], number
            else:
                behind.append(index)
        left, number = behind, number + 1
    return result


def ranked(points: Points) -> list[int]:
    """Return the indices of (milliseconds, loss), best first: front by front, within a front by loss.

    So fast models stay beside the best one (Schmucker et al. 2021, multi-objective successive halving).
    """
    number = fronts(points)
    return sorted(range(len(points)), key=lambda index: (number[index], points[index][1], index))


def write_front(record: JobRecord, limit: float) -> list[Path]:
    """Write the front as a table, configs and a picture; return the paths of table and picture, [] without points.

    The front is that of the finished points of the last rung, which have trained equally long. limit: the budget.
    """
    finished = [job for job in record.list.points if record.entry(job) is not None]
    if not finished:
        return []
    pairs = {job.name: (record.milliseconds[job.place], record.scores(job)["score"]) for job in finished}
    last = max(job.rung for job in finished)
    final = sorted((job for job in finished if job.rung == last), key=lambda job: pairs[job.name])
    numbers = fronts([pairs[job.name] for job in final])
    best = [job for job, number in zip(final, numbers, strict=True) if not number]
    folder, rows = record.path / NAME, []
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier front
    folder.mkdir()
    for job in best:
        file = folder / f"{job.place.rpartition('/')[2]}.toml"
        file.write_text(config.dump(record.recipes[job.name][0]), encoding="utf-8")
        milliseconds, loss = pairs[job.name]
        values = {"ms": milliseconds, "loss": loss, **(job.settings or {})}
        rows.append(values | {"run": record.places.output(job), "config": str(file)})
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    table, picture = (record.path / f"{NAME}.{suffix}" for suffix in ("csv", "png"))
    atomic.write_bytes(table, text.getvalue().encode())
    earlier = [pairs[job.name] for job in finished if job.rung < last]
    _draw(picture, earlier, [pairs[job.name] for job in final], [pairs[job.name] for job in best], limit)
    return [table, picture]


def _draw(path: Path, earlier: Points, final: Points, best: Points, limit: float) -> None:
    figure = new_figure(7, 4.5)
    axes = figure.subplots()
    for points, label, style in (
        (earlier, "stopped after an earlier rung", {"color": "0.75", "marker": "o"}),
        (final, "trained to the end", {"color": "0.35", "marker": "o"}),
        (best, "Pareto front", {"color": HELDOUT, "marker": "o", "linestyle": "-"}),
    ):
        if points:
            axes.plot(*zip(*points, strict=True), **{"linestyle": "", "markersize": 5, **style}, label=label)
    axes.axvline(limit, color="0.4", linewidth=0.9, linestyle=":", label="budget")
    axes.set_xlabel("milliseconds per row")
    axes.set_ylabel("held-out loss (nats)")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="best")
    figure.savefig(path, dpi=120)
