"""What small models learn of one budget, and what they are worth on a phone.

    python -m benchmarks learning.budget --text classic_books.txt.xz simplewiki.txt --glue=glue --tflops=300

Pretrains every model of configs/learning with the same training FLOPs on one text, fine-tunes it on CoLA, MRPC, STS-B
and SST-2 with several seeds, converts the best seeds to int8 files for LiteRT, and times those of SST-2 in turns. What
is not pretrained is fine-tuned alike. Every part has a directory under --runs and resumes; --only=bert,untrained_*
runs some models and writes no result. Also draws docs/learning.png and docs/tradeoff.png.
"""

import argparse
import fnmatch
import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.learning.budget_arms import MODELS, TUNING, TUNING_BY_TASK, UNTRAINED, Arm, flops_by_stage
from benchmarks.learning.budget_results import (
    EXTREMES,
    TASKS,
    FinishedRun,
    chance,
    draw_curves,
    draw_tradeoff,
    model_rows,
)
from benchmarks.lib import results
from benchmarks.lib.program import bertzoo, check_litert, finetune, heldout, read_or_measure
from bertzoo.export.companions import companions
from bertzoo.export.failure import ExportFailed
from bertzoo.runs import load_model, provenance, report

ARTICLE = re.compile(r"= = = .+? = = =")  # titles in a file of Wikipedia's articles
LENGTH = 64  # tokens of the row that files are timed on


def corpus(texts: Sequence[Path], configs: Sequence[str], runs: Path) -> Path:
    """The tokenised corpus of all runs; `bertzoo tokenize` resumes it, and rejects one of other texts."""
    directory, sources = runs / "corpus", []
    for path in texts:
        if path.suffix == ".txt" and ARTICLE.search(path.read_text(encoding="utf-8")[:100_000]):
            articles = [text for text in ARTICLE.split(path.read_text(encoding="utf-8")) if text.strip()]
            path = runs / f"{path.stem}.jsonl"
            lines = (json.dumps({"text": " ".join(text.split())}) + "\n" for text in articles)
            path.write_text("".join(lines), encoding="utf-8")
        sources.append(str(path))
    source = ",".join(sources) or "embedded:python"
    bertzoo("tokenize", source, str(directory), *[f"--config={file}" for file in configs])
    return directory


def train(arm: Arm, tflops: float, runs: Path, data: Path) -> Path:
    """An arm's finished run; `bertzoo` resumes it, and rejects one of other settings."""
    source = [f"--{'teacher' if arm.verb == 'transfer' else 'from'}={runs / arm.source}"] if arm.source else []
    words = [*arm.configs, *arm.options, *arm.steps(tflops), *source]
    bertzoo(arm.verb, *words, f"--data.source={data}", f"--run_dir={runs / arm.name}")
    return runs / arm.name


def tune(run: Path, task: str, glue: Path, seeds: int) -> Path:
    """A fine-tuning run of a model on a task."""
    tuned = run.parent / f"{run.name}-{task}"
    folder = f"--data_dir={glue / TASKS[task][0]}"
    finetune([f"--task={task}", folder, f"--from={run}", f"--seeds={seeds}", *TUNING, *TUNING_BY_TASK[task]], tuned)
    return tuned


def convert(tuned: Path) -> None:
    """Write the int8 file of a fine-tuning run's best seed, verified and scored on the whole development set.

    Near chance, a file can score other than its model; bertzoo then rejects it, and the table says so.
    """
    file = tuned.parent / f"{tuned.name}.tflite"
    if file.exists():
        return
    precision = ["--precision=int8-dynamic", f"--lengths={LENGTH}", "--examples=0"]
    try:
        bertzoo("convert", str(tuned), str(file), "--to=litert", *precision)
    except subprocess.CalledProcessError as error:
        if error.returncode != ExportFailed.exit_code:
            raise


def time_files(files: Sequence[Path], record: Path) -> dict[str, float]:
    """Median milliseconds of one row of LENGTH tokens by file name, one thread, in turns; the record keeps them."""
    words = ["benchmark", *map(str, files), f"--lengths={LENGTH}", "--json"]
    rows = read_or_measure(record, lambda: json.loads(bertzoo(*words)))["rows"]
    return {Path(row["model"]).name: row["median_ms"] for row in rows}


def elapsed_minutes(lines: Sequence[Mapping[str, Any]]) -> float:
    """Minutes of training by a run's metrics; each process that resumed it started to count anew."""
    seconds = [line["elapsed_seconds"] for line in lines]
    return sum(now for now, later in zip(seconds, [*seconds[1:], 0.0], strict=True) if later < now) / 60


def flops_until(stages: Sequence[tuple[int, int]], step: int) -> int:
    """Training FLOPs of the first steps; stages: steps of each and FLOPs of one."""
    total = 0
    for steps, flops in stages:
        total += min(steps, step) * flops
        step -= min(steps, step)
    return total


