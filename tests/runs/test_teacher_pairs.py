"""Every shipped pair of teacher and student in small: their losses, and whole runs."""

import dataclasses
import json
import re
from pathlib import Path
from typing import get_args

import jax
import numpy as np
import pairs
import pytest
import zoo
from flax import linen as nn
from messages import mentioning, mentions
from test_pretrain import error, records

from bertzoo.cli.main import main
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core import config
from bertzoo.core.errors import ConfigError
from bertzoo.data.corpus.reader import Corpus
from bertzoo.data.tokenizers import tokenizer as tokenizers
from bertzoo.heads import NoHead
from bertzoo.models import Compute, Model
from bertzoo.objectives import Replaced
from bertzoo.runs import experiments, load_model, warm_start
from bertzoo.runs.configs import Transfer
from bertzoo.runs.experiments import RunBatches, batch_shapes
from bertzoo.runs.warm_start import WarmStart
from bertzoo.train import sharding, state
from bertzoo.train.state import boxed_shapes, named

MESH = sharding.make_mesh(sharding.Mesh(), jax.devices()[:1])


def read(path: Path, recipe: Transfer) -> WarmStart:
    """The teacher at a path, on one device."""
    return warm_start.read_teacher(path, recipe, experiments.build_experiment(recipe, MESH))


@pytest.fixture(scope="module")
def teachers(tiny_corpus, tmp_path_factory):
    """The teacher of a pair, made once."""
    folder, made = tmp_path_factory.mktemp("teachers"), {}

    def teacher_of(name: str, recipe) -> Path:
        key = f"{name}-{recipe.teacher.layers}"
        if key not in made:
            made[key] = pairs.write_teacher(recipe, folder / key, tiny_corpus)
        return made[key]

    return teacher_of


def first_batch(recipe, tiny_corpus, plans, index):
    """The rows of the first step of a stage."""
    batches = RunBatches(recipe, Corpus.open(tiny_corpus), plans).stage(index, "train")
    return batches.batch(0, recipe.stages[index].batch_size)


def whole_teacher(path, recipe, batch):
    """The teacher's hidden states, attention and logits of the masked tokens for a batch."""
    found = load_model.read_model(path)
    module, params = found.module()
    ids = [batch[name] for name in ("input_ids", "token_type_ids", "attention_mask")]
    if not isinstance(recipe.teacher_objective, Replaced):
        output = jax.jit(module.apply)({"params": params}, *ids, batch["masked_positions"])
        return output, output.masked_logits
    trained = load_model.load_run(path)  # only the run has the generator
    logits = jax.jit(trained.objective.masked_logits)(trained.params, batch)
    return jax.jit(module.apply)({"params": params}, *ids), logits


def whole_student(recipe, params, batch):
    objective = recipe.objective.build(recipe.model, Compute())
    own = {name: part for name, part in params.items() if name != "projections"}
    return jax.jit(lambda own, batch: objective.apply(own, batch, None))(own, batch)


def test_the_targets_of_a_layer_and_of_distillation(tiny_corpus, teachers, tmp_path):
    """Of one pair; the slow runs below have the losses of every pair."""
    recipe = pairs.load(name := "squeezebert_transfer", pairs.options(name, tiny_corpus))
    path = teachers(name, recipe)
    taught, found = read(path, recipe), experiments.build_setups(recipe)
    shapes = nn.unbox(boxed_shapes(found[0].objective))
    given = pairs.drawn(found[0].objective, 1) | taught.params
    params = jax.tree.map_with_path(lambda path, _: given[state.name_of(path)], shapes)
    batch = first_batch(recipe, tiny_corpus, tmp_path, 0)
    theirs, logits = whole_teacher(path, recipe, batch)
    mine = whole_student(recipe, params, batch)

    def terms(index):
        objective = found[index].objective
        sums, _ = jax.jit(lambda params, frozen: objective(params, frozen, batch, None))(params, taught.frozen)
        weights = objective.weights(batch)
        return {term: float(sums[term] / weights[term]) for term in sums}

    last = recipe.model.layers
    assert terms(last - 1) == pytest.approx(pairs.layer_losses(recipe, last, mine, theirs, params, batch), rel=1e-4)
    expected = pairs.distilled(recipe, mine.masked_logits, logits, batch)
    ours = terms(last)
    assert {term: ours[term] for term in expected} == pytest.approx(expected, rel=1e-4)
    assert ours.keys() - expected.keys() == {recipe.objective.sentence} - {"none"}


