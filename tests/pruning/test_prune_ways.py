"""`bertzoo prune`: every choice, penalty, kind of budget and model, on tiny models."""

import json
import re
import shutil

import pytest
from latencies import planted
from messages import mentions
from prunable import MODEL, SHAPE, WEIGH, cuts, pretrained, prune, size, written

from bertzoo.cli.main import main
from bertzoo.pruning import layout
from bertzoo.pruning.costs import betas, flops, parameters
from bertzoo.pruning.structure import declare
from bertzoo.runs import load_model

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_device")]
TABLES = {"target": {"kind": "parameters", "share": 0.9}, "weigh": WEIGH, "tuning": [{"steps": 2, **SHAPE}]}


@pytest.mark.parametrize(
    "options",
    [
        ["--cut.choice=uniform"],
        ["--weigh.penalty=l0", "--weigh.gamma=1e-3", "--weigh.learning_rate=1.5"],
        ["--weigh.penalty=proximal", "--weigh.gamma=2"],
        ["--target.kind=flops", "--target.share=0.6", "--target.length=16"],
        ["--cut.multiples.f=8", "--cut.multiples.h=4", "--cut.iterations=1"],
        ['--cut.dimensions=["h"]'],
        ["--run.evaluate_every=1", "--run.keep_best=1"],
    ],
    ids=lambda options: options[0],
)
def test_every_way_to_prune(options, folder, tmp_path, capsys):
    run = tmp_path / "run"
    assert prune(folder, run, f"--from={folder / 'unpruned'}", *options) == 0
    said = capsys.readouterr().err
    found = cuts(run)[-1]
    assert found["cost"]["after"] <= found["budget"]
    if "--cut.multiples.f=8" in options:
        assert all(n % 8 == 0 for name, n in found["sizes"]["after"].items() if name.endswith("/f"))
    if "--target.kind=flops" in options:
        check_weighed_by_operations(folder, run, options, capsys)
    assert re.search(r"vectors at( [hfakv] \d+%)+  lr", said) and load_model.read_model(run).params


def check_weighed_by_operations(folder, run, options, capsys):
    """The first penalty, of vectors of ones, is the sum of β; the run resumes."""
    model = load_model.read_model(folder / "unpruned")
    structure = declare(model.model, model.head)
    by_operations, by_parameters = (betas(structure, cost) for cost in (flops(structure, 16), parameters(structure)))
    sums = [sum(beta[name] * n for name, n in structure.sizes.items()) for beta in (by_operations, by_parameters)]
    lines = (layout.inner_path(run, 1, "weigh") / "metrics.jsonl").read_text().splitlines()
    first = next(line["penalty"] for line in map(json.loads, lines) if line.get("split") == "train")
    assert first == pytest.approx(sums[0], rel=1e-5) and abs(first / sums[1] - 1) > 0.05
    assert json.loads((run / "run.json").read_text())["beta"] == {"unit": "operations"}
    shutil.rmtree(layout.inner_path(run, 2, "tune"))
    shutil.rmtree(run / layout.MODEL)
    assert prune(folder, run, *options) == 0


def test_an_iteration_without_a_cut_is_logged(folder, tmp_path, capsys):
    run = tmp_path / "run"
    options = ["--cut.choice=uniform", "--cut.iterations=3", "--target.share=0.95", "--tuning.0.steps=1"]
    assert prune(folder, run, f"--from={folder / 'unpruned'}", *options) == 0
    said = capsys.readouterr().err
    cut = {json.loads(path.read_text())["iteration"] for path in layout.cut_files(run)}
    for iteration in (1, 2, 3):
        nothing = f"iteration {iteration} of 3 cuts nothing" in said
        assert nothing == (iteration not in cut)
    assert cut < {1, 2, 3}


def test_a_budget_in_milliseconds(folder, tmp_path, capsys):
    model, run, path = load_model.read_model(folder / "unpruned").model, tmp_path / "run", tmp_path / "table.json"
    path.write_text(json.dumps(planted(model).document()))
    options = ["--target.kind=latency", f"--target.table={path}", "--target.share=0.9", '--cut.dimensions=["f"]']
    assert prune(folder, run, f"--from={folder / 'unpruned'}", *options) == 0
    found, said = cuts(run)[-1], capsys.readouterr().err
    assert found["unit"] == "milliseconds" and (run / layout.TABLE).read_bytes() == path.read_bytes()
    assert 0.99 * found["budget"] < found["cost"]["after"] <= found["budget"] < found["cost"]["before"]
    amounts = (*found["cost"].values(), found["budget"])
    before, after, budget = (layout.format_amount(amount, amounts[0]) for amount in amounts)
    assert mentions(said, f"{before} -> {after} milliseconds", budget)
    path.unlink()
    assert prune(folder, run, *options) == 0  # which keeps a copy
    shutil.rmtree(run / layout.MODEL)
    assert prune(folder, run, *options) == 0 and (run / layout.MODEL).is_dir()


