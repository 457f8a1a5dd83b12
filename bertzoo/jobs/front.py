"""The Pareto front of a sweep under a budget: models that no other one beats in both milliseconds and held-out loss."""

import shutil
from collections.abc import Iterable, Sequence
from math import inf, isfinite
from pathlib import Path

import numpy as np

from bertzoo.core import config
from bertzoo.jobs.job import CommandJob
from bertzoo.jobs.progress import write_csv
from bertzoo.jobs.record import JobRecord
from bertzoo.runs.report import HELDOUT, new_figure

Points = Sequence[tuple[float, float]]
NAME = "pareto"  # of the table, the picture and the folder of configs, in the sweep's directory


def fronts(points: Points) -> list[int]:
    """Return the front of each point: 0 if no other one beats it, then 1 on the front of the rest, and so on.

    A point beats another one if it is at least as low in both values, and lower in one. All values must be finite.
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
    """Return the indices of (milliseconds, loss), best first: front by front (Schmucker et al. 2021).

    A front begins with its lowest loss. Each next point is the one farthest from those before it (an ε-net), both
    values as shares of the front's range, so that the beginning of a front holds fast models and good ones.
    """
    numbers, order = fronts(points), []
    for number in sorted({*numbers}):
        front = [index for index, other in enumerate(numbers) if other == number]
        values = np.array([points[index] for index in front])
        shares = (values - values.min(axis=0)) / np.maximum(np.ptp(values, axis=0), 1e-12)
        gaps, place = np.full(len(front), inf), int(np.lexsort((values[:, 0], values[:, 1]))[0])
        for _ in front:
            order.append(front[place])
            gaps = np.minimum(gaps, np.linalg.norm(shares - shares[place], axis=1))
            gaps[place] = -1.0
            place = int(np.argmax(gaps))
    return order


def scored(record: JobRecord, points: Iterable[CommandJob]) -> dict[str, tuple[float, float]]:
    """Return milliseconds (0 without a budget) and held-out loss, by name, of finished points with a finite loss."""
    finished = [job for job in points if record.entry(job) is not None]
    pairs = {job.name: (record.milliseconds.get(job.place, 0.0), record.scores(job)["score"]) for job in finished}
    return {name: pair for name, pair in pairs.items() if isfinite(pair[1])}


def write_front(record: JobRecord, limit: float) -> list[Path]:
    """Write the front of the last rung's points within the budget `limit` as a table, configs and a picture.

    Return the paths of table and picture; without such points, write nothing and return [].
    """
    points = [job for job in record.list.points if record.milliseconds.get(job.place, inf) <= limit]
    pairs, last = scored(record, points), max((job.rung for job in points), default=0)
    trained = [job for job in points if job.name in pairs]
    final = sorted((job for job in trained if job.rung == last), key=lambda job: pairs[job.name])
    if not final:
        return []
    numbers = fronts([pairs[job.name] for job in final])
    best = [job for job, number in zip(final, numbers, strict=True) if not number]
    folder, rows = record.path / NAME, []
    temporary = folder.with_name(f"{NAME}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    for job in best:
        name = f"{job.place.rpartition('/')[2]}.toml"
        (temporary / name).write_text(config.dump(record.recipes[job.name][0]), encoding="utf-8")
        milliseconds, loss = pairs[job.name]
        values = {"ms": milliseconds, "loss": loss, **(job.settings or {})}
        rows.append(values | {"run": record.places.output(job), "config": str(folder / name)})
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier front
    temporary.rename(folder)
    table, picture = (record.path / f"{NAME}.{suffix}" for suffix in ("csv", "png"))
    write_csv(table, rows, rows[0])
    earlier = [pairs[job.name] for job in trained if job.rung < last]
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