@pytest.mark.parametrize("name", pairs.PAIRS)
def test_mapped_copied_and_frozen_parameters(name, tiny_corpus):
    """Learnt maps where the widths differ, and only there; of the teacher all that has its kind and shape."""
    recipe, pair = pairs.load(name, pairs.options(name, tiny_corpus)), pairs.PAIRS[name]
    shapes = named(nn.unbox(boxed_shapes(experiments.build_setups(recipe)[0].objective)))
    widths = recipe.model.hidden_size, recipe.teacher.hidden_size
    maps = {place: leaf.shape for place, leaf in shapes.items() if place.startswith("projections/")}
    each = {"kernel": widths, "bias": widths[1:]} if widths[0] != widths[1] else {}
    assert maps == {
        f"projections/layers_{layer}/{leaf}": shape
        for layer in range(recipe.model.layers)
        for leaf, shape in each.items()
    }
    assert {place.rsplit("/", 1)[0] for place in experiments.copied_names(recipe)} == set(pair.copied)


@pytest.mark.parametrize("sentence", ["nsp", "sop"])
def test_a_head_for_another_sentence_task_is_not_copied(sentence, tiny_corpus):
    recipe = pairs.load("mobilebert_transfer", pairs.options("mobilebert_transfer", tiny_corpus))
    shapes = state.shapes_of(experiments.build_setups(recipe)[-1].objective)
    source = Pretrained(
        model=recipe.teacher,
        head=NoHead(),
        params={name: np.zeros(leaf.shape, np.float32) for name, leaf in shapes.items()},
        tokenizer=None,
        origin="a teacher",
        source={"sentence": sentence},
    )
    copied, heads = set(warm_start._copied(source, recipe, shapes)[0]), {"sentence_head/kernel", "sentence_head/bias"}
    assert copied | heads == set(experiments.copied_names(recipe))
    assert copied & heads == (heads if sentence == recipe.objective.sentence else set())


