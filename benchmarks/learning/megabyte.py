"""Classifiers of less than a million parameters: scores on the development sets of SST-2 and MRPC, which chose nothing.

    python -m benchmarks learning.megabyte minilm --texts=texts --glue=glue --runs=runs/megabyte

A model of configs/embed_megabyte.toml, with the 8,192 most frequent tokens of the tasks and of general texts (a folder
of launch/embedding_texts.py), learns MiniLM's vectors. For MRPC, whose rows are pairs, it then learns to compare two
texts: to tag the words that both have, and to estimate their share. Then each task has a teacher, fine-tuned from
MiniLM, and students that learn from it on the training set and on changed copies of it (launch/augment.py). A trained
student's vocabulary is cut to the tokens of the training set. A part of the training set chose the settings and chooses
the epoch; GLUE's development set is scored once, in float32 and by the int8 file. Finished parts stay under --runs; all
resume.
"""

import argparse
import csv
import hashlib
import json
import random
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lib import results, tables
from benchmarks.lib.program import bertzoo, card, check_litert, evaluate, finetune, litert_file

LAUNCH = Path(__file__).parents[2] / "launch"
TOKENS, GENERAL = 8192, 60_000  # size of the vocabulary; number of general texts
HELD_OUT = 1000  # most rows of the training set that choose
LONGEST_FILE = 1.1e6  # bytes
PAIRS, BETWEEN = 100_000, "||"  # number of pairs for `comparer`; the word between two texts


@dataclass(frozen=True)
class Task:
    """A task of GLUE. length: a student's tokens. teacher, student: options of runs. aim: least accuracy, in points.

    vocabulary: number of the tokens that stay, the most frequent in the training set, so that the file is not longer
    than LONGEST_FILE; 0: all that occur.
    """

    folder: str
    columns: tuple[str, ...]
    label: str
    copies: int
    length: int
    aim: float
    teacher: tuple[str, ...]
    student: tuple[str, ...]
    vocabulary: int = 0


TASKS = {
    "sst2": Task(
        folder="SST-2",
        columns=("sentence",),
        label="label",
        copies=4,
        length=64,
        aim=85,
        teacher=("--epochs=1", "--batch_size=32", "--max_length=64", "--optimizer.learning_rate=5e-5"),
        student=("--epochs=3", "--batch_size=128", "--optimizer.learning_rate=1.5e-3"),
    ),
    "mrpc": Task(
        folder="MRPC",
        columns=("#1 String", "#2 String"),
        label="Quality",
        copies=5,
        length=96,
        aim=74,
        teacher=("--epochs=5", "--batch_size=16", "--max_length=128", "--optimizer.learning_rate=5e-5"),
        student=("--epochs=4", "--batch_size=64", "--optimizer.learning_rate=3e-4"),
        vocabulary=6500,
    ),
}


def read_rows(file: Path, task: Task) -> list[list[str]]:
    """The texts and the label of each row of a GLUE file, without doubled spaces."""
    with file.open(encoding="utf-8-sig", newline="") as lines:
        table = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [[" ".join(row[name].split()) for name in (*task.columns, task.label)] for row in table]


def write_rows(file: Path, task: Task, rows: list[list[str]]) -> None:
    """Write a table for `--task=own`."""
    header = (*task.columns, task.label)
    file.write_text("".join("\t".join(row) + "\n" for row in [header, *rows]), encoding="utf-8")


