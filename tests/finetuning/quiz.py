"""A tiny model, questions whose answers depend on single words, and the command that fine-tunes it on them."""

import json
from pathlib import Path

import numpy as np
from beginning import write_model
from planted import WORDS
from tiny import devices

from bertzoo.cli import main as cli
from bertzoo.core import config
from bertzoo.finetuning.question_answering import QuestionTask
from bertzoo.finetuning.run import resolve_task
from bertzoo.finetuning.settings import Finetune

ANSWERS, OTHERS = WORDS[:3], WORDS[3:]
OPTIONS = [
    *("--seeds=2", "--epochs=3", "--batch_size=8", "--max_length=24", "--buckets=1", "--encoder_dropout=0"),
    *("--optimizer.learning_rate=1e-2", "--squad.stride=8", "--squad.max_question=4", "--log_every=20"),
]
OWN = [  # questions of own.jsonl
    *("--own.kind=span", "--own.train=own.jsonl", "--own.question=asked", "--own.context=paragraph"),
    *("--own.answer=said", "--squad.heldout=0.3"),
]


def table(draw: np.random.Generator, articles: int, nulls: bool) -> dict:
    """SQuAD's: of eight questions on an article the paragraph of each has one answer, or with nulls perhaps none."""

    def asked(key: str) -> dict:
        words = [str(word) for word in draw.choice(OTHERS, draw.integers(8, 26))]
        answer = "" if nulls and draw.random() < 0.5 else str(draw.choice(ANSWERS))
        words.insert(int(draw.integers(0, len(words))), answer)
        context = " ".join(filter(None, words))
        answers = [{"text": answer, "answer_start": context.index(answer)}] if answer else []
        question = {"id": key, "question": f"{OTHERS[0]} {OTHERS[1]}?", "answers": answers}
        return {"context": context, "qas": [question | ({"is_impossible": not answer} if nulls else {})]}

    return {"data": [{"title": f"T{i}", "paragraphs": [asked(f"{i}-{j}") for j in range(8)]} for i in range(articles)]}


def fill(made: Path) -> None:
    """A model directory `model`, the files of both versions, and questions in a table."""
    draw = np.random.default_rng(0)
    for version, nulls in (("1.1", False), ("2.0", True)):
        for split, articles in (("train", 10), ("dev", 3)):
            (made / f"{split}-v{version}.json").write_text(json.dumps(table(draw, articles, nulls)))
    lines = [
        json.dumps({"asked": qa["question"], "paragraph": p["context"], "said": qa["answers"][0]["text"]})
        for a in table(draw, 6, False)["data"]
        for p in a["paragraphs"]
        for qa in p["qas"]
    ]
    lines += [json.dumps({"asked": "?", "paragraph": "lura", "said": "nowhere"})]
    (made / "own.jsonl").write_text("\n".join(lines))
    write_model(made / "model", WORDS, draw)


def finetune(folder: Path, run: Path, *options: str, on: int = 1) -> int:
    words = [*OPTIONS, f"--data_dir={folder}", f"--from={folder / 'model'}", f"--run_dir={run}", *options]
    with devices(on):
        return cli.main(["finetune", "finetune_squad", *words])


def kept(run: Path, seed: int, name: str) -> dict:
    return json.loads((run / f"seed-{seed}" / f"{name}.json").read_text())


def span(folder: Path, *options: str, task: str = "squad1") -> QuestionTask:
    pairs = [option.removeprefix("--").split("=", 1) for option in [*OPTIONS, *options]]
    recipe = config.load(Finetune, ["finetune_squad"], [("task", task), ("data_dir", str(folder)), *map(tuple, pairs)])
    family = resolve_task(recipe)
    assert isinstance(family, QuestionTask)
    return family