@pytest.mark.slow
@pytest.mark.parametrize("name", pairs.PAIRS)
def test_a_run_of_every_pair(name, tiny_corpus, teachers, tmp_path, capsys):
    given, run = pairs.options(name, tiny_corpus), tmp_path / "run"
    recipe = pairs.load(name, given)
    path = teachers(name, recipe)
    assert main(["transfer", name, *given, f"--teacher={path}", f"--run_dir={run}"]) == 0
    said = capsys.readouterr().err
    copied = re.findall(r"^copied .*: (.*)$", said, re.MULTILINE)
    assert {module for line in copied for module in line.split(", ")} == set(pairs.PAIRS[name].copied)
    assert copied or "nothing" in said

    layers, logged = recipe.model.layers, {r["step"]: r for r in records(run) if r.get("split") == "train"}
    assert [r["name"] for r in records(run) if r.get("event") == "stage"] == [
        *(f"transfer, layer {layer} of {layers}" for layer in range(1, layers + 1)), "distillation",
    ]  # fmt: skip
    for index in sorted({1, layers - 1, layers}):  # a stage begins with the parameters that the one before it left
        done = 2 * index
        params, batch = pairs.parameters(run, done), first_batch(recipe, tiny_corpus, run / "plans", index)
        theirs, logits = whole_teacher(path, recipe, batch)
        mine = whole_student(recipe, params, batch)
        assert (mine.attentions[0].shape[1], theirs.attentions[0].shape[1]) == pairs.PAIRS[name].heads
        if index < layers:
            expected = pairs.layer_losses(recipe, index + 1, mine, theirs, params, batch)
        else:
            expected = pairs.distilled(recipe, mine.masked_logits, logits, batch)
            expected["mlm"] /= recipe.knowledge.ground_truth  # the metric is the loss itself
        ours = {term: logged[done + 1][f"{term}_loss"] for term in expected}
        assert ours == pytest.approx(expected, rel=1e-4)

    # The copied embedding and heads stay the teacher's until the distillation trains them.
    source = load_model.read_model(path).params
    before, after = (named(pairs.parameters(run, 2 * n)) for n in (layers, layers + 1))
    kept = experiments.copied_names(recipe)
    assert all(np.array_equal(before[leaf], source[leaf]) for leaf in kept)
    assert all(not np.array_equal(after[leaf], before[leaf]) for leaf in kept if leaf.endswith("kernel"))
    assert all(np.array_equal(before[leaf], after[leaf]) for leaf in before if leaf.startswith("projections/"))
    facts = json.loads((run / "run.json").read_text())
    assert facts["teacher"]["path"] == str(path.resolve())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_jax_computes_with_mapped_parameters_in_place(dtype: str, tmp_path: Path) -> None:
    arrays = [np.arange(size).astype(jax.numpy.dtype(dtype)) for size in (3, 5000, 7)]
    with (tmp_path / "teacher").open("w+b") as file:
        mapped = [warm_start.map_array(array, file) for array in arrays]
    assert all(map(np.array_equal, mapped, arrays))
    placed = [jax.device_put(array, MESH.devices.flat[0]) for array in mapped]
    assert [array.unsafe_buffer_pointer() for array in placed] == [array.ctypes.data for array in mapped]


@pytest.mark.slow
def test_a_teacher_is_equal_in_every_format(tiny_corpus, tmp_path):
    """BERT as a run, and its conversions."""
    recipe = pairs.load(name := "squeezebert_transfer", pairs.options(name, tiny_corpus))
    paths = {
        "run": pairs.write_run(recipe, tmp_path / "run", tiny_corpus),
        "checkpoint": tmp_path / "run/checkpoints/0",
    }
    for form in ("huggingface", "bertzoo"):
        paths[form] = tmp_path / form
        assert main(["convert", str(paths["run"]), str(paths[form]), f"--to={form}"]) == 0
    found = {form: read(path, recipe) for form, path in paths.items()}
    trees = [(taught.frozen, taught.params, taught.record["parameters_sha256"]) for taught in found.values()]
    assert all(jax.tree.all(jax.tree.map(np.array_equal, tree, trees[0])) for tree in trees)
    assert not any(tokenizers.difference(taught.tokenizer, found["run"].tokenizer) for taught in found.values())
    assert found["huggingface"].report == found["run"].report


@pytest.mark.parametrize("form", [pytest.param("huggingface", marks=pytest.mark.slow), "bertzoo"])
def test_a_discriminator_without_its_generator_teaches_layers_alone(form, tiny_corpus, teachers, tmp_path, capsys):
    name = "mobilebert_electra_transfer"
    recipe = pairs.load(name, given := pairs.options(name, tiny_corpus, **pairs.QUICK))
    run, alone = teachers(name, recipe), tmp_path / form
    assert main(["convert", str(run), str(alone), f"--to={form}"]) == 0
    said = error(capsys, "transfer", name, *given, f"--teacher={alone}", f"--run_dir={tmp_path / 'run'}")
    assert mentions(said, alone, "knowledge.ground_truth", 0.5, "teacher_objective.kind", "replaced")
    assert not (tmp_path / "run").exists()
    silent = pairs.load(name, [*given, "--knowledge.ground_truth=1.0"])
    taught = read(alone, silent)
    assert taught.frozen.keys() == {"model"} and "masked_head" not in taught.frozen["model"]
    whole = read(run, recipe).frozen
    assert whole.keys() == {"model", "generator"}
    assert jax.tree.all(jax.tree.map(np.array_equal, taught.frozen["model"], whole["model"]))


