"""`bertzoo checkpoints` lists a real model's checkpoints; damaged ones and those of another model print one error."""

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
import tiny
from messages import mentions
from zoo import mesh_of

from bertzoo.cli.main import main
from bertzoo.core import config as loader
from bertzoo.core.errors import CheckpointError
from bertzoo.runs.configs import Pretrain
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.train import checkpoint, contents, optim
from bertzoo.train import state as states
from bertzoo.train.checkpoint import Checkpoints

STAGE, ROW = 0, 48
LOSSES = {6: 2.5, 8: 1.5, 10: None}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("elsewhere")
    tiny.write_config(made, tiny.write_text(made / "text.txt"))
    return made


@pytest.fixture(scope="module")
def recipe(folder: Path) -> Pretrain:
    return loader.load(Pretrain, [folder / "tiny.toml"])


def abstract(recipe: Pretrain, sizes: tuple[int, int, int]) -> states.State:
    objective = recipe.objective.build(recipe.model, recipe.compute)
    return states.abstract(objective, optim.build(recipe.optimizer, 10), mesh_of(sizes))


@pytest.fixture(scope="module")
def template(recipe: Pretrain, folder: Path) -> Path:
    """What `checkpoints` reads of a run that saved thrice on eight devices."""
    run, draw = RunDirectory(folder / "run"), np.random.default_rng(0)
    wanted, place = abstract(recipe, (2, 2, 2)), {"stage": np.int32(STAGE), "row": np.int32(ROW)}
    with Checkpoints(run.checkpoints) as checkpoints:
        for step, loss in LOSSES.items():
            arrays = jax.tree.map(lambda want: draw.uniform(1, 100, want.shape).astype(want.dtype), wanted)
            state = dataclasses.replace(arrays, step=np.int32(step), position=place)
            placed = jax.tree.map(lambda array, want: jax.device_put(array, want.sharding), state, wanted)
            checkpoints.save(placed, loss=loss)
    run.write_config(recipe)
    return run.path


@pytest.fixture
def run(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "run"))


def lines(capsys: pytest.CaptureFixture, *argv: str) -> list[list[str]]:
    """The words of the lines that a command prints."""
    assert main(["checkpoints", *argv]) == 0
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def refused(capsys: pytest.CaptureFixture, *argv: str) -> tuple[str, str]:
    """Return a failing command's output and its one error."""
    capsys.readouterr()
    assert main(["checkpoints", *argv]) == 2
    shown, said = capsys.readouterr()
    assert said.startswith("bertzoo: ") and said.count("\n") == 1
    return shown, said


