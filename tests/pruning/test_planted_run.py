"""`bertzoo prune` cuts exactly the dead units, head and value dimensions of a trained model."""

from dataclasses import replace

import numpy as np
import pytest
from prunable import MODEL, SHAPE, fill, written

from bertzoo.cli.main import main
from bertzoo.pruning import report as pruning
from bertzoo.pruning.costs import parameters
from bertzoo.pruning.structure import declare
from bertzoo.runs import load_model

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_device")]  # trains a model first

LAYER = "encoder/layers_0"
DEAD = {"feed_forward/f": [2, 3, 7, 8, 13, 17, 20, 21, 28, 31], "attention/a": [2], "attention/v": [1]}
RUN = {"log_every": 500, "evaluate_every": 0, "save_every": 0, "keep_best": 0}


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A folder with a corpus and `planted`, a trained model in which nothing reads the dead elements."""
    folder = fill(tmp_path_factory.mktemp("planted"))
    model = MODEL | {"heads": 4, "initializer_range": 0.15}
    file = written(folder, "long.toml", folder, model=model, run=RUN, stages=[{"steps": 1500, **SHAPE}])
    assert main(["pretrain", str(file), f"--run_dir={folder / 'long'}"]) == 0
    found = load_model.read_model(folder / "long")
    params = {name: np.array(array) for name, array in found.params.items()}
    params[f"{LAYER}/feed_forward/output/kernel"][DEAD["feed_forward/f"]] = 0
    params[f"{LAYER}/attention/output/kernel"][DEAD["attention/a"]] = 0
    params[f"{LAYER}/attention/output/kernel"][:, DEAD["attention/v"]] = 0
    (folder / "planted").mkdir()
    load_model.write_model(replace(found, params=params), folder / "planted")
    return folder


@pytest.mark.parametrize(
    "weigh",
    [{"penalty": "l1", "gamma": 0.02, "learning_rate": 1e-2}, {"penalty": "l0", "gamma": 0.05, "learning_rate": 3e-2}],
    ids=lambda weigh: weigh["penalty"],
)
def test_exactly_the_dead_elements_are_cut(weigh, planted, tmp_path):
    """The budget leaves room for exactly the other elements."""
    found = load_model.read_model(planted / "planted")
    structure = declare(found.model, found.head, ("f", "a", "v"))
    left = {f"{LAYER}/{name}": structure.sizes[f"{LAYER}/{name}"] - len(dead) for name, dead in DEAD.items()}
    file = written(
        tmp_path,
        "prune.toml",
        planted,
        model=MODEL | {"heads": 4, "initializer_range": 0.15},
        target={"kind": "parameters", "count": int(parameters(structure)(structure.sizes | left))},
        cut={"dimensions": ["f", "a", "v"]},
        weigh={"steps": 100, **weigh, **SHAPE},
        tuning=[{"steps": 1, **SHAPE}],
        run=RUN,
    )
    run = tmp_path / "run"
    assert main(["prune", str(file), f"--run_dir={run}", f"--from={planted / 'planted'}"]) == 0
    (cut,) = pruning.read_cuts(run)
    assert cut["sizes"]["after"] == structure.sizes | left
    params = load_model.read_model(run).params  # a step of 0.01 after the cut
    for name, axes in (("feed_forward", (1,)), ("attention", (1, 2)), ("attention", (0, 2))):
        reading = np.abs(params[f"{LAYER}/{name}/output/kernel"]).mean(axes)
        assert reading.min() > 0.03, name