def test_a_generator_of_another_width_raises(tiny_corpus, teachers):
    """One that is narrower would fit into the wider one's arrays."""
    name = "mobilebert_electra_transfer"
    layers = {"teacher.layers": 1, "model.layers": 1, "knowledge.layers": [1]}
    path = teachers(name, pairs.load(name, pairs.options(name, tiny_corpus, **layers)))
    for width, size in (("0.5", 12), ("1.0", 24)):  # the last without a projection
        changed = pairs.options(name, tiny_corpus, **layers, **{"teacher_objective.generator_width": width})
        parts = path, f"hidden_size: 8 -> {size}", "teacher_objective.generator_width", width
        with pytest.raises(ConfigError, match=mentioning(*parts)):
            read(path, pairs.load(name, changed))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distillation.0.max_length": 400}, ("distillation.0.max_length", 400, "model.max_positions")),
        ({"distillation.0.max_length": 4, "distillation.0.max_predictions": 2}, ("distillation.0.max_length", 4)),
        ({"distillation.0.batch_size": 0}, ("distillation.0", "batch_size = 0", 1)),
        ({"distillation.0.accumulate": 3}, ("distillation.0", "batch_size=8", "accumulate=3")),
        ({"distillation.0.carry": "all"}, ("distillation",)),
        ({"distillation.1.steps": 1}, ("distillation.1", 0)),
        ({"optimizer.schedule.warmup_steps": 5}, ("optimizer.schedule", "distillation.0", "warmup_steps=5")),
        ({"transfer.max_length": 400}, (400, "model.max_positions")),
        ({"transfer.batch_size": 0}, ("batch_size = 0", 1)),
        ({"transfer.learning_rate": -1}, ("transfer", "learning_rate = -1.0")),
        ({"transfer.accumulate": 3}, ("batch_size=8", "accumulate=3")),
        ({"transfer.schedule.warmup_share": "0", "transfer.schedule.warmup_steps": 5}, ("transfer.schedule",)),
        ({"transfer.lower_rat": 1}, ("transfer.lower_rat", "transfer.lower_rate")),
    ],
)
def test_an_error_names_the_place_in_the_config(options, message, tiny_corpus, tmp_path, capsys):
    given = pairs.options(name := "bottleneck_transfer", tiny_corpus, **options)
    said = error(capsys, "transfer", name, *given, f"--teacher={tmp_path}", f"--run_dir={tmp_path / 'run'}")
    assert mentions(said, *message) and "stages" not in said, said


@pytest.mark.parametrize("head", [NoHead(pooler=False), zoo.CASES["bert-heads"][1]], ids=["none", "several"])
def test_a_teacher_without_a_masked_head_has_no_distribution(head, tiny_corpus, teachers, tmp_path):
    """Its layers can be learnt from all the same."""
    layers = {"teacher.layers": 1, "model.layers": 1}
    given = pairs.options(name := "squeezebert_transfer", tiny_corpus, **layers)
    found = load_model.read_model(teachers(name, pairs.load(name, given)))
    drawn = zoo.pretrained(found.model, head)
    load_model.write_model(dataclasses.replace(drawn, tokenizer=found.tokenizer), tmp_path)
    with pytest.raises(ConfigError, match=mentioning(tmp_path, "masked_head", "knowledge.ground_truth", 1.0)):
        read(tmp_path, pairs.load(name, given))
    silent = read(tmp_path, pairs.load(name, [*given, "--knowledge.ground_truth=1.0"]))
    assert silent.frozen["model"].keys() == {"embedding", "encoder"}


