"""`bertzoo plan`: what it prints, for a person and for a program, and what it refuses."""

import dataclasses
import json

import jax
import pytest
import tiny
from messages import mentions

from bertzoo.cli import main as cli
from bertzoo.core import config
from bertzoo.planning import chips, compiled, convention, estimate, hlo, page, step
from bertzoo.planning.analytic import Estimate
from bertzoo.runs.pretrain_config import Pretrain
from bertzoo.train import sharding

SENT = hlo.Collective(kind="all-reduce", group=4, count=3, size=8_000_000, sent=12_000_000)
FOUND = compiled.Compiled(seconds=1.0, arguments=7 << 30, temporaries=2 << 30, code=1 << 30, collectives=(SENT,))


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> str:
    whole = tiny.write_config(tmp_path_factory.mktemp("plan"), "text.txt")
    text = whole.read_text()
    second = text.index("[[stages]]", text.index("[[stages]]") + 1)
    whole.write_text(text[:second])
    return str(whole)


@pytest.fixture
def run(file, capsys):
    """A function (options) -> exit code, standard output and standard error of `bertzoo plan` on a tiny config."""

    def _run(*options: str) -> tuple[int, str, str]:
        code = cli.main(["plan", file, *options])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return _run


@pytest.fixture(scope="module")
def plan(file) -> estimate.Plan:
    return estimate.make(config.load(Pretrain, [file], []), chips.parse("v5e:2x2"), [FOUND])


def test_chip_hours_count_chips_and_not_the_devices_of_a_chip(file):
    """A v3 chip is two devices to JAX and is paid for once."""
    topology = chips.parse("v3:2x2")
    assert (topology.chips, topology.devices) == (4, 8)
    found = estimate.make(config.load(Pretrain, [file], []), topology, None)
    (stage,) = found.stages
    assert found.chip_hours == pytest.approx([stage.steps * end * 4 / 3600 for end in stage.step_seconds])


def test_a_program_reads_all_of_a_plan(run):
    code, out, _ = run("--topology=v5e:2x2", "--no-compile", "--price=3", "--json", "--stages.0.accumulate=2")
    made = json.loads(out)
    assert code == 0 and made["name"] == "tiny" and made["topology"] == "v5e:2x2" and made["chips"] == 4
    assert made["mesh"] == {"data": 4, "fsdp": 1, "tensor": 1} and made["assumptions"]
    (stage,) = made["stages"]
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
    assert made["chip_hours"] == pytest.approx(hours) and made["dollars"] == pytest.approx([3 * hour for hour in hours])
    assert made["model_flops"] == 6 * stage["model_flops"]
    assert made["published_flops"] is None and made["electra_flops"] > 0 and made["checkpoint_bytes"] > 0
    assert mentions(made["not_compiled"], "--no-compile")


def test_a_person_reads_the_same(plan):
    text = page.as_text("tiny", plan, None)
    assert mentions(text, "tiny on v5e:2x2", "4 chips", "6 steps", "16 rows", "32 tokens", "chip-hours", "assumed")
    assert "= 10.00 GiB" in text and mentions(text, "fits", plan.stages[0].advice)
    assert mentions(plan.stages[0].advice, "remat", "fsdp")
    (line,) = [line for line in text.splitlines() if "all-reduce" in line]
    assert mentions(line, "4 devices", " 3 ", "8.0 MB", "12.0 MB")
    assert f"interconnect {12e6 / 200e9 * 1e3:.2f}" in text  # what the compiler found, not what is estimated
    assert compiled.INSTALL in page.as_text("tiny", plan, compiled.INSTALL)


