"""What a model learns in one hour of two cores.

    python -m benchmarks learning.hour bert --text classic_books.txt.xz simplewiki.txt --glue=glue
    python -m benchmarks learning.hour mine.toml --text classic_books.txt.xz simplewiki.txt --glue=glue

ENTRY is a name from configs/learning, or a pretraining config of your own. Rules: no pretrained weights; the given text
alone; an hour for reading and tokenising it, compiling and training, a teacher's training included; then the same
fine-tuning for all. The hour is the processor time in which the entry `bert` trains for 193.6 TFLOPs on this machine:
7,200 seconds on an EPYC with AVX2, 2,074 on one with AVX-512. Entries of one processor compare best.
Processor time, as other work on the machine hardly changes it.

Two short trainings of BERT, once in --runs, measure how long the hour is, and two of the entry what its steps cost. It
then trains for as many as fit, in its stages' proportions; a pretraining that would end too late stops before that.
The entry is then fine-tuned on CoLA, MRPC, STS-B and SST-2. The result replaces its row in --out. Everything resumes.
"""

import argparse
import json
import resource
import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.learning import budget
from benchmarks.learning.budget_arms import MODELS, MODERN, TERA, TUNING_BY_TASK, Arm
from benchmarks.learning.budget_results import TASKS, FinishedRun, chance
from benchmarks.lib import program, results
from bertzoo.core import atomic
from bertzoo.core.machine import processor
from bertzoo.tasks.glue import GLUE

HOUR = 193.6  # TFLOPs that BERT trained for in 7,200 processor seconds of an EPYC with AVX2, all else included
TRIALS = (1.0, 7.0)  # TFLOPs of the short trainings; compiling varies by seconds
PRUNING_TRIALS = (4.0, 12.0)  # with fewer steps, importances differ too little for a cut
RESERVE = 0.04  # share of the budget that is not planned, as costs vary
START = 60.0  # seconds that restoring and compiling may take
SAVING = 10.0  # seconds that a stopped training may take to save


def spend(record: Path, *words: str, limit: float | None = None) -> float:
    """Run `bertzoo WORDS` unless it has finished; return the processor seconds of all its processes and attempts.

    limit: processor seconds after which a signal stops the command, which saves and counts as finished.
    """
    known = program.read_or_measure(record, lambda: {"seconds": 0.0, "finished": False})
    if not known["finished"]:
        before = _children()
        try:
            left = None if limit is None else limit - SAVING - known["seconds"]
            if left is None:
                program.bertzoo(*words)
            elif left > START or not known["seconds"]:  # with less, the signal would come before it can save
                program.stop_after(left, *words)
            known["finished"] = True
        finally:
            atomic.write_json(record, known | {"seconds": known["seconds"] + (_children() - before)})
    return json.loads(record.read_text(encoding="utf-8"))["seconds"]


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def chain(name: str) -> list[Arm]:
    """The trainings of an entry, in order, with their shares of the budget: a source is trained within it."""
    arms = (*MODELS, *MODERN)
    known = {arm.name: arm for arm in arms if arm.tasks or any(other.source == arm.name for other in arms)}
    if name.endswith(".toml") and Path(name).is_file():
        return [Arm(Path(name).stem, Path(name).stem, name, tasks=tuple(TUNING_BY_TASK))]
    if name not in known:
        raise SystemExit(f"{name} is neither a .toml file nor one of {', '.join(known)}")
    entry = [known[name]]
    while entry[0].source:
        entry.insert(0, known[entry[0].source])
    total = sum(arm.share for arm in entry)
    return [replace(arm, share=arm.share / total) for arm in entry]


