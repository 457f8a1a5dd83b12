# pyright: reportMissingImports=false
"""benchmarks/glue.py from end to end on tiny models: transformers learns what ours does; run by `make test-all`."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from comparing import needs
from messages import mentioning

needs("torch", "transformers")

import planted
from scripts import loaded
from tiny import devices

from bertzoo.cli import main as cli
from bertzoo.conversion import huggingface
from bertzoo.runs import any_model


def test_both_sides_learn_and_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = loaded("glue", monkeypatch)
    planted.fill(tmp_path)
    for task in planted.HEADS:
        planted.fill_pairs(tmp_path / "glue" / task, task, np.random.default_rng(5))
    (tmp_path / "theirs").mkdir()
    huggingface.write_huggingface(any_model.read_model(tmp_path / "model"), tmp_path / "theirs")
    written = []

    def run(command: list[str], check: bool) -> None:
        with devices(1):
            assert check and cli.main(command[3:]) == 0

    monkeypatch.setattr(script, "subprocess", SimpleNamespace(run=run))
    monkeypatch.setattr(script, "write_section", lambda name, text: written.append((name, text)))
    given = [f"--model={tmp_path / 'theirs'}", f"--data={tmp_path / 'glue'}", "--tasks=rte,mrpc", "--seeds=2"]
    given += [f"--runs={tmp_path / 'runs'}", "--epochs=8", "--max_length=24", "--optimizer.learning_rate=1e-2"]
    monkeypatch.setattr(sys, "argv", ["glue.py", *given, "--mrpc.train_rows=80"])
    for _ in range(2):  # the second time nothing is left to do
        script.main()
    (name, text), again = written
    assert name == "glue.py" and (name, text) == again and str(tmp_path) not in text
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    assert [line[:3] for line in lines[1:]] == [
        ["rte", "96", "accuracy"],
        ["mrpc", "80", "accuracy"],
        ["mrpc", "80", "f1"],
    ]
    for line in lines[1:]:
        assert all(float(side.split()[0]) > 90 for side in line[3:5]) and abs(float(line[5])) <= float(line[6])
    kept = json.loads((tmp_path / "runs" / "theirs" / "rte" / "seed-1.json").read_text())
    assert len(kept["epochs"]) == 8 and "--epochs=8" in kept["words"]
    monkeypatch.setattr(sys, "argv", ["glue.py", *given, "--epochs=8", "--rte.seed=0"])
    with pytest.raises(SystemExit, match=mentioning(f"{tmp_path / 'runs'}/", ".json", "--epochs=8", "--runs")):
        script.main()


def test_without_dropout_both_sides_are_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Epoch for epoch, as they begin with the same head and learn the same batches."""
    script = loaded("glue", monkeypatch)
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
    huggingface.write_huggingface(any_model.read_model(tmp_path / "model"), tmp_path / "theirs")
    words = script.words_of("stsb", str(tmp_path / "glue"), 2, ["--max_length=24", "--train_rows=80"])
    words += ["--dropout=0", "--encoder_dropout=0", "--optimizer.learning_rate=3e-3"]
    with devices(1):
        run = [*words, f"--from={tmp_path / 'theirs'}", f"--run_dir={tmp_path / 'run'}"]
        assert cli.main(["finetune", "finetune", *run]) == 0
        theirs = script.Theirs(words, str(tmp_path / "theirs"))
        for seed in (0, 1):
            history = json.loads((tmp_path / "run" / f"seed-{seed}" / "scores.json").read_text())
            for ours, other in zip(history, theirs.scores(seed), strict=True):
                assert ours["scores"]["dev"] == pytest.approx(other["dev"], abs=0.05)
    assert history[0]["scores"]["dev"]["pearson"] != pytest.approx(history[-1]["scores"]["dev"]["pearson"], abs=1)


def test_medians_may_be_a_point_apart_or_what_the_seeds_are(monkeypatch: pytest.MonkeyPatch) -> None:
    script = loaded("glue", monkeypatch)
    near, far = script.Score("rte", 9, "accuracy", [60, 61, 62], [61, 62, 63]), [50.0, 50.1, 50.2]
    assert near.allowed == 1 and near.apart == -1
    wide = script.Score("rte", 9, "accuracy", [55, 60, 65], far)
    assert wide.apart == pytest.approx(9.9) and wide.allowed == pytest.approx(np.sqrt((25 + 0.01) / 2))
