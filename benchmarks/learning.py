"""Which model learns most of one budget: BERT, SqueezeBERT, ELECTRA, ConvBERT and MobileBERT, bare and taught.

    python benchmarks/learning.py --text classic_books.txt.xz simplewiki.txt --glue=glue

Pretrains every model of configs/learning, whose steps make the same training FLOPs, on one corpus (--text, or else the
embedded one), fine-tunes all but the teacher on CoLA, MRPC, STS-B and SST-2 with several seeds (--glue holds their
folders), and writes its section of docs/results.md and docs/learning.png anew, with the time that it took. --jobs runs
are done at a time with a share of the cores each. Every run has a directory under --runs and is resumed if need be.

    python benchmarks/learning.py --paper --text text/*.txt.xz --glue=glue --minutes=20

is for an accelerator: BERT-small, ELECTRA-small and ConvBERT-small as configs/ has them, for as many of the paper's
steps as a trial of each says fit the minutes of training steps alone, under its schedule shortened to them.
"""

import argparse
import json
import os
import queue
import re
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import learning_page
from learning_arms import ARMS, PAPER, PAPER_TASKS, PAPER_TUNED, TUNED, TUNED_TASKS, Arm
from learning_page import Figures
from program import bertzoo

from bertzoo.core import config
from bertzoo.finetuning.settings import Finetune
from bertzoo.runs import any_model, phases, provenance
from bertzoo.runs import kind as kinds
from bertzoo.runs.report import page

ARTICLE = re.compile(r"= = = .+? = = =")  # how a file of Wikipedia's articles has their titles
TASKS = {"cola": "CoLA", "mrpc": "MRPC", "stsb": "STS-B", "sst2": "SST-2"}
TRIAL = 300  # steps, that say how fast a model is
EMBEDDED, HELDOUT, MINUTES = "embedded:python", "heldout.json", "minutes.json"
PAPER_STEPS = 1_000_000
# What a run may have otherwise than its arm: how its corpus is named, and what `fitting` sets.
NAMED = ("data.source",)
FITTED = ("stages.0.steps", "run.evaluate_every", "run.save_every", "optimizer.schedule.warmup_")


def articles(path: Path) -> Iterator[str]:
    """The articles of a file that marks them by their titles."""
    for text in ARTICLE.split(path.read_text(encoding="utf-8")):
        if text.strip():
            yield " ".join(text.split())


def absolute(source: str) -> list[str]:
    """The files of a source, from wherever they are named."""
    return [part if part == EMBEDDED else str(Path(part).absolute().resolve()) for part in source.split(",")]


def corpus(texts: Sequence[Path], configs: Sequence[str], runs: Path) -> Path:
    """The tokenised corpus that all read, under the settings of one of them; one that is there must be of the texts."""
    made, sources = runs / "corpus", []
    for path in texts:
        if path.suffix == ".txt" and ARTICLE.search(path.read_text(encoding="utf-8")[:100_000]):
            cut = runs / f"{path.stem}.jsonl"
            cut.write_text("".join(json.dumps({"text": text}) + "\n" for text in articles(path)), encoding="utf-8")
            path = cut
        sources.append(str(path))
    asked, manifest = ",".join(sources) or EMBEDDED, made / "manifest.json"
    if not manifest.exists():
        bertzoo("tokenize", asked, str(made), *[f"--config={each}" for each in configs])
        return made
    found = json.loads(manifest.read_text())["settings"]["source"]
    if absolute(found) != absolute(asked):
        sys.exit(f"{made} is made of {found}, not of {asked}: give another --runs")
    return made


def train(arm: Arm, runs: Path, data: Path, more: Sequence[str] = ()) -> Path:
    """An arm's run, finished, with its figures on all of the held-out text beside it; one that is there must be what is
    asked for, but for the steps that a trial chose.
    """
    run = runs / arm.name
    if (run / HELDOUT).exists():
        _same(run, arm, but=(*NAMED, *(FITTED if arm in PAPER else ())))
    else:
        taught = [f"--teacher={runs / arm.teacher}"] if arm.teacher else []
        bertzoo(arm.verb, *arm.configs, *arm.options, *more, *taught, f"--data.source={data}", f"--run_dir={run}")
        said = bertzoo("evaluate", str(run), "--json")
        (run / "heldout.part").write_text(said)
        (run / "heldout.part").rename(run / HELDOUT)
    return run


def pairs(options: Sequence[str]) -> list[tuple[str, str]]:
    """Names and values of `--name=value`."""
    return [(name, value) for name, _, value in (option.removeprefix("--").partition("=") for option in options)]


