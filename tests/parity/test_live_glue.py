# pyright: reportMissingImports=false
"""benchmarks/learning/glue.py on a tiny model: transformers learns as our code does."""

import json
from pathlib import Path

import numpy as np
import pytest
from comparing import needs

needs("torch", "transformers")

import planted
from tiny import devices

from benchmarks.learning import glue
from bertzoo.cli import main as cli
from bertzoo.conversion import huggingface
from bertzoo.runs import load_model


def test_without_dropout_both_sides_are_one_run(tmp_path: Path) -> None:
    """Epoch for epoch, as they begin with the same head and learn the same batches."""
    planted.fill(tmp_path)
    draw, columns = np.random.default_rng(5), "index genre filename year old source1 source2 sentence1 sentence2 score"
    (tmp_path / "glue" / "STS-B").mkdir(parents=True)
    for split, count in (("train", 96), ("dev", 24)):
        lines = [columns.replace(" ", "\t")]
        for _ in range(count):
            good, text = int(draw.integers(6)), " ".join(draw.choice(planted.WORDS[8:], 3))
            words = [planted.GOOD[0]] * good + [planted.BAD[0]] * (5 - good)
            lines.append("\t".join(["0"] * 7 + [" ".join(words), text, f"{good}.0"]))
        (tmp_path / "glue" / "STS-B" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    (tmp_path / "theirs").mkdir()
    huggingface.write_huggingface(load_model.read_model(tmp_path / "model"), tmp_path / "theirs")
    words = glue.words_of("stsb", str(tmp_path / "glue"), 2, ["--max_length=24", "--train_rows=80"])
    words += ["--dropout=0", "--encoder_dropout=0", "--optimizer.learning_rate=3e-3"]
    with devices(1):
        run = [*words, f"--from={tmp_path / 'theirs'}", f"--run_dir={tmp_path / 'run'}"]
        assert cli.main(["finetune", "finetune", *run]) == 0
        theirs = glue.TransformersSide(words, str(tmp_path / "theirs"))
        for seed in (0, 1):
            history = json.loads((tmp_path / "run" / f"seed-{seed}" / "scores.json").read_text())
            for ours, other in zip(history, theirs.scores(seed), strict=True):
                assert ours["scores"]["dev"] == pytest.approx(other["dev"], abs=0.05)
    assert history[0]["scores"]["dev"]["pearson"] != pytest.approx(history[-1]["scores"]["dev"]["pearson"], abs=1)