def test_under_replaced_token_detection_the_generator_stays(folder, tmp_path):
    tables = {"objective": {"kind": "replaced", "generator_width": 0.5}}
    tables["model"] = {**MODEL, "kind": "electra", "embedding_size": 8}
    electra, run = pretrained(tmp_path, folder, 2, **tables), tmp_path / "run"
    written(tmp_path, "prune.toml", folder, **tables, **TABLES | {"weigh": WEIGH | {"gamma": 0.1}})
    assert prune(tmp_path, run, f"--from={electra}") == 0
    assert load_model.read_model(run).model.feed_forward_size < 32
    (found,) = cuts(run)
    assert set(found["saved"]) == {"f"}
    begun = load_model.read_model(layout.inner_path(run, 1, "tune"))
    assert begun.unused.keys() == load_model.read_model(electra).unused.keys()


def test_the_layers_of_a_squeezebert_become_uneven(folder, tmp_path, capsys):
    groups = {f"{name}_groups": 2 for name in ("query", "key", "value", "intermediate", "output")}
    model = {**MODEL, **groups, "kind": "squeezebert", "layers": 2}
    squeezed, run = pretrained(tmp_path, folder, 4, model=model), tmp_path / "run"
    written(tmp_path, "prune.toml", folder, model=model, **TABLES)
    assert prune(tmp_path, run, f"--from={squeezed}") == 0
    found, (done,) = load_model.read_model(run).model, cuts(run)
    one, two = found.feed_forward_size
    assert one != two and one % 2 == two % 2 == 0
    assert 0.99 * done["budget"] < done["cost"]["after"] <= done["budget"]
    assert main(["report", str(run)]) == 0
    assert f"{min(one, two)} to {max(one, two)} |" in (run / "report.md").read_text()
    assert main(["pretrain", str(run / layout.RECIPE), f"--run_dir={tmp_path / 'on'}", f"--from={run}"]) == 0
    assert main(["convert", str(run), str(tmp_path / "ours"), "--to=bertzoo"]) == 0
    assert load_model.read_model(tmp_path / "ours").model == found
    capsys.readouterr()
    assert main(["convert", str(run), str(tmp_path / "theirs"), "--to=huggingface", "--head=masked"]) == 0
    assert mentions(capsys.readouterr().err, "intermediate_size", f"{one}, {two}")
    evenly = tmp_path / "evenly"
    assert prune(tmp_path, evenly, f"--from={squeezed}", "--cut.choice=uniform") == 0
    assert isinstance(load_model.read_model(evenly).model.feed_forward_size, int)


def test_a_factorised_embedding_prunes_too(folder, tmp_path):
    tables = {"model": {**MODEL, "kind": "electra", "embedding_size": 8}, "objective": {"sentence": "none"}}
    electra = pretrained(tmp_path, folder, 2, **tables)
    more = {"target": {"kind": "parameters", "share": 0.8}, "cut": {"dimensions": ["e"]}}
    written(tmp_path, "prune.toml", folder, **tables, **TABLES | more | {"weigh": WEIGH | {"gamma": 0.1}})
    assert prune(tmp_path, tmp_path / "run", f"--from={electra}") == 0
    found = load_model.read_model(tmp_path / "run")
    assert 1 <= found.model.embedding_size < 8 and found.model.hidden_size == 16


def test_the_demo_of_the_demo(tmp_path, capsys):
    """configs/demo_prune.toml on the demo's model, with fewer steps of pretraining and tuning."""
    run, options = tmp_path / "run", ["--stages.0.steps=20", "--stages.1.steps=1"]
    assert main(["pretrain", "demo", f"--run_dir={tmp_path / 'demo'}", *options]) == 0
    whole = size(load_model.read_model(tmp_path / "demo"))
    assert main(["prune", "demo_prune", f"--from={tmp_path / 'demo'}", f"--run_dir={run}", "--tuning.0.steps=2"]) == 0
    assert 0.99 * 0.9 < size(load_model.read_model(run)) / whole <= 0.9
    assert {name.split("/")[-1] for name in cuts(run)[-1]["sizes"]["after"]} == {"f"}
    assert main(["report", str(run)]) == 0 and (run / "layers.png").is_file()