EVEN = {"heads": 2, "feed_forward_size": 16, "layers": 2}
WIDE = {"hidden_size": 24, "embedding_size": 12, **EVEN, "heads": 4}
KINDS = {
    "bert": {"hidden_size": 16, **EVEN},
    "distilbert": {"hidden_size": 16, **EVEN},
    "squeezebert": {"hidden_size": 16, **EVEN, "heads": 4},
    "modernbert": {"hidden_size": 16, **EVEN, "window": 4},
    "mobilebert": {**pairs.NARROW, **EVEN, "feed_forwards": 2},
    "albert": WIDE,
    "convbert": WIDE,
    "electra": WIDE,
    "schubert": {
        "hidden_size": 16, "feed_forward_sizes": [8, 12], "heads": [2, 3], "key_sizes": [4, 6], "value_sizes": [8, 4],
    },
}  # fmt: skip
TABLE = {"hidden_size": 16}  # without layers


def of_kinds(theirs: str, mine: str, strategy: str) -> Transfer:
    """A transfer between two architectures, the teacher a discriminator where that is how it was pretrained."""
    common, replaced = {"vocab_size": 32, "max_positions": 16}, theirs in ("electra", "convbert")
    stage = {"steps": 2, "batch_size": 2, "max_length": 8, "max_predictions": 3}
    tables = {
        "teacher": {"kind": theirs, **common, **KINDS.get(theirs, TABLE)},
        "teacher_objective": {"kind": "replaced"} if replaced else {"sentence": "none"},
        "model": {"kind": mine, **common, **KINDS.get(mine, TABLE)},
        "objective": {"sentence": "none"},
        "transfer": {"kind": strategy, "learning_rate": 0.1, **stage},
        "data": {"tokenizer": {"kind": "wordpiece", "vocab_size": 32}},
        "optimizer": {"kind": "lamb", "learning_rate": 0.1},
        "distillation": [stage],
    }
    return config.from_dict(Transfer, tables)


def test_every_kind_is_covered():
    kinds = {kind.__dataclass_fields__["kind"].default for kind in get_args(Model)}
    assert {*KINDS, "static"} == kinds


@pytest.mark.parametrize(("theirs", "mine"), [("bert", "static"), ("static", "bert")])
def test_a_table_has_no_layers_to_transfer(theirs, mine):
    with pytest.raises(ConfigError, match=mentioning("teacher.layers", "model.layers", 0, 2)):
        of_kinds(theirs, mine, "progressive")


NAMES = list(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("theirs", "mine"),
    # Every kind teaches two others and learns from two; all 64 pairs would take a second each.
    [(NAMES[i], NAMES[(i + further) % len(NAMES)]) for i in range(len(NAMES)) for further in (1, 3)],
)
def test_any_model_can_teach_any_other(theirs, mine):
    """Every stage can be traced: its terms, and a gradient of the parameters' shapes."""
    if mine == "albert":
        parts = "transfer.kind", "progressive", "model.kind", "albert", "joint", "auxiliary"
        with pytest.raises(ConfigError, match=mentioning(*parts)):
            of_kinds(theirs, mine, "progressive")
    recipe = of_kinds(theirs, mine, "joint" if mine == "albert" else "progressive")
    found, frozen = experiments.build_setups(recipe), nn.unbox(experiments.teacher_of(recipe).shapes())
    assert len(found) == len(recipe.stages) == (2 if mine == "albert" else 3)
    params = nn.unbox(boxed_shapes(found[0].objective))
    mapped = recipe.model.hidden_size != recipe.teacher.hidden_size
    assert ("projections" in params) == mapped
    for index, setup in enumerate(found):
        batch = batch_shapes(recipe, index, 2)
        key = jax.eval_shape(lambda: jax.random.key(0))
        sums, _ = jax.eval_shape(setup.objective, params, frozen, batch, key)
        last = setup is found[-1]
        assert set(sums) == ({"mlm", "distillation"} if last else {"feature", "mean", "variance", "attention"})
        built = experiments.build_experiment(recipe, MESH)
        grads = jax.eval_shape(built.gradient_function(index), params, frozen, batch)
        assert {name: leaf.shape for name, leaf in named(grads).items()} == {
            name: leaf.shape for name, leaf in named(params).items()
        }
        rates = {name: setup.rates(name) if setup.rates else 1.0 for name in named(params)}
        assert any(rate == 1 for name, rate in rates.items() if name.startswith("encoder/"))
