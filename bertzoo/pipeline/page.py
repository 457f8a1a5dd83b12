"""Write pipeline.md: the result, time, output and command line of every step of a pipeline."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from bertzoo.core import atomic, tables
from bertzoo.core.documents import read_json
from bertzoo.core.errors import UserError
from bertzoo.core.paths import is_url
from bertzoo.export.companions import companions
from bertzoo.finetuning import results
from bertzoo.pipeline import verbs
from bertzoo.pipeline.recipe import Step
from bertzoo.pipeline.record import PAGE, PipelineRecord
from bertzoo.runs import provenance
from bertzoo.runs import report as reports

_SHORT = 12  # digits of a hash
_FIGURES = ("loss", "mlm_loss", "mlm_hidden_loss", "mlm_accuracy", "rtd_auc")  # keys of metrics.jsonl to show
_SCORES = ("accuracy", "f1", "matthews", "pearson", "spearman", "exact")


def write_page(record: PipelineRecord) -> None:
    """Write pipeline.md into the pipeline's directory."""
    pipeline, software, seconds, rows, shown = record.pipeline, provenance.software(), 0.0, [], []
    for step in pipeline.steps:
        entry = record.entry(step) or {"seconds": "", "finished": "", "output": ""}
        seconds += entry["seconds"] or 0.0
        facts = [str(entry["seconds"]), entry["finished"], record.places.output(step), entry["output"][:_SHORT]]
        rows.append([step.name, step.verb, outcome(record, step), *facts])
        if step.verb == "results" and record.entry(step):
            shown.append(Path(record.places.output(step)).read_text(encoding="utf-8").rstrip())
    head = ["step", "command", "result", "seconds", "finished", "output", "SHA-256"]
    parts = [
        f"# {pipeline.path.stem}",
        f"Made by `bertzoo pipeline` from {pipeline.path.name}; bertzoo {software['bertzoo']}, commit "
        f"{software['git'] or 'unknown'}, jax {software['jax']}.",
        *([tables.markdown(["input", "value"], pipeline.inputs.items())] if pipeline.inputs else []),
        tables.markdown(head, rows),
        f"All steps took {seconds:,.0f} seconds.",
        *shown,
        "\n".join(["```bash", *(command_line(record, step) for step in pipeline.steps), "```"]),
    ]
    atomic.write_bytes(record.path / PAGE, ("\n\n".join(parts) + "\n").encode())


def command_line(record: PipelineRecord, step: Step, launcher: Sequence[str] = ()) -> str:
    """Return the shell command of a step; launcher: words in place of `bertzoo`."""
    output = f" > {shlex.quote(record.places.output(step))}" if step.form.prints else ""
    return shlex.join([*(launcher or ["bertzoo"]), *record.words(step)]) + output


def outcome(record: PipelineRecord, step: Step) -> str:
    """Return the result of a step in a few words, or why it has none."""
    if step.name in record.errors:
        return record.errors[step.name]
    if record.entry(step) is None:
        return "waiting"
    if is_url(record.places.output(step)):
        return "finished"
    try:
        return _result(step, Path(record.places.readable(step)))
    except UserError as error:  # such as a run of one step, which has no figures yet
        return f"finished ({error})"


def _result(step: Step, output: Path) -> str:
    if step.is_training:
        last = reports.read_run(output).history
        line = (last.heldout or last.train)[-1]
        shown = [f"{reports.title(key)} {value:.3f}" for key, value in line.items() if key in _FIGURES]
        return f"step {line['step']:,}: {', '.join(shown)}" if shown else f"step {line['step']:,}"
    if step.makes == verbs.TUNED:
        run = results.read_run(output, output.parent)
        spread = f", {min(run.chosen_scores):.2f} to {max(run.chosen_scores):.2f}" if len(run.seeds) > 1 else ""
        return f"{run.score:.2f}{spread}"
    if step.makes == verbs.FILE:
        about = read_json(output.with_name(companions(output)[0]))
        scores = about["scores"]
        task = [f"{name} {value:.2f}" for name, value in scores["file"].items() if name in _SCORES] if scores else []
        return ", ".join([f"{about['precision']}, {about['bytes'] / 1e6:,.2f} MB", *task])
    if step.verb == "evaluate":
        document = read_json(output)
        scores = list(document["scores"].values()) if "scores" in document else [document]
        return ", ".join(
            f"{name} {value:.3f}" for split in scores for name, value in split.items() if isinstance(value, float)
        )
    if step.verb == "benchmark":
        rows = read_json(output)["rows"]
        return ", ".join(f"{Path(row['model']).name} {row['median_ms']:.2f} ms" for row in rows)
    return "finished"