def cost(arm: Arm, folder: Path, words: Sequence[str]) -> tuple[float, float]:
    """Processor seconds of starting and of a TFLOP, by two short trainings, whose cost is taken for linear."""
    trials, costs = PRUNING_TRIALS if arm.verb == "prune" else TRIALS, []
    for tflops in trials:
        run, record = folder / f"{arm.name}-trial", folder / f"{arm.name}-trial-{tflops}.json"
        shutil.rmtree(run, ignore_errors=True)
        costs.append(spend(record, *command(arm, tflops), *words, f"--run_dir={run}"))
        shutil.rmtree(run, ignore_errors=True)
    per_tflop = (costs[1] - costs[0]) / (trials[1] - trials[0])
    if per_tflop <= 0:
        raise SystemExit(
            f"{arm.name}: {trials[0]} and {trials[1]} TFLOPs took {costs[0]:.0f} and {costs[1]:.0f} processor seconds, "
            f"so the cost of a step is unknown. Remove {folder} to measure again."
        )
    return max(0.0, costs[0] - per_tflop * trials[0]), per_tflop


def command(arm: Arm, tflops: float) -> list[str]:
    """Return the command line of an arm's training for these TFLOPs."""
    return [arm.verb, *arm.configs, *arm.options, *replace(arm, share=1.0).steps(tflops)]


def plan(arm: Arm, seconds: float, folder: Path, words: Sequence[str]) -> float:
    """The training TFLOPs that fit into processor seconds."""
    start, per_tflop = cost(arm, folder, words)
    fits = (seconds * (1 - RESERVE) - start) / per_tflop
    if fits < TRIALS[1]:
        raise SystemExit(
            f"{arm.name}: starting takes {start:.0f} processor seconds and a TFLOP {per_tflop:.1f}, so {seconds:.0f} "
            f"hold no training of use. Remove {folder} to measure again."
        )
    return fits


def tokenise(arm: Arm, folder: Path, text: Sequence[Path]) -> tuple[list[str], float]:
    """Tokenise the text for an entry; return the option that names it, and the processor seconds."""
    before, record = _children(), folder / "tokenise.json"
    folder.mkdir(parents=True, exist_ok=True)
    if not record.exists():
        data = budget.corpus(text, arm.configs, folder)
        atomic.write_json(record, {"corpus": str(data), "seconds": _children() - before})
    known = json.loads(record.read_text(encoding="utf-8"))
    return [f"--data.source={known['corpus']}"], known["seconds"]


def length(runs: Path, text: Sequence[Path]) -> float:
    """The hour in processor seconds of this machine: what BERT takes to tokenise the text and to train for HOUR."""
    (bert,) = chain("bert")
    words, seconds = tokenise(bert, runs / "hour", text)
    start, per_tflop = cost(bert, runs / "hour", words)
    return seconds + (start + HOUR * per_tflop) / (1 - RESERVE)


def train(
    arms: Sequence[Arm], folder: Path, text: Sequence[Path], allowed: float
) -> tuple[list[tuple[Arm, float]], float]:
    """Train an entry's models; return each with its TFLOPs, and the processor seconds of all, tokenising included."""
    corpus, spent = tokenise(arms[0], folder, text)
    left, planned = allowed - spent, []
    for arm in arms:
        words = list(corpus)
        if arm.source:
            words.append(f"--{'teacher' if arm.verb == 'transfer' else 'from'}={folder / arm.source}")
        settled = folder / f"{arm.name}-tflops.json"
        if not settled.exists():
            atomic.write_json(settled, {"tflops": plan(arm, left * arm.share, folder, words)})
        tflops = json.loads(settled.read_text(encoding="utf-8"))["tflops"]
        limit = left * arm.share if arm.verb == "pretrain" else None
        all_words = [*command(arm, tflops), *words, f"--run_dir={folder / arm.name}"]
        spent += spend(folder / f"{arm.name}-cost.json", *all_words, limit=limit)
        planned.append((replace(arm, share=1.0), tflops))
    return planned, spent


def row(
    run: FinishedRun, tflops: float, seconds: float, allowed: float, baselines: Mapping[str, Mapping[str, float]]
) -> dict[str, Any]:
    """An entry's row; `met` says whether it kept to the hour."""
    cells = {"entry": run.title, "parameters": run.parameters, "TFLOPs": round(tflops, 1), "steps": run.steps}
    cells |= {"of the planned, %": round(100 * run.steps / run.planned), "processor seconds": round(seconds)}
    cells |= {"the hour": round(allowed)}
    cells |= {"MLM loss": run.metric("mlm_hidden_loss")}
    cells |= {"RTD, area": run.metric("rtd_auc")} | run.score_cells()
    best = {task: max(named[task] for named in baselines.values()) for task in TASKS}
    above = [TASKS[task][0] for task in TASKS if run.scores[task]["min"][TASKS[task][1]] > best[task]]
    cells |= {"every seed above both baselines": ", ".join(above) or "none", "processor": processor()[0] or "unknown"}
    return cells | {"met": seconds <= allowed}