def split(rows: list[list[str]]) -> tuple[list[list[str]], list[list[str]]]:
    """Training rows, and rows held out by a hash: at most HELD_OUT, and a sixth of all. No training row is part of one.

    SST-2's training set has sentences and parts of them; only texts whose first eight words occur in no other one are
    held out.
    """
    single, count = len(rows[0]) == 2, 8
    words = [row[0].split() for row in rows]
    runs = Counter(tuple(each[i : i + count]) for each in words for i in range(len(each) - count + 1))
    whole = [row for row, each in zip(rows, words, strict=True) if not single or runs[tuple(each[:count])] == 1]
    ordered = sorted(whole, key=lambda row: hashlib.sha256(" ".join(row).encode()).digest())
    held = ordered[: min(HELD_OUT, len(rows) // 6)]
    text, chosen = "\n".join(f" {row[0]} " for row in held), set(map(tuple, held))
    return [row for row in rows if tuple(row) not in chosen and not (single and f" {row[0]} " in text)], held


def prepare(task: Task, glue: Path, out: Path) -> list[str]:
    """Write a task's tables in `out`: train, dev (held out), test (GLUE's dev) and more; return its training texts."""
    train, held = split(read_rows(glue / task.folder / "train.tsv", task))
    if not (out / "more.tsv").exists():
        out.mkdir(parents=True, exist_ok=True)
        test = read_rows(glue / task.folder / "dev.tsv", task)
        for name, rows in (("train", train), ("dev", held), ("test", test)):
            write_rows(out / f"{name}.tsv", task, rows)
        words = [str(out / "train.tsv"), str(out / "more.tsv"), f"--columns={','.join(task.columns)}"]
        subprocess.run([sys.executable, str(LAUNCH / "augment.py"), *words, f"--copies={task.copies}"], check=True)
    return [text for row in train for text in row[:-1]]


def write_texts(file: Path, texts: list[str]) -> None:
    """Write texts as JSONL."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")


def encoder(args: argparse.Namespace, texts: dict[str, list[str]]) -> Path:
    """A run of embed_megabyte, on the tasks' texts and the general ones."""
    lines = (args.texts / "train.jsonl").read_text(encoding="utf-8").splitlines()
    general = [json.loads(line)["text"] for line in lines[:GENERAL]]
    words, data = args.runs / "words", args.runs / "texts"
    if not words.exists():
        # the tasks' words weigh most; MRPC's few texts count five times
        write_texts(data / "vocabulary.jsonl", [*texts["sst2"], *texts["mrpc"] * 5, *general[: GENERAL // 6]])
        options = (f"--input={data / 'vocabulary.jsonl'}", f"--size={TOKENS}")
        bertzoo("prune", "vocabulary", args.model, str(words), *options)
    if not (data / "train.jsonl").exists():
        distinct = {text: None for text in [*general, *texts["sst2"], *texts["mrpc"]] if text}
        write_texts(data / "dev.jsonl", [*distinct][::100])
        write_texts(data / "train.jsonl", [*distinct])
    run = args.runs / "encoder"
    finetune([f"--data_dir={data}", f"--from={words}", f"--teacher={args.model}"], run, "embed_megabyte")
    return run


def pairs(sources: Sequence[Sequence[str]], count: int) -> Iterator[tuple[list[str], list[str]]]:
    """Words of two texts, each of a source drawn by chance.

    In three of four pairs, the second text is a changed copy of the first one: words dropped, replaced and added, parts
    swapped or cut off. In the fourth, it is another text with a part of the first one. Either may come first.
    """
    draw = random.Random(0)
    words = [word for source in sources for text in source for word in text.split()]

    def part(text: list[str], least: int = 0) -> list[str]:
        length = draw.randint(min(least, len(text)), len(text))
        start = draw.randint(0, len(text) - length)
        return text[start : start + length]

    def text(longest: int) -> list[str]:
        drawn = draw.choice(draw.choice(sources)).split()
        start = draw.randint(0, max(0, len(drawn) - longest))
        return drawn[start : start + longest]

    def changed(text: list[str]) -> Iterator[str]:
        rate, start = draw.uniform(0, 0.7), draw.randrange(len(text)) if draw.random() < 0.3 else 0
        swapped = [*text[start:], *text[:start]]
        for word in part(swapped, 4) if draw.random() < 0.25 else swapped:
            chance = draw.random() / rate if rate else 1
            if chance >= 2 / 3:
                yield word
            if 1 / 3 <= chance < 0.8:
                yield draw.choice(words)

    while count:
        longest = draw.choice((8, 12, 16, 24))
        first = text(longest)
        if draw.random() < 0.75:
            second = [*changed(first)]
        else:
            second = text(longest)
            start = draw.randint(0, len(second))
            second[start:start] = part(first)
        if first and second and BETWEEN not in (*first, *second):
            yield (first, second) if draw.random() < 0.5 else (second, first)
            count -= 1


def compared(first: list[str], second: list[str]) -> dict[str, Any]:
    """A training row of two texts: a tag for each word, 1 if the other text has it, and the share of 1, from 0 to 5."""
    others = [{word.lower() for word in text} for text in (second, first)]
    tags = [[int(word.lower() in other) for word in text] for text, other in zip((first, second), others, strict=True)]
    return {
        "words": [*first, BETWEEN, *second],
        "tags": [*map(str, [*tags[0], 0, *tags[1]])],
        "first": " ".join(first),
        "second": " ".join(second),
        "share": 5 * statistics.fmean(tags[0] + tags[1]),
    }


def comparer(args: argparse.Namespace, start: Path, texts: dict[str, list[str]]) -> Path:
    """A run that continues an encoder: it tags the words that two texts share, and then estimates their share."""
    data, tagger, run = args.runs / "pairs", args.runs / "tagger", args.runs / "comparer"
    if not (data / "train.jsonl").exists():
        general = [json.loads(line)["text"] for line in (args.runs / "texts" / "train.jsonl").open(encoding="utf-8")]
        rows = [json.dumps(compared(*both)) + "\n" for both in pairs([texts["mrpc"], general[:GENERAL]], PAIRS)]
        data.mkdir(parents=True, exist_ok=True)
        for name, part in (("dev", rows[:1000]), ("train", rows[1000:])):
            (data / f"{name}.jsonl").write_text("".join(part), encoding="utf-8")
    options = ["--task=own", f"--data_dir={data}", "--batch_size=64", "--max_length=96", "--dropout=0"]
    options += ["--encoder_dropout=0", "--seeds=1"]
    tags = ["--own.kind=tokens", "--own.text_a=words", "--own.label=tags", "--epochs=2"]
    finetune([*options, *tags, "--optimizer.learning_rate=1.5e-3", f"--from={start}"], tagger)
    share = ["--own.kind=regression", "--own.text_a=first", "--own.text_b=second", "--own.label=share", "--epochs=1"]
    finetune([*options, *share, "--optimizer.learning_rate=7e-4", f"--from={tagger}"], run)
    return run


def students(name: str, task: Task, start: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Fine-tune a task's teacher and students; return the table's row."""
    data = args.runs / name
    options = ["--task=own", f"--data_dir={data}", f"--own.label={task.label}", f"--own.text_a={task.columns[0]}"]
    options += [f"--own.{part}={part}.tsv" for part in ("train", "dev", "test")]
    options += [f"--own.text_b={column}" for column in task.columns[1:]]
    teacher, run = args.runs / f"{name}_teacher", args.runs / f"{name}_student"
    finetune([*options, *task.teacher, f"--from={args.model}", "--seeds=1"], teacher)
    options.append(f"--max_length={task.length}")
    taught = ["--own.unlabelled=more.tsv", f"--teacher={teacher}", "--alpha=0.3", f"--seeds={args.seeds}"]
    learnt = finetune([*options, *task.student, *taught, f"--from={start}"], run)
    write_texts(data / "texts.jsonl", [text for row in read_rows(data / "train.tsv", task) for text in row[:-1]])
    scores: dict[str, list[float]] = {"float32": [], "int8": []}
    sizes, counts = [], []
    for seed in range(args.seeds):
        cut = args.runs / f"{name}-{seed}"
        if not cut.exists():
            words = [f"--input={data / 'texts.jsonl'}", *([f"--size={task.vocabulary}"] if task.vocabulary else [])]
            bertzoo("prune", "vocabulary", str(run / f"seed-{seed}"), str(cut), *words)
        settings = ("--precision=int8-dynamic", f"--lengths={task.length}")
        file = litert_file(cut, args.runs / f"{name}-{seed}.tflite", *settings)
        sizes.append(file.stat().st_size)
        counts.append(card(file)["parameters"])
        for form, model in (("float32", cut), ("int8", file)):
            scores[form].append(evaluate(model, f"--input={data / 'test.tsv'}")["score"])
    row = {"task": task.folder, "parameters": max(counts), "int8, MB": round(max(sizes) / 1e6, 2)}
    row |= {"seeds": args.seeds, "held out": tables.spread([one["score"] for one in learnt["seeds"]], 1)}
    row |= {"dev": tables.spread(scores["float32"], 1), "dev, int8": tables.spread(scores["int8"], 1)}
    row |= {"teacher": round(evaluate(teacher, f"--input={data / 'test.tsv'}")["score"], 1)}
    small = max(counts) < 1e6 and max(sizes) <= LONGEST_FILE
    return row | {"aim": task.aim, "met": small and row["dev, int8"]["median"] >= task.aim}


def main() -> None:
    """Train what is missing and write the result."""
    parser = results.parser("megabyte", __doc__, "runs/megabyte")
    parser.add_argument("model", help="all-MiniLM-L6-v2, a directory of sentence-transformers")
    parser.add_argument("--texts", type=Path, required=True, help="a folder by launch/embedding_texts.py")
    parser.add_argument("--glue", type=Path, required=True, help="the folder of GLUE's folders SST-2 and MRPC")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=[*TASKS], help="(default: all)")
    results.add_numbers(parser, seeds=3)
    args = parser.parse_args()
    check_litert()
    texts = {name: prepare(task, args.glue, args.runs / name) for name, task in TASKS.items()}
    start = encoder(args, texts)
    rows = []
    for name in args.tasks:
        task = TASKS[name]
        rows.append(students(name, task, comparer(args, start, texts) if len(task.columns) == 2 else start, args))
    results.write(args.out, [results.packages("jax"), f"commit {results.commit()}"], {"models": rows})