def test_a_runs_checkpoints_are_listed(run: Path, recipe: Pretrain, capsys):
    head, *rows = lines(capsys, str(run))
    params = states.named(abstract(recipe, (1, 1, 1)).params)
    count = sum(leaf.size for leaf in params.values())
    assert head[:4] == ["step", "stage", "row", "parameters"]
    assert [row[:4] for row in rows] == [[str(step), "0", "48", f"{count:,}"] for step in LOSSES]
    assert [row[6] for row in rows] == ["2.5000", "1.5000", "8"]
    assert all(row[-5:] == ["8", "devices", "(data=2", "fsdp=2", "tensor=2)"] for row in rows)
    assert main(["checkpoints", str(run), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(one["step"], one["loss"], one["parameters"]) for one in listed] == [
        (*pair, count) for pair in LOSSES.items()
    ]
    assert main(["checkpoints", str(run), "--checkpoint=best", "--json"]) == 0
    best = json.loads(capsys.readouterr().out)
    assert best["step"] == 8 and best["position"] == {"stage": STAGE, "row": ROW}
    assert {n: tuple(leaf["shape"]) for n, leaf in best["params"].items()} == {n: x.shape for n, x in params.items()}
    _, row, empty, _, *arrays = lines(capsys, str(run), "--checkpoint=latest", "--verify")
    assert row[0] == "10" and not empty
    assert ["embedding/word/embedding", "256×16", "float32", "tensor"] in arrays
    assert ["training/step", "1", "int32"] in arrays


def damage(checkpoint: Path) -> Path:
    """Change a byte of an array's values and return its file: where the values lie differs from save to save."""
    files = [file for file in (checkpoint / "params").rglob("*") if file.is_file()]
    for victim in sorted(files, key=lambda file: -file.stat().st_size):
        whole = victim.read_bytes()
        for place in range(0, len(whole), 97):
            victim.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
            try:
                contents.read_contents(checkpoint)
            except CheckpointError:
                continue
            return victim
        victim.write_bytes(whole)
    pytest.fail(f"every byte of {checkpoint} is needed to list the arrays")


def test_a_damaged_checkpoint_does_not_hide_the_others(run: Path, capsys):
    checkpoints = run / "checkpoints"
    victim = damage(checkpoints / "8")
    assert [row[0] for row in lines(capsys, str(run))] == ["step", "6", "8", "10"]
    shown, said = refused(capsys, str(run), "--verify")
    assert str(victim) in said and [line.split()[0] for line in shown.splitlines()] == ["step", "6", "10"]
    shutil.rmtree(checkpoints / "10" / "training")
    shown, said = refused(capsys, str(run), "--json")
    assert mentions(said, checkpoints / "10", "training") and [one["step"] for one in json.loads(shown)] == [6, 8]
    assert mentions(refused(capsys, str(run), "--checkpoint=10")[1], checkpoints / "10", "training")


def test_a_missing_checkpoint_prints_one_error(run: Path, tmp_path, capsys):
    assert mentions(refused(capsys, str(run), "--checkpoint=7")[1], "checkpoint 7", "[6", 8, "10]")
    (run / "checkpoints" / "6.sha256.json").unlink()
    assert mentions(refused(capsys, str(run), "--checkpoint=6", "--verify")[1], "6.sha256.json")
    shutil.rmtree(run / "checkpoints")
    assert mentions(refused(capsys, str(run))[1], "checkpoints")
    assert mentions(refused(capsys, str(tmp_path))[1], tmp_path)


OTHERS = {
    "--model.feed_forward_size=64": ("feed_forward/intermediate/bias", "float32 (32,)", "float32 (64,)"),
    "--model.layers=2": ("encoder/layers_1/attention/key/bias", "nothing", "float32 (16,)"),
    "--model.vocab_size=512": ("embedding/word/embedding", "float32 (256, 16)", "float32 (512, 16)"),
    "--optimizer.kind=adamw --optimizer.learning_rate=0.01": ("opt_state/1/0/count", "nothing", "int32 ()"),
}


@pytest.mark.parametrize("option", OTHERS)
def test_a_checkpoint_of_another_model_prints_one_error_and_stays(run: Path, folder: Path, option: str, capsys):
    """Without a config to compare; with one, an error comes earlier."""
    (run / "config.toml").unlink()
    before = sorted(run.rglob("*"))
    assert main(["pretrain", str(folder / "tiny.toml"), f"--run_dir={run}", *option.split()]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert mentions(said, run / "checkpoints" / "10", *OTHERS[option])
    assert sorted(set(run.rglob("*")) - {run / ".lock"}) == before


def test_a_config_of_another_model_ends_before_orbax_restores(run: Path, recipe: Pretrain, capfd, monkeypatch):
    """TensorStore would print lines of its own about arrays of other shapes."""
    monkeypatch.setattr(checkpoint, "_restore_items", lambda *_: pytest.fail("orbax was asked"))
    model = dataclasses.replace(recipe.model, hidden_size=2 * recipe.model.hidden_size)
    RunDirectory(run).write_config(dataclasses.replace(recipe, model=model))
    assert main(["evaluate", str(run)]) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and mentions(said, run / "checkpoints" / "10", f"({model.hidden_size},)")
