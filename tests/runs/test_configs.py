"""Shipped configs place their parameters as recorded, and hold the numbers of their papers."""

import re
from pathlib import Path

import make_shardings
import pytest
from messages import mentioning
from tiers import quick

from bertzoo.core import config
from bertzoo.core.errors import ConfigError
from bertzoo.core.kinds import kind_of_files
from bertzoo.models.replaced import generator_config
from bertzoo.runs.configs import Pretrain
from bertzoo.train import experiment, optim

# One of each family, and of MobileBERT's the one with everything that the others leave out.
QUICK = ("albert_base", "bert_base", "convbert_small", "demo", "distilbert", "electra_small", "ettin_17m", "mobilebert")
QUICK += ("schubert_33m", "squeezebert")


@pytest.mark.parametrize("name", quick(make_shardings.names(), *QUICK))
def test_parameters_are_placed_as_recorded(name):
    """The table was reviewed; after changing a rule, a name or a config, regenerate it and review the difference."""
    assert [line.strip() for line in make_shardings.recorded()[name].splitlines()] == list(make_shardings.table(name))


def test_the_table_of_places_has_every_config():
    assert list(make_shardings.recorded()) == make_shardings.names()
    assert make_shardings.FILE.read_text().startswith(make_shardings.HEAD)


@pytest.mark.parametrize(
    ("name", "keys", "changes"),
    [
        ("demo", "data.limits = {document = 1, line = 1, word = 1}\nmesh.fallbacks.vocab = ['model']", False),
        ("demo", "compute = {grouped = 'einsum', vocab_multiple = 1}", False),
        ("demo_prune", "teaching = {dtype = 'bfloat16', ground_truth = 1.0}", False),
        ("finetune", "quantise = 'none'\nwnli = 'trained'", False),
        ("demo_prune", "teaching = {dtype = 'bfloat16', ground_truth = 0.5}", True),
        ("finetune", "wnli = 'majority'", True),
    ],
)
def test_keys_of_an_earlier_version_are_rejected_if_they_change_something(name, keys, changes, tmp_path):
    (file := tmp_path / "old.toml").write_text(keys)
    kind = kind_of_files(name).config()
    if changes:
        with pytest.raises(ConfigError, match=mentioning("unknown key", keys.split()[0])):
            config.load(kind, [name, file])
    else:
        assert config.load(kind, [name, file]) == config.load(kind, [name])


def test_the_demo_is_interrupted_at_a_step_that_it_logs():
    script = (Path(__file__).parents[2] / "launch" / "demo.sh").read_text()
    stop = int(re.search(r"^stop_after=(\d+)", script, re.MULTILINE)[1])
    recipe = config.load(Pretrain, ["demo"])
    assert stop % recipe.run.log_every == 0 and stop < recipe.stages[0].steps


@pytest.mark.parametrize(
    ("name", "generator", "steps", "rows", "length", "predictions", "rate"),
    [
        ("electra_small", 64, 1_000_000, 128, 128, 19, 5e-4),
        ("electra_medium_small", 96, 1_000_000, 128, 128, 19, 5e-4),
        ("electra_base", 256, 766_000, 256, 512, 79, 2e-4),
        ("convbert_small", 64, 1_000_000, 128, 128, 19, 3e-4),
        ("convbert_medium_small", 96, 1_000_000, 128, 128, 19, 5e-4),
        ("convbert_base", 256, 1_000_000, 256, 128, 19, 2e-4),
    ],
)
def test_the_recipes_of_electra_and_convbert(name, generator, steps, rows, length, predictions, rate):
    recipe = config.load(Pretrain, [name])
    (stage,) = recipe.stages
    assert generator_config(recipe.model, recipe.objective.generator_width).hidden_size == generator
    sizes = stage.steps, stage.batch_size, stage.max_length, stage.max_predictions
    assert sizes == (steps, rows, length, predictions)
    assert (recipe.optimizer.kind, recipe.optimizer.learning_rate) == ("bert_adam", rate)
    made = optim.schedule_of(recipe.optimizer, steps)  # lr · (1 - step/total) · min(1, step/warm-up): no jump
    for step in (0, 5_000, 9_999, 10_000, 300_000, steps):
        expected = rate * (1 - step / steps) * min(1, step / 10_000)
        assert float(made(step)) == pytest.approx(expected, rel=1e-5, abs=1e-12)
    assert recipe.data.packing.kind == "electra" and recipe.objective.weight == 50
    assert (recipe.data.masking.share, recipe.data.masking.mask_share) == (0.15, 0.85)
    assert recipe.data.masking.random_share == 0


