"""The shipped students of a teacher's vectors: their sizes, and a few steps of each on a small vocabulary."""

from pathlib import Path

import pytest
import tiers
from tiny import devices

from bertzoo.cli import main as cli
from bertzoo.core import config
from bertzoo.finetuning.settings import Finetune
from bertzoo.runs import load_model

CONFIGS = {file.stem: file for file in (Path(__file__).parents[2] / "configs").glob("embed_*.toml")}
WIDE = ("squeezebert", "schubert", "static")  # as wide as their words
FILES = [("data_dir", "texts"), ("own.train", "train.jsonl"), ("own.dev", "dev.jsonl")]


@pytest.mark.parametrize("name", tiers.quick(CONFIGS, "embed_static"))
def test_a_few_steps(name: str, place: Path, tmp_path: Path) -> None:
    kind = config.load(Finetune, [name], FILES).model.kind
    width = "hidden_size" if kind in WIDE else "embedding_size"
    words = [f"--data_dir={place}", f"--from={place / 'run'}", f"--teacher={place / 'run'}", f"--run_dir={tmp_path}"]
    small = ["--model.vocab_size=73", f"--model.{width}=16", "--embedding.projection=16", "--batch_size=16"]
    with devices(1):
        assert cli.main(["finetune", name, *words, *small, "--epochs=1", f"--embedding.vectors_dir={tmp_path}"]) == 0
    assert load_model.read_model(tmp_path).model.kind == kind
