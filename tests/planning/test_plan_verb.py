"""`bertzoo plan`: its text and JSON, and its errors."""

import dataclasses
import json

import jax
import pytest
import tiny
from messages import mentions

from bertzoo.cli import main as cli
from bertzoo.core import config
from bertzoo.planning import chips, compiled, estimate
from bertzoo.pruning.settings import Prune
from bertzoo.runs.configs import Pretrain

SENT = compiled.Collective(kind="all-reduce", group=4, count=3, size=8_000_000, sent=12_000_000)
RESULT = compiled.CompiledStep(seconds=1.0, arguments=7 << 30, temporaries=2 << 30, code=1 << 30, collectives=(SENT,))


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> str:
    return str(tiny.write_config(tmp_path_factory.mktemp("plan"), "text.txt", stages=1))


@pytest.fixture
def run(file, capsys):
    """A function (options) -> exit code, standard output and standard error of `bertzoo plan` on a tiny config."""

    def _run(*options: str) -> tuple[int, str, str]:
        code = cli.main(["plan", file, *options])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return _run


@pytest.fixture(scope="module")
def plan(file) -> estimate.RunPlan:
    return estimate.make_plan(config.load(Pretrain, [file], []), chips.parse_topology("v5e:2x2"), {0: RESULT})


def test_chip_hours_count_chips_and_not_the_devices_of_a_chip(file):
    """A v3 chip is two devices to JAX and is paid for once."""
    topology = chips.parse_topology("v3:2x2")
    assert (topology.chips, topology.devices) == (4, 8)
    plan = estimate.make_plan(config.load(Pretrain, [file], []), topology)
    (stage,) = plan.stages
    assert plan.chip_hours == pytest.approx([stage.steps * end * 4 / 3600 for end in stage.step_seconds])


@pytest.mark.parametrize(
    ("steps", "seconds", "shown"),
    [
        (2, (0.1, 0.25), "0.8 to 2 chip-seconds, 0.2 to 0.5 seconds"),
        (60, (1, 2.5), "4 to 10 chip-minutes, 1 to 2.5 minutes"),
        (3600, (0.5, 1), "2 to 4 chip-hours, 0.5 to 1 hours"),
        (10**6, (1, 2), "1,111 to 2,222 chip-hours, 278 to 556 hours"),
    ],
)
def test_a_short_run_is_not_0_to_0_chip_hours(plan, steps, seconds, shown):
    hours = tuple(steps * end * 4 / 3600 for end in seconds)
    text = estimate.plan_to_text("tiny", dataclasses.replace(plan, chip_hours=hours))
    assert shown in text


@pytest.mark.parametrize(
    ("dollars", "shown"), [((2.7e-5, 6.8e-5), "under 0.01 dollars"), ((0.004, 0.02), "0.004 to 0.02 dollars")]
)
def test_a_price_below_a_cent_is_not_printed_to_many_digits(plan, dollars, shown):
    text = estimate.plan_to_text("tiny", dataclasses.replace(plan, dollars=dollars))
    assert shown in map(str.strip, text.splitlines())


def test_json_holds_the_whole_plan(run):
    code, out, _ = run("--topology=v5e:2x2", "--no-compile", "--price=3", "--json", "--stages.0.accumulate=2")
    plan = json.loads(out)
    assert code == 0 and plan["name"] == "tiny" and plan["topology"] == "v5e:2x2" and plan["chips"] == 4
    assert plan["mesh"] == {"data": 4, "fsdp": 1, "tensor": 1} and plan["assumptions"]
    (stage,) = plan["stages"]
    assert (stage["steps"], stage["rows"]) == (6, 2)
    kinds = {kind: size for kind, size in stage["estimated"].items() if kind != "total"}
    assert stage["estimated"]["total"] == sum(kinds.values())
    assert stage["fits"] and stage["compiled"] is None and stage["advice"]
    assert 0 < stage["computed_flops"] <= stage["model_flops"] < stage["padded_flops"]
    line = stage["roofline"]
    terms = [line[name] for name in ("compute", "memory", "interconnect")]
    assert line["seconds"] == max(terms) == line[line["bound"]]
    bounds = [stage["model_flops"] / (4 * 197e12 * share) for share in estimate.UTILISATION]
    assert stage["step_seconds"] == pytest.approx([max(bounds[1], max(terms)), max(bounds[0], sum(terms))])
    hours = [6 * seconds * 4 / 3600 for seconds in stage["step_seconds"]]
    assert plan["chip_hours"] == pytest.approx(hours) and plan["dollars"] == pytest.approx([3 * hour for hour in hours])
    assert plan["model_flops"] == 6 * stage["model_flops"]
    assert plan["checkpoint_bytes"] > 0
    assert mentions(plan["not_compiled"], "--no-compile")