def test_a_page_has_a_row_for_every_stage(plan):
    needed = compiled.Compiled(seconds=1.0, needed=20 << 30)
    over = dataclasses.replace(plan.stages[0], index=1, compiled=needed, fits=False)
    two = dataclasses.replace(plan, stages=(*plan.stages, over))
    unknown = dataclasses.replace(plan, stages=(dataclasses.replace(plan.stages[0], compiled=None),))
    text = page.markdown([("tiny", two, "it is too small"), ("small", unknown, "")], "jax 1, libtpu 2")
    table = [line for line in text.splitlines() if line.startswith("| tiny | v5e:2x2 |")]
    assert len(table) == 3  # two stages, and one collective
    assert "| 10,240 |" in table[0] and "| yes |" in table[0] and "| 20,480 |" in table[1] and "| no |" in table[1]
    (other,) = [line for line in text.splitlines() if line.startswith("| small | v5e:2x2 |")]
    assert "| not yet |" in other and mentions(other, "| yes,", "estimate")
    assert f"- `tiny` on v5e:2x2, stage 1: {over.advice}." in text
    assert mentions(text, "- `tiny`: it is too small", "2 of 3", "the 1 ")
    assert mentions(text, "jax 1, libtpu 2", "15.75 GiB on v5e")
    widths = {line.count("|") for line in (*table[:2], other)}
    assert widths == {len(page.HEAD) + 1}


@pytest.mark.slow  # estimates of ten other meshes
def test_what_does_not_fit_is_a_result_with_what_would(run, monkeypatch):
    monkeypatch.setattr(chips, "GIB", 1 << 15)  # chips of half a MiB
    options = ("--topology=v5e:2x2", "--no-compile", "--json", "--stages.*.batch_size=4096", "--compute.remat=false")
    code, out, _ = run(*options)
    stage = json.loads(out)["stages"][0]
    assert code == 0 and not stage["fits"] and stage["estimated"]["total"] > stage["capacity"]


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> str:
    """A config of which parameters and activations both take room, and no device is left over."""
    whole = tiny.write_config(tmp_path_factory.mktemp("large"), "text.txt")
    text = whole.read_text().replace("hidden_size = 16", "hidden_size = 128").replace("layers = 1", "layers = 2")
    text = text.replace("feed_forward_size = 32", "feed_forward_size = 512").replace(
        "batch_size = 16", "batch_size = 512"
    )
    second = text.index("[[stages]]", text.index("[[stages]]") + 1)
    whole.write_text(text[:second])
    return str(whole)


def advised(file: str, room: int, *options: tuple[str, str]) -> tuple[list[list[tuple[str, str]]], chips.Topology]:
    """The options of each way that the advice names for devices with so many bytes, and the slice of these devices."""
    kind = dataclasses.replace(chips.CHIPS["v5e"], hbm=room / chips.GIB, on_chip=0)
    topology = chips.Topology(chip=kind, shape=(2, 4))
    (stage,) = estimate.make(config.load(Pretrain, [file], list(options)), topology).stages
    assert not stage.fits
    before, ways = stage.advice[: (told := stage.advice.index("--"))], stage.advice[told:]
    assert "would fit" in before
    return [[tuple(word[2:].split("=")) for word in way.split()] for way in ways.split(" or ")], topology  # type: ignore


