"""The table of all jobs of a list, pipeline.md or sweep.csv; a sweep's best points, and links to their runs."""

import csv
import io
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertzoo.core import atomic, tables
from bertzoo.core.documents import read_json
from bertzoo.core.errors import UserError
from bertzoo.core.paths import is_url
from bertzoo.export.companions import companions
from bertzoo.finetuning import results
from bertzoo.jobs import job as forms
from bertzoo.jobs.job import BEST, CommandJob
from bertzoo.jobs.record import SHORT, JobRecord
from bertzoo.runs import provenance
from bertzoo.runs import report as reports

_METRICS = ("loss", "mlm_loss", "mlm_hidden_loss", "mlm_accuracy", "rtd_auc")  # keys of metrics.jsonl to show
_SCORES = ("accuracy", "f1", "matthews", "pearson", "spearman", "exact")


def publish(record: JobRecord) -> None:
    """Write pipeline.md, or sweep.csv and best/TASK, a link to the best run of every task."""
    if record.list.kind == "pipeline":
        atomic.write_bytes(table_file(record), _page(record).encode())
        return
    rows, last = [_row(record, job) for job in record.list.points], ("run", "error")
    write_csv(table_file(record), rows, [*dict.fromkeys(key for row in rows for key in row if key not in last), *last])
    for job in best_points(record):
        link = record.path / BEST / job.task
        link.parent.mkdir(exist_ok=True)
        temporary = link.with_name(f"{link.name}.tmp")
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(Path("..", record.paths.folder.name, job.path))
        temporary.replace(link)


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], columns: Iterable[str]) -> None:
    """Write rows as CSV; a column that a row lacks is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*columns], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    atomic.write_bytes(path, text.getvalue().encode())


def table_file(record: JobRecord) -> Path:
    """Return the path of the table that `publish` writes."""
    return record.path / ("pipeline.md" if record.list.kind == "pipeline" else "sweep.csv")


def best_points(record: JobRecord) -> list[CommandJob]:
    """Return the finished point with the best score of each task, the first on a tie.

    The best score is the highest or, for trainings, the lowest (a loss), of the last rung.
    """
    finished = [job for job in record.list.points if record.entry(job) is not None]

    def rank(job: CommandJob) -> tuple[int, float]:
        return job.rung, (-1 if job.is_training else 1) * record.scores(job)["score"]

    tasks = dict.fromkeys(job.task for job in finished)
    return [max((job for job in finished if job.task == task), key=rank) for task in tasks]


def _row(record: JobRecord, job: CommandJob) -> dict[str, Any]:
    state, error = record.states.get(job.name, ("waiting", ""))
    if finished := record.entry(job) is not None:
        state = "finished"
    head = {"task": job.task, "state": state, **dict.fromkeys(("score", "low", "high", "seeds"), "")}
    head |= {"ms": record.milliseconds.get(job.path, "")} if record.milliseconds else {}
    values = record.scores(job) if finished else job.settings or {}
    return {**head, **values, "run": f"{record.paths.folder.name}/{job.path}", "error": error}


def _page(record: JobRecord) -> str:
    """Return pipeline.md: the result, time, output and command line of every step."""
    pipeline, software, seconds, rows, texts = record.list, provenance.software(), 0.0, [], []
    for job in pipeline.jobs:
        entry = record.entry(job) or {"seconds": "", "finished": "", "output": ""}
        seconds += entry["seconds"] or 0.0
        cells = [str(entry["seconds"]), entry["finished"], record.paths.output(job), entry["output"][:SHORT]]
        rows.append([job.name, job.verb, outcome(record, job), *cells])
        if job.verb == "results" and record.entry(job):
            texts.append(Path(record.paths.output(job)).read_text(encoding="utf-8").rstrip())
    head = ["step", "command", "result", "seconds", "finished", "output", "SHA-256"]
    sections = [
        f"# {pipeline.path.stem}",
        f"Made by `bertzoo pipeline` from {pipeline.path.name}; bertzoo {software['bertzoo']}, commit "
        f"{software['git'] or 'unknown'}, jax {software['jax']}.",
        *([tables.markdown(["input", "value"], pipeline.inputs.items())] if pipeline.inputs else []),
        tables.markdown(head, rows),
        f"All steps took {seconds:,.0f} seconds.",
        *texts,
        "\n".join(["```bash", *(command_line(record, job) for job in pipeline.jobs), "```"]),
    ]
    return "\n\n".join(sections) + "\n"


def command_line(record: JobRecord, job: CommandJob, launcher: Sequence[str] = ()) -> str:
    """Return the shell command of a job; launcher: words in place of `bertzoo`."""
    output = f" > {shlex.quote(record.paths.output(job))}" if job.form.prints else ""
    return shlex.join([*(launcher or ["bertzoo"]), *record.words(job)]) + output


def outcome(record: JobRecord, job: CommandJob) -> str:
    """Return the result of a job in a few words, or why it has none."""
    if job.name in record.states:
        return ": ".join(filter(None, record.states[job.name]))
    if record.entry(job) is None:
        return "waiting"
    if is_url(record.paths.output(job)):
        return "finished"
    try:
        return _result(record, job, Path(record.paths.readable(job)))
    except UserError as error:  # such as a run of one step, which has no metrics yet
        return f"finished ({error})"


def _result(record: JobRecord, job: CommandJob, output: Path) -> str:
    if job.is_point:  # a loss in nats, or points
        return f"{record.scores(job)['score']:.{4 if job.is_training else 2}f}"
    if job.is_training:
        last = reports.read_run(output).history
        line = (last.heldout or last.train)[-1]
        shown = [f"{reports.title(key)} {value:.3f}" for key, value in line.items() if key in _METRICS]
        return f"step {line['step']:,}: {', '.join(shown)}" if shown else f"step {line['step']:,}"
    if job.makes == forms.TUNED:
        run = results.read_run(output, output.parent)
        spread = f", {min(run.chosen_scores):.2f} to {max(run.chosen_scores):.2f}" if len(run.seeds) > 1 else ""
        return f"{run.score:.2f}{spread}"
    if job.makes == forms.FILE:
        metadata = read_json(output.with_name(companions(output)[0]))
        scores = (metadata["scores"] or {"file": {}})["file"]
        shown = [f"{name} {value:.2f}" for name, value in scores.items() if name in _SCORES]
        return ", ".join([f"{metadata['precision']}, {metadata['bytes'] / 1e6:,.2f} MB", *shown])
    if job.verb == "evaluate":
        document = read_json(output)
        scores = document["scores"].values() if "scores" in document else [document]
        return ", ".join(f"{name} {x:.3f}" for split in scores for name, x in split.items() if isinstance(x, float))
    if job.verb == "benchmark":
        return ", ".join(f"{Path(row['model']).name} {row['median_ms']:.2f} ms" for row in read_json(output)["rows"])
    return "finished"
