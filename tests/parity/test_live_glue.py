# pyright: reportMissingImports=false
"""benchmarks/learning/glue.py from end to end on tiny models: transformers learns as our code does."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from comparing import needs
from messages import mentioning

needs("torch", "transformers")

import planted
from tiny import devices

from benchmarks.learning import glue
from benchmarks.lib import program
from bertzoo.cli import main as cli
from bertzoo.conversion import huggingface
from bertzoo.runs import load_model


def test_both_sides_learn_and_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.fill(tmp_path)
    for task in planted.HEADS:
        planted.fill_pairs(tmp_path / "glue" / task, task, np.random.default_rng(5))
    (tmp_path / "theirs").mkdir()
    huggingface.write_huggingface(load_model.read_model(tmp_path / "model"), tmp_path / "theirs")

    def run(*words: str) -> None:
        with devices(1):
            assert cli.main(list(words)) == 0

    monkeypatch.setattr(program, "bertzoo", run)
    out = tmp_path / "glue.json"
    options = [f"--model={tmp_path / 'theirs'}", f"--data={tmp_path / 'glue'}", "--tasks=rte,mrpc", "--seeds=2"]
    options += [f"--runs={tmp_path / 'runs'}", f"--out={out}", "--epochs=8", "--max_length=24"]
    options += ["--optimizer.learning_rate=1e-2"]
    monkeypatch.setattr(sys, "argv", ["glue.py", *options, "--mrpc.train_rows=80"])
    texts = []
    for _ in range(2):  # the second time nothing is left to do
        glue.main()
        texts.append(out.read_text())
    assert texts[0] == texts[1] and str(tmp_path) not in texts[0]
    rows = json.loads(texts[0])["tables"]["scores"]
    assert [list(row.values())[:3] for row in rows] == [
        ["rte", 96, "accuracy"],
        ["mrpc", 80, "accuracy"],
        ["mrpc", 80, "f1"],
    ]
    for row in rows:
        assert all(row[side]["median"] > 90 for side in ("bertzoo", "transformers"))
        assert row["met"] and abs(row["apart"]) <= row["allowed"]
    kept = json.loads((tmp_path / "runs" / "theirs" / "rte" / "seed-1.json").read_text())
    assert len(kept["epochs"]) == 8 and "--epochs=8" in kept["words"]
    monkeypatch.setattr(sys, "argv", ["glue.py", *options, "--epochs=8", "--rte.seed=0"])
    with pytest.raises(SystemExit, match=mentioning(f"{tmp_path / 'runs'}/", ".json", "--epochs=8", "--runs")):
        glue.main()


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


def test_medians_may_differ_by_a_point_or_by_the_spread_of_the_seeds() -> None:
    near = glue.row("rte", 9, "accuracy", [60, 61, 62], [61, 62, 63])
    assert near["allowed"] == 1 and near["apart"] == -1 and near["met"]
    wide = glue.row("rte", 9, "accuracy", [55, 60, 65], [50.0, 50.1, 50.2])
    assert wide["apart"] == 9.9 and wide["allowed"] == round(np.sqrt((25 + 0.01) / 2), 2) and not wide["met"]
