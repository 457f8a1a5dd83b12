"""A tiny model, a task that words decide, and the command that fine-tunes the one on the other."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import devices

from bertzoo.cli import main as cli
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.data.tokenizers import tokenizer as tokenizers
from bertzoo.data.tokenizers.wordpiece import WordPiece
from bertzoo.heads import MaskedLanguageModel, parameter_shapes
from bertzoo.models import Bert
from bertzoo.runs import load_model

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
    settings = WordPiece(vocab_size=80)
    tokenizer = tokenizers.build(settings, lambda: iter([" ".join(WORDS)] * 20))
    model = Bert(
        vocab_size=tokenizer.vocab_size, hidden_size=16, layers=1, heads=2, feed_forward_size=32, max_positions=32,
        initializer_range=0.1,
    )  # fmt: skip
    write(made / "model", model, MaskedLanguageModel(sentence=True), tokenizer, draw)


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


def write(
    folder: Path, model: Any, head: Any, tokenizer: Any, draw: np.random.Generator | None = None, **source: Any
) -> Pretrained:
    """A model directory of a model with drawn parameters under a head."""
    draw = draw or np.random.default_rng(1)
    params = {
        name: np.ones(shape, np.float32) if name.endswith("scale") else draw.normal(0, 0.1, shape).astype(np.float32)
        for name, shape in parameter_shapes(model, head).items()
    }
    made = Pretrained(
        model=model, head=head, params=params, tokenizer=tokenizer, origin="here", source={"format": "test", **source}
    )
    folder.mkdir(parents=True)
    load_model.write_model(made, folder)
    return made


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
