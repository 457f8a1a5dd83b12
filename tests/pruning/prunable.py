"""A text, a tiny BERT trained on it, and a config that prunes it in seconds."""

import json
from pathlib import Path
from typing import Any

import tiny
import tomli_w

from bertzoo.cli.main import main
from bertzoo.pruning import layout
from bertzoo.pruning.costs import parameters
from bertzoo.pruning.structure import declare

MODEL = {
    "kind": "bert", "vocab_size": 256, "hidden_size": 16, "layers": 1, "heads": 2, "feed_forward_size": 32,
    "max_positions": 32, "dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.1,
}  # fmt: skip
SHAPE = {"batch_size": 8, "max_length": 24, "max_predictions": 4}
TABLES = {
    "objective": {"sentence": "nsp"},
    "optimizer": {"kind": "adamw", "learning_rate": 0.01},
    "run": {"log_every": 1, "evaluate_every": 0, "evaluate_rows": 16, "save_every": 1, "keep_best": 0},
}
WEIGH = {"steps": 2, "learning_rate": 0.2, "gamma": 1e-3, **SHAPE}
PRUNING = {
    "target": {"kind": "parameters", "share": 0.6},
    "cut": {"iterations": 2},
    "weigh": WEIGH,
    "tuning": [{"steps": 2, **SHAPE}],
}


def fill(folder: Path) -> Path:
    """Write the corpus, train the run `unpruned`, and write `prune.toml`; return the folder."""
    tiny.make_corpus(folder)
    pretrained(folder, folder, 4)
    return written(folder, "prune.toml", folder, **PRUNING).parent


def written(folder: Path, name: str, of: Path, **tables) -> Path:
    """Write a config with these tables over the defaults above, on the corpus of `folder`."""
    source = str(of / "corpus")
    data = {"source": source, "heldout": 0.2, "sentences": "lines", "tokenizer": {"vocab_size": 250}}
    (folder / name).write_text(tomli_w.dumps({"model": MODEL, "data": data, **TABLES, **tables}))
    return folder / name


def pretrained(path: Path, of: Path, steps: int, **tables) -> Path:
    """Train a model on the corpus of the folder `of`, and return its run."""
    file = written(path, "unpruned.toml", of, stages=[{"steps": steps, **SHAPE}], **tables)
    assert main(["pretrain", str(file), f"--run_dir={path / 'unpruned'}"]) == 0
    return path / "unpruned"


def prune(folder: Path, run: Path, *options: str) -> int:
    """Run `bertzoo prune` and return its exit code."""
    return main(["prune", str(folder / "prune.toml"), f"--run_dir={run}", *options])


def cuts(run: Path) -> list[dict]:
    """Return the record of every iteration's cut."""
    return [json.loads(path.read_text()) for path in layout.cut_files(run)]


def size(model: Any) -> Any:
    """Return the parameters as pruning counts them."""
    structure = declare(model.model, model.head)
    return parameters(structure)(structure.sizes)
