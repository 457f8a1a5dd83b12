"""`finetune --quantise=int8`: the saved model is an ordinary one, and the ranges stay with the run's checkpoints."""

import json
from pathlib import Path

import planted
import pytest
from messages import mentions

from bertzoo.finetuning.run import resolve_task
from bertzoo.finetuning.settings import Finetune
from bertzoo.finetuning.warm_start import load_starting_model
from bertzoo.heads import parameter_shapes
from bertzoo.nn.int8 import RANGES, Int8Model
from bertzoo.runs import load_model
from bertzoo.tasks.custom import CustomFiles
from bertzoo.train import state


@pytest.mark.slow
def test_the_saved_model_has_no_ranges(folder: Path, tmp_path: Path) -> None:
    options = ("--quantise=int8", "--seeds=1", "--epochs=1", "--accumulate=2", "--optimizer.learning_rate=1e-3")
    assert planted.finetune(folder, tmp_path / "run", *options) == 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["quantise"] == "int8"
    saved = load_model.read_model(tmp_path / "run")
    assert saved.source["quantise"] == "int8"
    assert {name: array.shape for name, array in saved.params.items()} == parameter_shapes(saved.model, saved.head)


def test_only_the_option_changes_the_model(folder: Path) -> None:
    """Without it the module is the plain one, so that its program is as before."""
    files = CustomFiles(train="train.csv", dev="dev.csv", text_a="text", label="label")

    def objective(**options: str) -> object:
        recipe = Finetune(task="own", own=files, data_dir=str(folder), max_length=24, accumulate=2, **options)  # type: ignore
        return load_starting_model(folder / "model", recipe, resolve_task(recipe)).objective

    plain, simulated = objective(), objective(quantise="int8")
    assert isinstance(simulated.model, Int8Model) and simulated.model.parts == 2  # type: ignore[attr-defined]
    assert type(plain.model) is type(simulated.model.model)  # type: ignore[attr-defined]
    names = {name for name in state.shapes_of(simulated) if not name.startswith(f"{RANGES}/")}
    assert names == set(state.shapes_of(plain)) < set(state.shapes_of(simulated))


def test_a_model_that_is_not_simulated_exactly_is_rejected(folder: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("bertzoo.finetuning.warm_start.SIMULATED", ("squeezebert",))
    assert planted.finetune(folder, tmp_path / "run", "--quantise=int8") == 2
    assert mentions(capsys.readouterr().err, "quantise", "squeezebert", "bert") and not (tmp_path / "run").exists()