@pytest.mark.slow  # estimates of ten other meshes
@pytest.mark.parametrize("mesh", [(), (("mesh.data", "8"),), (("mesh.data", "4"), ("mesh.tensor", "2"))])
def test_what_is_advised_fits_and_half_of_it_does_not(large, mesh):
    def total(*options: tuple[str, str]) -> int:
        recipe = config.load(Pretrain, [large], [*mesh, *options])
        topology = chips.parse("v5e:2x4")
        chip = dataclasses.replace(topology.chip, on_chip=0)
        return Estimate(recipe, 0, step.imagined(recipe, topology), chip).memory().total

    needed = total(("stages.0.accumulate", "4"))
    ways, topology = advised(large, needed + 1, *mesh)
    names = [tuple(name for name, _ in way) for way in ways]
    assert ("stages.0.accumulate",) in names
    for way in ways:
        assert total(*way) <= topology.chip.capacity  # a run takes the options as they are
        name, size = way[-1]
        if size.isdigit() and int(size) > 2:
            assert total(*way[:-1], (name, str(int(size) // 2))) > topology.chip.capacity
    if mesh:
        assert all(("mesh.data", "-1") in way for way in ways if way[-1][0] == "mesh.fsdp")


def test_a_mesh_is_advised_with_all_that_differs():
    mesh = sharding.Mesh(data=8, fsdp=1, tensor=1)
    assert estimate._mesh_options(mesh, sharding.Mesh(data=-1, fsdp=4)) == "--mesh.data=-1 --mesh.fsdp=4"
    assert estimate._mesh_options(sharding.Mesh(), sharding.Mesh(fsdp=4)) == "--mesh.fsdp=4"
    every = sharding.Mesh(data=2, fsdp=1, tensor=-1)
    assert estimate._mesh_options(every, sharding.Mesh(fsdp=2, tensor=4)) == (
        "--mesh.data=-1 --mesh.fsdp=2 --mesh.tensor=4"
    )


def test_fallbacks_are_printed_once_for_layers_that_are_alike(file, plan):
    options = [("mesh.tensor", "4"), ("model.layers", "3"), ("model.feed_forward_size", "34")]
    options += [(f"mesh.fallbacks.{name}", '["replicate"]') for name in ("heads", "feed_forward", "group_out", "vocab")]
    recipe = config.load(Pretrain, [file], options)
    found = step.fallbacks(recipe, step.imagined(recipe, chips.parse("v5e:2x2")))
    assert len(found) > 3
    text = page.as_text("tiny", dataclasses.replace(plan, fallbacks=found), None)
    lines = [line.strip() for line in text.splitlines() if "every device" in line]
    assert 3 * len(lines) == len(found)
    (bias,) = [line for line in lines if "feed_forward/intermediate/bias" in line]
    assert bias.startswith("encoder/layers_0 … layers_2/feed_forward/intermediate/bias: ")
    assert mentions(bias, "group_out", 34)


def test_only_what_is_alike_is_folded():
    lines = [f"a/layers_{index}/b: x" for index in (0, 1, 2, 4, 7, 8)] + ["a/layers_3/b: y", "c: x"]
    assert page.folded(lines) == [
        "a/layers_0 … layers_2, layers_4, layers_7 … layers_8/b: x", "a/layers_3/b: y", "c: x"
    ]  # fmt: skip


def test_what_is_printed_of_a_recipe_stands_beside_ours(run, plan, monkeypatch):
    def make(*_, published=None, **__):
        flops, note = published or (None, "")
        return dataclasses.replace(plan, published_flops=flops, published_note=note)

    monkeypatch.setattr(convention, "PUBLISHED", {"tiny": (1.5e18, "of twice the steps")})
    monkeypatch.setattr(estimate, "make", make)
    options = ("--topology=v5e:2x2", "--no-compile")
    assert mentions(run(*options)[1], "ConvBERT", "1.5e+18", "of twice the steps")
    assert json.loads(run(*options, "--json")[1])["published_flops"] == 1.5e18
    text = run(*options, "--stages.0.steps=7")[1]  # that is another run
    assert "1.5e+18" not in text and "of twice the steps" not in text


def test_no_device_of_this_machine_is_looked_at(run, plan, monkeypatch):
    """However jax came to be imported: an option's key is looked up in the config's class first, which imports it."""
    monkeypatch.setattr(estimate, "make", lambda *_, **__: plan)
    jax.config.update("jax_platforms", None)
    try:
        assert run("--topology=v5e:2x2", "--no-compile", "--stages.0.steps=7")[0] == 0
        assert jax.config.jax_platforms == "cpu"  # type: ignore[attr-defined]
    finally:
        jax.config.update("jax_platforms", "cpu")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--topology=v5e:3x3",), ("v5e", "1x1", "2x2", "2x4", "4x4")),
        (("--topology=h100:8",), ("v3", "v4", "v5e", "v5p", "v6e", "tpu7x")),
        (("--topology=v3:4x4",), ("batch_size=16", "accumulate=1", "32 devices")),
        (("--topology=v5e:2x2", "--mesh.tensor=3"), ("tensor=3", "4 devices")),
        (("--topology=v5e:2x2", "--price=much"), ("--price=much", "dollars")),
        (("--topology=v5e:2x2", "--price=-1"), ("--price=-1", "dollars")),
        (("--topology=v5e:2x2", "--model.layer=1"), ("model.layers",)),
        ((), ("--topology", "required")),
    ],
)
def test_bad_input_is_one_sentence(run, options, said):
    code, out, err = run(*options)
    assert code == 2 and out == "" and mentions(err, *said) and err.count("\n") == 1