def finished(arm: Arm, tflops: float, runs: Path) -> FinishedRun:
    """What is shown of an arm, all of whose runs are finished."""
    run = runs / arm.name
    opened, stages = report.read_run(run), flops_by_stage(arm.recipe(arm.steps(tflops)))
    planned = sum(count for count, _ in stages)
    steps = min(planned, max(event["step"] for event in opened.history.events))
    scores, files = {}, {}
    for task in arm.tasks:
        tuned = json.loads((runs / f"{arm.name}-{task}" / "results.json").read_text(encoding="utf-8"))
        scores[task] = {which: tuned[which]["dev"] for which in EXTREMES}
        if (file := runs / f"{arm.name}-{task}.tflite").exists():
            files[task] = json.loads(file.with_name(companions(file)[0]).read_text(encoding="utf-8"))
    return FinishedRun(
        name=arm.name,
        title=arm.title,
        parameters=load_model.read_model(run).parameter_count,
        steps=steps,
        planned=planned,
        flops=flops_until(stages, steps),
        curve=[(flops_until(stages, line["step"]), line) for line in opened.history.heldout],
        minutes=elapsed_minutes(opened.history.train),
        end=heldout(run) if arm.is_trained else {},
        scores=scores,
        files=files,
        facts=opened.provenance,
    )


def parse(name: str, doc: str | None, tflops: float) -> argparse.Namespace:
    """The options of a benchmark that trains arms; tflops: the default of --tflops."""
    parser = results.parser(name, doc, "runs/learning")
    parser.add_argument("--text", type=Path, nargs="*", default=[], help="files of text (default: the embedded corpus)")
    parser.add_argument("--glue", type=Path, required=True, help="the folder of CoLA, MRPC, STS-B and SST-2")
    parser.add_argument("--tflops", type=float, default=tflops, help="training TFLOPs of a run (default: %(default)s)")
    parser.add_argument("--only", default="*", help="runs to make, as patterns with commas between them")
    results.add_numbers(parser, seeds=3)
    args = parser.parse_args()
    check_inputs(args)
    return args


def check_inputs(args: argparse.Namespace) -> None:
    """Exit if a file of --text or a task's folder in --glue is missing, before a training that takes hours."""
    folders = [args.glue / folder for folder, _ in TASKS.values()]
    if missing := [str(path) for path in (*args.text, *folders) if not path.exists()]:
        raise SystemExit(f"--text and --glue: there is no {', '.join(missing)}")


def run_arms(arms: Sequence[Arm], args: argparse.Namespace, converted: Sequence[Arm] = ()) -> bool:
    """Train, fine-tune and convert what is missing; True if all arms are finished. converted: arms that get files."""
    chosen = [arm for arm in arms if any(fnmatch.fnmatch(arm.name, pattern) for pattern in args.only.split(","))]
    if not chosen:
        sys.exit(f"--only={args.only} names none of {', '.join(arm.name for arm in arms)}")
    if any(arm in converted for arm in chosen):
        check_litert()
    args.runs.mkdir(parents=True, exist_ok=True)
    data = corpus(args.text, arms[0].configs, args.runs)
    for arm in chosen:
        run = train(arm, args.tflops, args.runs, data)
        for task in arm.tasks:
            tuned = tune(run, task, args.glue, args.seeds)
            if arm in converted:
                convert(tuned)
        print(f"{time.strftime('%H:%M')} finished {arm.name}", flush=True)
    return len(chosen) == len(arms)


def describe(args: argparse.Namespace, runs: Sequence[FinishedRun]) -> list[str]:
    """What a result says of its text, its commits and its time."""
    manifest = json.loads((args.runs / "corpus" / "manifest.json").read_text(encoding="utf-8"))
    tuned = [args.runs / f"{run.name}-{task}" for run in runs for task in run.scores]
    facts = [run.facts for run in runs], [provenance.read_run_json(path, path.name) for path in tuned]
    commits = [", ".join(sorted({results.revision(one) for one in group})) for group in facts]
    logs = [report.read_history(file) for path in tuned for file in path.glob("seed-*/metrics.jsonl")]
    minutes = sum(run.minutes for run in runs), sum(elapsed_minutes(log.train) for log in logs)
    texts = ", ".join(path.name for path in args.text) or "the embedded corpus"
    return [
        f"{texts}: {manifest['splits']['train']['tokens']:,} tokens, hash {manifest['hash'][:12]}",
        f"word frequencies alone reach {runs[0].end['unigram_entropy']:.3f} nats",
        f"commit {commits[0]}, fine-tuning {commits[1]}",
        f"jax {runs[0].facts['jax']}, {minutes[0]:.0f} minutes of pretraining, {minutes[1]:.0f} of fine-tuning",
    ]


def main() -> None:
    """Run what is missing, write the result and draw it."""
    args = parse("learning", __doc__, tflops=300)
    if not run_arms((*MODELS, *UNTRAINED), args, converted=MODELS):
        return
    models, untrained = ([finished(arm, args.tflops, args.runs) for arm in group] for group in (MODELS, UNTRAINED))
    files = [args.runs / f"{arm.name}-sst2.tflite" for arm in MODELS if arm.tasks]
    times = time_files(files, args.runs / "latencies.json")
    chances = {task: chance(task, args.glue / folder) for task, (folder, _) in TASKS.items()}
    rows = model_rows(models, untrained, times, chances)
    picture = results.picture(args.out)
    draw_curves(models, picture)
    draw_tradeoff(rows, picture.with_name("tradeoff.png"))
    results.write(args.out, describe(args, [*models, *untrained]), {"models": rows})
