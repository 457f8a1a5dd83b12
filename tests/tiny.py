"""A text and a config so small that a whole run takes seconds, and the devices that it has."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bertzoo.cli import main as cli
from bertzoo.train import sharding

TOML = """
[model]
kind = "squeezebert"
vocab_size = 256
hidden_size = 16
layers = 1
heads = 2
feed_forward_size = 32
max_positions = 48
query_groups = 2
key_groups = 2
value_groups = 2
intermediate_groups = 2
output_groups = 2

[objective]
sentence = "sop"

[data]
source = "SOURCE"
heldout = 0.2
sentences = "lines"

[data.tokenizer]
kind = "wordpiece"
vocab_size = 250

[optimizer]
kind = "lamb"
learning_rate = 1e-2

[optimizer.schedule]
warmup_share = 0.2

[[stages]]
steps = 6
batch_size = 16
max_length = 32
max_predictions = 5

[[stages]]
steps = 4
batch_size = 8
max_length = 48
max_predictions = 7

[run]
log_every = 1
evaluate_every = 2
evaluate_rows = 16
save_every = 2
"""


def write_text(path: Path, documents: int = 60) -> Path:
    """Documents of short sentences, one a line, over a Zipf vocabulary of 120 invented words."""
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("aeioulmnrst"), rng.integers(3, 8))) for _ in range(120)]
    chances = 1 / np.arange(1, 121)
    lines = []
    for _ in range(documents):
        for _ in range(rng.integers(6, 20)):
            lines.append(" ".join(rng.choice(words, rng.integers(4, 12), p=chances / chances.sum())) + ".")
        lines.append("")
    path.write_text("\n".join(lines))
    return path


def write_config(directory: Path, source: Path | str, stages: int = 2) -> Path:
    """The config above, reading `source`; with one stage, nothing is compiled for the second."""
    path, (before, first, second) = directory / "tiny.toml", TOML.replace("SOURCE", str(source)).split("[[stages]]")
    second, run = second.split("[run]")
    path.write_text("[[stages]]".join([before, first, second][: stages + 1]) + f"[run]{run}")
    return path


def make_corpus(folder: Path, documents: int = 60) -> Path:
    """Write the text and its config into a folder, and its tokenised corpus into the folder `corpus` there."""
    config, corpus = write_config(folder, "nowhere"), folder / "corpus"
    text = write_text(folder / "text.txt", documents)
    assert cli.main(["tokenize", str(text), str(corpus), f"--config={config}", "--workers=1"]) == 0
    return corpus


def records(run: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def facts(run: Path) -> dict[str, Any]:
    """A run's run.json."""
    return json.loads((run / "run.json").read_text())


@contextmanager
def devices(count: int) -> Iterator[None]:
    """Context in which runs have `count` devices; programs for one compile in half the time of those for eight."""
    plain = sharding.make_mesh
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharding, "make_mesh", lambda config, given=None: plain(config, given or jax.devices()[:count]))
        yield
