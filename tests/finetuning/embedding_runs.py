"""Pairs of texts on four topics, and fine-tuning runs of their vectors."""

import json
from pathlib import Path

import numpy as np
from beginning import write_model
from tiny import devices

from bertzoo.cli import main as cli

TOPICS = ("bara doti kelu", "mopi nuro sati", "vexo zupi lafe", "gine rodu tami")
WORDS = " ".join(TOPICS).split()
OPTIONS = ("--head=embedding", "--task=own", "--own.kind=texts", "--own.text_b=partner", "--seeds=1", "--max_length=12")
FAST = ("--batch_size=8", "--encoder_dropout=0", "--optimizer.learning_rate=1e-2", "--buckets=1", "--log_every=50")
NEW_MODEL = (
    *("--model.kind=electra", "--model.layers=1", "--model.heads=2", "--model.feed_forward_size=16"),
    *("--model.embedding_size=6", "--model.hidden_size=8", "--model.vocab_size=73"),
)


def prepare(folder: Path) -> None:
    """Write a model, and pairs of texts on one of four topics, each with two of its three words, into a folder."""
    draw = np.random.default_rng(0)
    write_model(folder / "model", WORDS, draw)
    for name, count in (("train", 64), ("dev", 24)):
        rows = []
        for nth in range(count):
            words = TOPICS[nth % len(TOPICS)].split()
            first, second = (" ".join(draw.permutation(words)[:2]) + f" {draw.choice(WORDS)}" for _ in range(2))
            rows.append({"text": f"{first} {draw.choice(WORDS)}", "partner": f"{second} {draw.choice(WORDS)}"})
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_beir(folder: Path, documents: list[dict], queries: list[dict], judged: list[tuple[str, str]]) -> None:
    """Write a retrieval task in BEIR's files."""
    (folder / "qrels").mkdir(parents=True)
    for name, records in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    rows = "".join(f"{query}\t{document}\t1\n" for query, document in judged)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)


def finetune(folder: Path, run: Path, *more: str) -> int:
    with devices(1):
        words = ["finetune", "finetune", f"--from={folder / 'model'}", f"--data_dir={folder}", f"--run_dir={run}"]
        return cli.main([*words, *OPTIONS, *FAST, *more])
