"""The data of a sweep is read before its first run, with the tasks of the real `bertzoo finetune`."""

import json
import shutil
from pathlib import Path

import pytest
from messages import mentions
from place import STAND_IN
from planted import write

from bertzoo.cli import main as cli
from bertzoo.data.tokenizers import tokenizer as tokenizers
from bertzoo.data.tokenizers.wordpiece import WordPiece
from bertzoo.heads import MaskedLanguageModel
from bertzoo.jobs import local
from bertzoo.models import Bert
from bertzoo.runs import load_model
from bertzoo.tasks import readers

COMMAND = ["sweep", "sweep.toml", "--run_dir=runs/s", "--from=m", "--data_dir=sst"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with a sweep of two points; the second one fails."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "COMMAND", (str(STAND_IN),))
    monkeypatch.setattr(local, "count_devices", lambda: ("cpu", 1))
    Path("behaviour.json").write_text(json.dumps({"--epochs=2": {"exit": 1}}))
    layers = {"hidden_size": 8, "layers": 1, "heads": 1, "feed_forward_size": 8, "max_positions": 128}
    tokenizer = tokenizers.build(WordPiece(vocab_size=30), lambda: iter(["good"] * 20))
    model = Bert(vocab_size=tokenizer.vocab_size, **layers)
    write(Path("m"), model, MaskedLanguageModel(), tokenizer)
    Path("sweep.toml").write_text('[sweep]\nbase = "finetune"\ntasks = ["sst2"]\n[grid]\nepochs = [1, 2]\n')


def fill() -> None:
    Path("sst").mkdir()
    for split in ("train", "dev"):
        Path("sst", f"{split}.tsv").write_text("sentence\tlabel\ngood\t1\n")


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--from=none"], ("directory",)),
        (["--max_length=129"], ("max_length", 129, 128)),
        (["--alpha=0.5", "--teacher=none"], ("directory",)),
        (["--double_unordered=true"], ("double_unordered", "pairs")),
        (["--squad.stride=64"], ("squad.stride", 64, "sst2")),
        (["--alpha=0.8"], ("alpha = 0.8", "--teacher")),
    ],
)
def test_a_model_or_option_that_does_not_fit_raises_before_anything_runs(
    options: list[str], message: tuple[object, ...], capsys: pytest.CaptureFixture
) -> None:
    fill()
    assert cli.main([*COMMAND, *options]) == 2
    err = capsys.readouterr().err
    assert mentions(err, *message) and err.count("\n") == 1 and not Path("runs").exists() and not Path("calls").exists()


@pytest.mark.usefixtures("place")
def test_data_is_read_once_and_only_for_unfinished_points(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    fill()
    opened, read = [], readers.read_table
    monkeypatch.setattr(readers, "read_table", lambda name, **more: opened.append(name.name) or read(name, **more))
    assert cli.main(COMMAND) == 1 and opened == ["train.tsv", "dev.tsv"]
    assert mentions(capsys.readouterr().err, "1 of 2")
    shutil.rmtree("sst")
    assert cli.main(COMMAND) == 2 and mentions(capsys.readouterr().err, "SST-2")
    Path("behaviour.json").write_text("{}")
    fill()
    assert cli.main(COMMAND) == 0
    shutil.rmtree("sst")
    assert cli.main(COMMAND) == 0  # no unfinished point reads it


@pytest.mark.usefixtures("place")
def test_a_dry_run_has_the_cost_of_every_point_and_runs_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    fill()
    monkeypatch.setattr(local, "query_jax", lambda code: 2e3)  # FLOP/s of a matrix product; training reaches half of it
    assert cli.main([*COMMAND, "--dry_run", "--seeds=3", "--batch_size=1"]) == 0
    head, first, second, total = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head[:3] == ["job", "command", "parameters"] and not Path("runs").exists()
    sizes = {name: array.size for name, array in load_model.read_model(Path("m")).params.items()}
    layers = sum(size for name, size in sizes.items() if name.startswith(("encoder", "pooler")))
    hours = 6 * layers * 128 * 3 / 1e3 / 3600  # one row of 128 tokens, three seeds
    assert first[:3] == ["sst2", "epochs=1", "finetune"] and (first[4], second[4]) == ("3", "6")
    shown = [float(line[column]) for line, column in ((first, 5), (second, 5), (total, 1))]
    assert shown == pytest.approx([hours, 2 * hours, 3 * hours], abs=0.006) and hours > 0.05