def _same(run: Path, arm: Arm, but: tuple[str, ...]) -> None:
    """Exits where a finished run is not of an arm's settings."""
    kind = kinds.recipe_class(*arm.configs)
    found, asked = config.load(kind, [run / "config.toml"]), config.load(kind, arm.configs, pairs(arm.options))
    if apart := [each for each in config.difference(found, asked) if not each.startswith(but)]:
        sys.exit(f"{run} was trained otherwise ({'; '.join(apart)}): give another --runs")


def fitting(arm: Arm, runs: Path, data: Path, minutes: float) -> list[str]:
    """Options by which an arm has as many steps as a trial of it says fit the minutes, and warms up for a hundredth of
    them, as over the paper's million.
    """
    trial = runs / f"{arm.name}-trial"
    warm = ["--optimizer.schedule.warmup_steps=0", "--optimizer.schedule.warmup_share=0.01"]
    given = [f"--stages.0.steps={TRIAL}", "--run.log_every=50", "--run.evaluate_every=0", *warm]
    bertzoo(arm.verb, *arm.configs, *given, f"--data.source={data}", f"--run_dir={trial}")
    seen = page.read_run(trial)
    fit = 60 * minutes * seen.history.train[-1]["examples_per_second"] / seen.stages()[0]["batch_size"]
    steps = min(PAPER_STEPS, int(fit))
    every = max(1, steps // 20)
    return [f"--stages.0.steps={steps}", f"--run.evaluate_every={every}", f"--run.save_every={every}", *warm]


def tune(run: Path, task: str, glue: Path, options: Sequence[str]) -> dict[str, dict[str, float]]:
    """By metric the median, least and greatest score of a run's model on a task's development set."""
    tuned = run.parent / f"{run.name}-{task}"
    if not (tuned / "results.json").exists():
        words = [f"--task={task}", f"--data_dir={glue / TASKS[task]}", f"--from={run}", f"--run_dir={tuned}"]
        bertzoo("finetune", "finetune", *words, *options)
    found = json.loads((tuned / "results.json").read_text())
    known = [("task", task), ("data_dir", found["config"]["data_dir"])]
    asked = config.load(Finetune, ["finetune"], [*pairs(options), *known])
    if apart := config.difference(found["config"], asked):
        sys.exit(f"{tuned} was fine-tuned otherwise ({'; '.join(apart)}): give another --runs")
    return {which: found[which]["dev"] for which in ("median", "min", "max")}


def spent(recipe: Any) -> list[tuple[int, int]]:
    """Of every stage of a recipe its steps, and the training FLOPs of one."""
    flops = [phases.model_flops(recipe, index) for index in range(len(recipe.stages))]
    return [(stage.steps, each * stage.batch_size) for stage, each in zip(recipe.stages, flops, strict=True)]


def minutes(lines: Sequence[dict[str, Any]]) -> float:
    """Of training, as a run's metrics say; each process that resumed it began to count anew."""
    seconds = [line["elapsed_seconds"] for line in lines]
    return sum(now for now, later in zip(seconds, [*seconds[1:], 0.0], strict=True) if later < now) / 60


def until(stages: Sequence[tuple[int, int]], step: int) -> int:
    """Training FLOPs of the steps as far as one."""
    total = 0
    for steps, each in stages:
        total += min(steps, step) * each
        step -= min(steps, step)
    return total


def figures(arm: Arm, run: Path, scores: dict[str, Any]) -> Figures:
    """What is shown of a finished run."""
    seen, written = page.read_run(run), run / "config.toml"
    recipe = config.load(kinds.recipe_class(written), [written])
    stages, short = spent(recipe), recipe.stages[0].max_length
    steps = sum(count for count, _ in stages)
    before = sum(stage.steps for stage in recipe.stages if stage.max_length == short)
    return Figures(
        name=arm.name,
        title=arm.title,
        parameters=any_model.read_model(run).parameter_count,
        steps=steps,
        flops=until(stages, steps),
        longer=until(stages, before),
        curve=[(until(stages, line["step"]), line) for line in seen.history.heldout],
        minutes=minutes(seen.history.train),
        end=json.loads((run / HELDOUT).read_text()),
        scores=scores,
        facts=seen.provenance,
    )


def done(runs: Path) -> list[Path]:
    """What has been finished of pretraining and of fine-tuning."""
    return [*runs.glob(f"*/{HELDOUT}"), *runs.glob("*/results.json")]


def spent_before(runs: Path, arms: Sequence[Arm]) -> dict[str, float] | None:
    """Minutes that earlier calls took, and how much they finished; None where nobody has counted them."""
    if (runs / MINUTES).exists():
        return {"minutes": json.loads((runs / MINUTES).read_text())["minutes"], "done": len(done(runs))}
    return None if any((runs / arm.name).exists() for arm in arms) else {"minutes": 0.0, "done": 0}


class Work:
    """Jobs in threads, each of which keeps the processes that it starts to its own share of the cores."""

    def __init__(self, jobs: int) -> None:
        known = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self.shares: queue.Queue[list[int]] = queue.Queue()
        for job in range(jobs):
            self.shares.put(known[job::jobs] or known)
        self.pool = ThreadPoolExecutor(jobs, initializer=self._keep)

    def _keep(self) -> None:
        share = self.shares.get()
        if share:
            os.sched_setaffinity(0, share)  # of this thread, and so of what it starts


def main(words: Sequence[str] | None = None) -> None:
    """Train what is not trained yet, and write the page."""
    args = arguments(words)
    args.runs.mkdir(parents=True, exist_ok=True)
    arms, options, more = (PAPER, PAPER_TUNED, PAPER_TASKS) if args.paper else (ARMS, TUNED, TUNED_TASKS)
    kept = args.runs / "minutes_of_each"
    if args.paper and kept.exists() and kept.read_text() != f"{args.minutes:g}":
        sys.exit(
            f"the runs in {args.runs} have {kept.read_text()} minutes each, not {args.minutes:g}: give another --runs"
        )
    if args.paper:
        kept.write_text(f"{args.minutes:g}")
    began, data = time.time(), corpus(args.text, arms[0].configs, args.runs)
    before = spent_before(args.runs, arms)
    started: dict[str, Future[Path]] = {}

    def trained(arm: Arm) -> Path:
        if arm.teacher:
            started[arm.teacher].result()
        run = args.runs / arm.name
        given = fitting(arm, args.runs, data, args.minutes) if args.paper and not (run / HELDOUT).exists() else []
        return train(arm, args.runs, data, given)

    def tuned(arm: Arm, task: str) -> dict[str, dict[str, float]]:
        return tune(started[arm.name].result(), task, args.glue, (*options, *more.get(task, ())))

    pool = Work(args.jobs).pool
    for arm in arms:
        started[arm.name] = pool.submit(trained, arm)
    tasks = TASKS if args.glue else {}
    asked = {(arm.name, task): pool.submit(tuned, arm, task) for arm in arms if arm.tuned for task in tasks}
    try:
        scores: dict[str, dict[str, Any]] = {arm.name: {} for arm in arms}
        for (name, task), job in asked.items():
            scores[name][task] = job.result()
        found = [figures(arm, started[arm.name].result(), scores[arm.name]) for arm in arms]
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    finally:
        if before is not None and len(done(args.runs)) > before["done"]:
            told = {"minutes": before["minutes"] + (time.time() - began) / 60, "jobs": args.jobs}
            (args.runs / MINUTES).write_text(json.dumps(told | {"cores": os.cpu_count()}))
    took = args.runs / MINUTES
    told = learning_page.Told(
        texts=[path.name for path in args.text],
        manifest=json.loads((data / "manifest.json").read_text()),
        tuned=options,
        of_task=more,
        tuned_at=[provenance.read_run_json(args.runs / f"{name}-{task}", name) for name, task in asked],
        jobs=args.jobs,
        took=json.loads(took.read_text()) if took.exists() else None,
        paper=args.minutes if args.paper else None,
    )
    learning_page.write(found, told)


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line, refused before anything is trained."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, nargs="*", default=[], help="files of text; none: the embedded corpus")
    parser.add_argument("--glue", type=Path, help="the folder of CoLA, MRPC, STS-B and SST-2")
    parser.add_argument("--runs", type=Path, help="where the runs are kept (default: runs/learning or learning_paper)")
    parser.add_argument("--jobs", type=int, help="runs at a time (default: 2, and 1 with --paper)")
    parser.add_argument("--paper", action="store_true", help="the papers' small models, for an accelerator")
    parser.add_argument("--minutes", type=float, help="of each model's training steps, with --paper (default: 20)")
    args = parser.parse_args(words)
    if args.minutes is not None and not args.paper:
        parser.error("--minutes is for --paper: the steps of configs/learning are in its files")
    if args.paper and not args.text:
        parser.error("--paper wants --text: the embedded corpus is too small for a vocabulary of 30,522")
    folders = [args.glue / folder for folder in TASKS.values()] if args.glue else []
    if missing := [str(path) for path in (*args.text, *folders) if not path.exists()]:
        parser.error(f"there is no {', '.join(missing)}")
    if (args.jobs is not None and args.jobs < 1) or (args.minutes is not None and not args.minutes > 0):
        parser.error("--jobs and --minutes must be above 0")
    args.runs = args.runs or Path("runs") / ("learning_paper" if args.paper else "learning")
    args.jobs, args.minutes = args.jobs or (1 if args.paper else 2), args.minutes or 20.0
    return args


if __name__ == "__main__":
    main()