def test_text_holds_the_plan(plan):
    text = estimate.plan_to_text("tiny", plan)
    assert mentions(text, "tiny on v5e:2x2", "4 chips", "6 steps", "16 rows", "32 tokens", "chip-seconds", "assumed")
    assert "= 10.00 of 15.75 GiB" in text and mentions(text, "exact", "at most", "fits", plan.stages[0].advice)
    assert mentions(plan.stages[0].advice, "remat", "fsdp")
    (line,) = [line for line in text.splitlines() if "all-reduce" in line]
    assert mentions(line, "4 devices", " 3 ", "8.0 MB", "12.0 MB")
    assert f"interconnect {12e6 / 200e9 * 1e3:.2f}" in text  # the compiler's collectives, not the derived ones
    missing = estimate.plan_to_text("tiny", dataclasses.replace(plan, not_compiled=compiled.INSTALL))
    assert compiled.INSTALL in missing and ".." not in missing


def test_fallbacks_are_printed_once_for_layers_that_are_alike(file, plan):
    options = [("mesh.tensor", "4"), ("model.layers", "3"), ("model.feed_forward_size", "34")]
    recipe = config.load(Pretrain, [file], options)
    fallbacks = estimate.make_plan(recipe, chips.parse_topology("v5e:2x2")).fallbacks
    assert len(fallbacks) > 3
    text = estimate.plan_to_text("tiny", dataclasses.replace(plan, fallbacks=fallbacks))
    lines = [line.strip() for line in text.splitlines() if "is not divisible" in line]
    assert 3 * len(lines) == len(fallbacks)
    (bias,) = [line for line in lines if "feed_forward/intermediate/bias" in line]
    assert bias.startswith("encoder/layers_0,1,2/feed_forward/intermediate/bias: ")
    assert mentions(bias, "group_out", 34, "every device")


def test_a_plan_uses_no_device_of_this_machine(run, plan, monkeypatch):
    """However jax came to be imported: an option's key is looked up in the config's class first, which imports it."""
    monkeypatch.setattr(estimate, "make_plan", lambda *_, **__: plan)
    jax.config.update("jax_platforms", None)
    try:
        assert run("--topology=v5e:2x2", "--no-compile", "--stages.0.steps=7")[0] == 0
        assert jax.config.jax_platforms == "cpu"  # type: ignore[attr-defined]
    finally:
        jax.config.update("jax_platforms", "cpu")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--topology=v5e:3x3",), ("v5e", "1x1", "2x2", "2x4", "4x4")),
        (("--topology=v3:4x4",), ("batch_size=16", "accumulate=1", "32 devices")),
        (("--topology=v5e:2x2", "--mesh.data=3"), ("data=3", "4 devices")),
        (("--topology=v5e:2x2", "--price=much"), ("--price=much", "number")),
        (("--topology=v5e:2x2", "--price=-1"), ("--price=-1", "0 or more")),
        (("--topology=v5e:2x2", "--model.layer=1"), ("model.layers",)),
        ((), ("--topology", "required")),
    ],
)
def test_bad_input_prints_one_error(run, options, parts):
    code, out, err = run(*options)
    assert code == 2 and out == "" and mentions(err, *parts) and err.count("\n") == 1


@pytest.mark.slow
def test_a_pruning_takes_every_iteration_at_the_unpruned_size(capsys):
    assert cli.main(["plan", "demo_prune", "--topology=v5e:1x1", "--price=2", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    recipe = config.load(Prune, ["demo_prune"], [])
    assert [(stage["index"], stage["name"], stage["steps"]) for stage in shown["stages"]] == [
        (0, "weigh", 2 * recipe.weigh.steps),
        (1, "tuning", 2 * recipe.tuning[0].steps),
    ]
    parts = [
        estimate.make_plan(part, chips.parse_topology("v5e:1x1"))
        for part in (recipe.scoring_recipe(recipe.model), recipe.tuning_recipe(recipe.model))
    ]
    for end in (0, 1):
        assert shown["chip_hours"][end] == pytest.approx(2 * sum(part.chip_hours[end] for part in parts))
        assert shown["dollars"][end] == pytest.approx(2 * shown["chip_hours"][end])
    assert shown["model_flops"] == pytest.approx(2 * sum(part.model_flops for part in parts))
    assert all(stage["compiled"] is None for stage in shown["stages"]) and mentions(shown["note"], 2)