def baseline_scores(glue: Path, tuned: Mapping[str, Path]) -> dict[str, dict[str, float]]:
    """Points by baseline and task: the most common label, and tf-idf with logistic regression or, for STS-B, cosine."""
    scores: dict[str, dict[str, float]] = {"the most common label": {}, "tf-idf": {}}
    for task, (folder, metric) in TASKS.items():
        scores["the most common label"][task] = chance(task, glue / folder)
        simple = json.loads((tuned[task] / "results.json").read_text(encoding="utf-8")).get("baselines")
        words = simple and simple["scores"]["logistic regression on tf-idf"]["dev"][metric]
        scores["tf-idf"][task] = cosine(glue / folder, task) if words is None else words
    return scores


def cosine(folder: Path, task: str) -> float:
    """Spearman's correlation, in points, of a similarity task's labels with the cosine of tf-idf vectors."""
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer

    from bertzoo.tasks import metrics

    train, dev = (GLUE[task].read(split, folder).examples for split in ("train", "dev"))
    vectorizer = TfidfVectorizer(sublinear_tf=True).fit([text for one in train for text in one.texts])
    first, second = (vectorizer.transform([one.texts[k] for one in dev]) for k in (0, 1))
    return metrics.spearman(np.asarray(first.multiply(second).sum(1)).ravel(), np.array([one.label for one in dev]))


def merged(out: Path, table: str, rows: Sequence[Mapping[str, Any]], key: str) -> Iterator[Mapping[str, Any]]:
    """The rows of a result's table, with new ones instead of those with the same key, best mean first."""
    old = json.loads(out.read_text(encoding="utf-8"))["tables"][table] if out.exists() else []
    by_key = {one[key]: one for one in [*old, *rows]}
    yield from sorted(by_key.values(), key=lambda one: -one["mean"])


def main() -> None:
    """Train and fine-tune an entry, and add its row."""
    parser = results.parser("hour", __doc__, "runs/hour")
    parser.add_argument("entry", metavar="ENTRY", help="a name from configs/learning, or a .toml")
    parser.add_argument("--text", type=Path, nargs="+", required=True, help="files of text")
    parser.add_argument("--glue", type=Path, required=True, help="the folder of CoLA, MRPC, STS-B and SST-2")
    results.add_numbers(parser, seeds=3)
    args: argparse.Namespace = parser.parse_args()
    arms = chain(args.entry)
    budget.check_inputs(args)
    folder = args.runs / arms[-1].name
    allowed = length(args.runs, args.text)
    planned, seconds = train(arms, folder, args.text, allowed)
    last, tflops = planned[-1]
    last = replace(last, tasks=tuple(TUNING_BY_TASK))
    tuned = {task: budget.tune(folder / last.name, task, args.glue, args.seeds) for task in last.tasks}
    run = budget.finished(last, tflops, folder)
    baselines = baseline_scores(args.glue, tuned)
    entry = row(run, sum(each for _, each in planned[:-1]) + run.flops / TERA, seconds, allowed, baselines)
    simple = [
        {"baseline": name}
        | {f"{title}, {metric}": round(named[task], 1) for task, (title, metric) in TASKS.items()}
        | {"mean": round(statistics.fmean(named.values()), 1)}
        for name, named in baselines.items()
    ]
    results.write(
        args.out,
        [results.packages("jax"), f"commit {results.commit()}", f"{', '.join(path.name for path in args.text)}"],
        {
            "entries": list(merged(args.out, "entries", [entry], "entry")),
            "baselines": list(merged(args.out, "baselines", simple, "baseline")),
        },
    )