@pytest.mark.parametrize(
    ("name", "predictions"),
    [
        # Sun et al. 2020, Appendix D: 15 % of the tokens. The authors' README: 20.
        *((name, round(0.15 * 512)) for name in ("mobilebert_paper", "mobilebert_layernorm", "ib_bert_large")),
        ("mobilebert", 20),
    ],
)
def test_mobilebert_predicts_as_many_tokens_as_its_paper_or_its_readme(name, predictions):
    recipe = config.load(Pretrain, [name])
    assert recipe.data.masking.share == 0.15
    assert [(stage.max_length, stage.max_predictions) for stage in recipe.stages] == [(512, predictions)]


@pytest.mark.parametrize("name", ["electra_small", "convbert_small", "convbert_medium_small", "convbert_base"])
def test_the_second_stage_of_the_models_page(name, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "long.toml").write_text(block)
    recipe = config.load(Pretrain, [name, str(tmp_path / "long.toml")])
    first, second = recipe.stages
    assert (first.steps, first.max_length, first.max_predictions) == (1_000_000, 128, 19)
    assert (second.max_length, second.max_predictions, second.carry) == (512, 79, "all")
    assert experiment.schedule_group(recipe.stages, 1).steps == first.steps + second.steps
    assert config.load(Pretrain, [name], [("stages.0.steps", "4_000_000")]).stages[0].steps == 4_000_000


def test_the_recipes_of_the_papers():
    """SqueezeBERT's LAMB is NVIDIA's (Iandola et al. 2020, Appendix B.2); its schedule is step/w, then (1 - p)^0.5."""
    squeezebert = config.load(Pretrain, ["squeezebert"])
    first, second = squeezebert.stages
    assert (first.steps, first.batch_size, first.max_length) == (56_000, 8192, 128)
    assert (second.steps, second.batch_size, second.max_length, second.carry) == (6_000, 8192, 512, "moments")
    assert (squeezebert.optimizer.kind, squeezebert.optimizer.variant) == ("lamb", "nvidia")
    assert squeezebert.objective.sentence == "sop"
    rate = optim.schedule_of(squeezebert.optimizer, 1000)
    for step, factor in ((140, 0.5), (279, 279 / 280), (280, 0.72**0.5), (640, 0.6)):
        assert float(rate(step)) == pytest.approx(2.5e-3 * factor, rel=1e-5)
    bert = config.load(Pretrain, ["bert_base"])
    assert sum(stage.steps for stage in bert.stages) == 1_000_000 and bert.stages[1].carry == "all"
    assert experiment.schedule_group(bert.stages, 1).steps == 1_000_000


def test_models_without_layers_need_an_objective_without_sentences():
    static = ("model.kind", "static")
    with pytest.raises(ConfigError, match=mentioning("static has 0", 'Set objective.sentence = "none"')):
        config.load(Pretrain, ["demo"], [static])
    config.load(Pretrain, ["demo"], [static, ("objective.sentence", "none")])


def test_a_table_of_token_types_has_two_or_more():
    with pytest.raises(ConfigError, match=mentioning("token_types = 1", 2)):
        config.load(Pretrain, ["demo"], [("model.token_types", "1")])
    for kind in ("distilbert", "modernbert"):  # without a table, [SEP] alone separates the segments
        assert config.load(Pretrain, ["demo"], [("model.kind", kind)]).objective.sentence == "sop"


def test_the_kind_of_an_outer_table_is_set_first() -> None:
    words = [("optimizer.schedule.kind", "wsd"), ("optimizer.kind", "lamb"), ("optimizer.learning_rate", "1e-3")]
    recipes = [config.load(Pretrain, ["demo"], order) for order in (words, words[::-1])]
    assert recipes[0] == recipes[1] and recipes[0].optimizer.schedule.kind == "wsd"
