"""The shipped students of a teacher's vectors: their sizes, and a few steps of each on a small vocabulary."""

import math
import re
from pathlib import Path

import pytest
import tiers
from tiny import devices

from bertzoo.cli import main as cli
from bertzoo.core import config
from bertzoo.finetuning.run import resolve_task
from bertzoo.finetuning.settings import Finetune
from bertzoo.heads import parameter_shapes
from bertzoo.runs import load_model

CONFIGS = {file.stem: file for file in (Path(__file__).parents[2] / "configs").glob("embed_*.toml")}
WIDE = ("squeezebert", "schubert", "static")  # as wide as their words
FILES = [("data_dir", "texts"), ("own.train", "train.jsonl"), ("own.dev", "dev.jsonl")]


def test_the_students() -> None:
    assert sorted(CONFIGS) == [
        *("embed_bert", "embed_convbert", "embed_mobilebert", "embed_schubert", "embed_squeezebert", "embed_static")
    ]


@pytest.mark.parametrize("name", CONFIGS)
def test_the_header_has_the_command_and_the_parameters(name: str) -> None:
    recipe, text = config.load(Finetune, [name], FILES), CONFIGS[name].read_text(encoding="utf-8")
    assert f"bertzoo finetune {name} --data_dir=texts --from=minilm --teacher=minilm" in text
    assert len(text.splitlines()) <= 60
    count = sum(math.prod(shape) for shape in parameter_shapes(recipe.model, resolve_task(recipe).head).values())
    (stated,) = re.findall(r"([\d.]+) M parameters", text)
    assert f"{count / 1e6:.1f}" == stated
    assert count < (9e6 if name == "embed_static" else 6e6)


@pytest.mark.parametrize("name", tiers.quick(CONFIGS, "embed_mobilebert", "embed_static"))
def test_a_few_steps(name: str, place: Path, tmp_path: Path) -> None:
    kind = config.load(Finetune, [name], FILES).model.kind
    width = "hidden_size" if kind in WIDE else "embedding_size"
    words = [f"--data_dir={place}", f"--from={place / 'run'}", f"--teacher={place / 'run'}", f"--run_dir={tmp_path}"]
    small = ["--model.vocab_size=73", f"--model.{width}=16", "--embedding.projection=16", "--batch_size=16"]
    with devices(1):
        assert cli.main(["finetune", name, *words, *small, "--epochs=1", f"--embedding.vectors_dir={tmp_path}"]) == 0
    assert load_model.read_model(tmp_path).model.kind == kind
