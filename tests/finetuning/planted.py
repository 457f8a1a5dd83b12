"""A tiny model, a task that words decide, and the command that fine-tunes the one on the other."""

import json
from pathlib import Path

import numpy as np
import pytest
from beginning import write as write  # as planted.write
from beginning import write_model
from tiny import devices

from bertzoo.cli import main as cli

WORDS = [f"{first}{second}" for first in ("ba", "do", "ke", "lu", "mi", "nor") for second in ("ra", "ti", "so", "len")]
GOOD, BAD = WORDS[:4], WORDS[4:8]
OPTIONS = [
    *("--task=own", "--own.train=train.csv", "--own.dev=dev.csv", "--seeds=2", "--epochs=4", "--batch_size=16"),
    *("--max_length=24", "--optimizer.learning_rate=1e-2", "--encoder_dropout=0", "--log_every=15", "--buckets=2"),
]


def fill(made: Path) -> None:
    """A model directory `model`, and the task's files: a text is good where a good word is in it, else a bad one is."""
    draw = np.random.default_rng(0)

    def text(label: int) -> str:
        words = [str(word) for word in draw.choice(WORDS[8:], draw.integers(2, 12))]
        words.insert(int(draw.integers(0, len(words))), str(draw.choice((BAD, GOOD)[label])))
        return " ".join(words)

    for name, count in (("train", 240), ("dev", 40)):
        labels = draw.integers(0, 2, count)
        lines = [f"{text(int(label))},{label},{label + draw.uniform(0, 0.1):.3f}" for label in labels]
        (made / f"{name}.csv").write_text("\n".join(["text,label,number", *lines]) + "\n")
    write_model(made / "model", WORDS, draw)


HEADS = {"RTE": "index\tsentence1\tsentence2\tlabel", "MRPC": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"}


def fill_pairs(folder: Path, task: str, draw: np.random.Generator) -> None:
    """GLUE's files of RTE or MRPC: which it is a word of the first text says."""
    folder.mkdir(parents=True)
    for split, count in (("train", 96), ("dev", 24)):
        lines = [HEADS[task]]
        for row in range(count):
            label = int(draw.integers(2))
            one = f"{draw.choice(WORDS[8:])} {draw.choice((BAD, GOOD)[label])}"
            two = " ".join(draw.choice(WORDS[8:], 3))
            said = ("not_entailment", "entailment")[label]
            lines.append(f"{row}\t{one}\t{two}\t{said}" if task == "RTE" else f"{label}\t1\t2\t{one}\t{two}")
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")


def finetune(folder: Path, run: Path, *options: str, on: int = 1) -> int:
    words = [*OPTIONS, f"--data_dir={folder}", f"--from={folder / 'model'}", f"--run_dir={run}", *options]
    with devices(on):
        return cli.main(["finetune", "finetune", *words])


def results(run: Path) -> dict:
    return json.loads((run / "results.json").read_text())


def said(capsys: pytest.CaptureFixture, *words: object, code: int = 0) -> tuple[str, str]:
    """Return a command's standard output and standard error."""
    capsys.readouterr()
    assert cli.main([str(word) for word in words]) == code
    captured = capsys.readouterr()
    return captured.out, captured.err


def records(capsys: pytest.CaptureFixture, *words: object) -> list[dict]:
    """What `bertzoo predict` says of texts."""
    return [json.loads(line) for line in said(capsys, "predict", *words, "--json")[0].splitlines()]
