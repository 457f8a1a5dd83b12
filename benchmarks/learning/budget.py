"""Which model learns most from one budget: BERT, SqueezeBERT, ELECTRA, ConvBERT and MobileBERT, bare and taught.

    python -m benchmarks learning.budget --text classic_books.txt.xz simplewiki.txt --glue=glue

Pretrains every model of configs/learning, whose steps cost the same training FLOPs, on one corpus (--text, or else the
embedded one), and fine-tunes all except the teacher on CoLA, MRPC, STS-B and SST-2 over several seeds (--glue holds
their folders). --jobs runs go at a time, each with a share of the cores. Every run has a directory under --runs and
resumes. Also draws docs/learning.png.
"""

import argparse
import json
import os
import queue
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.learning.budget_arms import ARMS, TUNED, TUNED_TASKS, Arm
from benchmarks.learning.budget_results import EXTREMES, TASKS, FinishedRun, draw
from benchmarks.lib import results
from benchmarks.lib.program import bertzoo, finetune, heldout
from bertzoo.core import config
from bertzoo.runs import any_model, kind, provenance, stage_setups
from bertzoo.runs.report import page

ARTICLE = re.compile(r"= = = .+? = = =")  # titles in a file of Wikipedia's articles


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


def train(arm: Arm, runs: Path, data: Path) -> Path:
    """An arm's finished run; `bertzoo` resumes it, and rejects one of other settings."""
    teacher = [f"--teacher={runs / arm.teacher}"] if arm.teacher else []
    words = [*arm.configs, *arm.options, *teacher, f"--data.source={data}", f"--run_dir={runs / arm.name}"]
    bertzoo("transfer" if arm.teacher else "pretrain", *words)
    return runs / arm.name


def tune(run: Path, task: str, glue: Path, options: Sequence[str]) -> dict[str, dict[str, float]]:
    """Median, least and greatest scores of a run's model on a task's development set, by metric."""
    words = [f"--task={task}", f"--data_dir={glue / TASKS[task][0]}", f"--from={run}", *options]
    result = finetune(words, run.parent / f"{run.name}-{task}")
    return {which: result[which]["dev"] for which in EXTREMES}


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


def finished(arm: Arm, run: Path, scores: dict[str, Any]) -> FinishedRun:
    """What is shown of a finished run."""
    opened, file = page.read_run(run), run / "config.toml"
    recipe: Any = config.load(kind.recipe_class(file), [file])
    flops = [stage_setups.model_flops(recipe, index) for index in range(len(recipe.stages))]
    stages = [(stage.steps, row * stage.batch_size) for stage, row in zip(recipe.stages, flops, strict=True)]
    steps, length = sum(count for count, _ in stages), recipe.stages[0].max_length
    return FinishedRun(
        title=arm.title,
        parameters=any_model.read_model(run).parameter_count,
        steps=steps,
        flops=flops_until(stages, steps),
        flops_short=flops_until(stages, sum(stage.steps for stage in recipe.stages if stage.max_length == length)),
        curve=[(flops_until(stages, line["step"]), line) for line in opened.history.heldout],
        minutes=elapsed_minutes(opened.history.train),
        end=heldout(run),
        scores=scores,
        facts=opened.provenance,
    )


def pool_of(jobs: int) -> ThreadPoolExecutor:
    """Return a pool of threads; the processes that a thread starts run on its own share of the cores."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    shares: queue.Queue[list[int]] = queue.Queue()
    for job in range(jobs):
        shares.put(cores[job::jobs] or cores)

    def keep() -> None:
        if share := shares.get():
            os.sched_setaffinity(0, share)  # of this thread, and so of what it starts

    return ThreadPoolExecutor(jobs, initializer=keep)


def train_all(args: argparse.Namespace, data: Path) -> list[FinishedRun]:
    """Train and fine-tune every arm that is not finished."""
    pool, started = pool_of(args.jobs), dict[str, Future[Path]]()

    def trained(arm: Arm) -> Path:
        if arm.teacher:
            started[arm.teacher].result()
        return train(arm, args.runs, data)

    def tuned(arm: Arm, task: str) -> dict[str, dict[str, float]]:
        return tune(started[arm.name].result(), task, args.glue, (*TUNED, *TUNED_TASKS[task]))

    for arm in ARMS:
        started[arm.name] = pool.submit(trained, arm)
    tasks = TASKS if args.glue else {}
    tunings = {arm.name: {task: pool.submit(tuned, arm, task) for task in tasks if arm.tuned} for arm in ARMS}
    try:
        return [
            finished(arm, started[arm.name].result(), {task: job.result() for task, job in tunings[arm.name].items()})
            for arm in ARMS
        ]
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise


def main() -> None:
    """Train the missing models, write the result and draw it."""
    parser = results.parser("learning", __doc__)
    parser.add_argument("--text", type=Path, nargs="*", default=[], help="files of text (default: the embedded corpus)")
    parser.add_argument("--glue", type=Path, help="the folder of CoLA, MRPC, STS-B and SST-2")
    parser.add_argument("--runs", type=Path, default=Path("runs/learning"), help="where the runs are kept")
    results.add_numbers(parser, jobs=2)
    args = parser.parse_args()
    folders = [args.glue / folder for folder, _ in TASKS.values()] if args.glue else []
    if missing := [str(path) for path in (*args.text, *folders) if not path.exists()]:
        parser.error(f"--text and --glue: there is no {', '.join(missing)}")
    args.runs.mkdir(parents=True, exist_ok=True)
    data = corpus(args.text, ARMS[0].configs, args.runs)
    runs = train_all(args, data)
    manifest = json.loads((data / "manifest.json").read_text())
    tuned = [provenance.read_run_json(path.parent, path.parent.name) for path in args.runs.glob("*/results.json")]
    groups = [run.provenance for run in runs], tuned
    commits = [", ".join(sorted({results.revision(one) for one in group})) for group in groups]
    texts = ", ".join(path.name for path in args.text) or "the embedded corpus"
    context = [
        f"{texts}: {manifest['splits']['train']['tokens']:,} tokens, hash {manifest['hash'][:12]}",
        f"word frequencies alone reach {runs[0].end['unigram_entropy']:.3f} nats",
        f"commit {commits[0]}" + (f", fine-tuning {commits[1]}" if tuned else ""),
        f"jax {runs[0].provenance['jax']}, {args.jobs} runs at a time",
    ]
    draw(runs, results.picture(args.out))
    results.write(args.out, context, {"models": [run.row() for run in runs]})
