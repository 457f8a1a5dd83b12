"""The config loader: accepted values, errors that name keys, and the round trip through TOML."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import mentioning, mentions

from bertzoo.core import config
from bertzoo.core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Wide:
    kind: Literal["wide"] = "wide"
    layers: int = 12
    width: int = 8
    heads: int = 2
    activation: Literal["gelu", "relu"] = "gelu"

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ConfigError(f"heads={self.heads} does not divide width={self.width}")


@dataclass(frozen=True, kw_only=True)
class Grouped:
    kind: Literal["grouped", "grouped_thin"] = "grouped"
    layers: int = 6
    groups: tuple[int, ...] = (4, 2)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    warmup: float = 0.1
    power: float | None = 1.0


@dataclass(frozen=True, kw_only=True)
class Sgd:
    kind: Literal["sgd"] = "sgd"
    rate: float = 0.1
    schedule: Schedule = Schedule(warmup=0.3)


@dataclass(frozen=True, kw_only=True)
class Adam:
    kind: Literal["adam"] = "adam"
    rate: float = 1e-3
    decay: float = 0.01


@dataclass(frozen=True, kw_only=True)
class Stage:
    steps: int
    batch: int = 4
    share: float | tuple[float, ...] | None = None
    model: Wide | Grouped | None = None


@dataclass(frozen=True, kw_only=True)
class Run:
    model: Wide | Grouped
    optimizer: Sgd | Adam = field(default_factory=Sgd)
    stages: tuple[Stage, ...] = (Stage(steps=1), Stage(steps=2))
    source: str = "text"
    seed: int = 0
    remat: bool = False
    limit: int | None = None
    names: tuple[str, ...] = ()


WIDE = {"model": {"kind": "wide"}}


def write(folder: Path, text: str, name: str = "a.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def options(*texts: str) -> list[tuple[str, str]]:
    return [(text.split("=", 1)[0], text.split("=", 1)[1]) for text in texts]


def run(*texts: str) -> Run:
    return config.load(Run, (), options("model.kind=wide", *texts))


def test_files_merge_deeply_in_order_and_options_win(tmp_path: Path) -> None:
    one = write(tmp_path, 'seed = 1\n[model]\nkind = "wide"\nlayers = 3\nwidth = 16\n[[stages]]\nsteps = 5\n', "1.toml")
    two = write(tmp_path, "[model]\nlayers = 4\n[optimizer]\nrate = 1\n", "2.toml")
    got = config.load(Run, [one, str(two)], options("seed=2", "optimizer.schedule.power=2"))
    assert got == Run(
        model=Wide(layers=4, width=16),
        optimizer=Sgd(rate=1.0, schedule=Schedule(warmup=0.3, power=2.0)),
        stages=(Stage(steps=5),),
        seed=2,
    )
    assert isinstance(got.optimizer.rate, float)


def test_the_type_of_the_field_decides_how_an_option_is_parsed() -> None:
    got = run(
        "source=1e3",
        "seed=7",
        "remat=true",
        "limit=9",
        'names=["a", "b"]',
        "optimizer.rate=1e-3",
        "optimizer.schedule.power=none",
        "model.activation=relu",
    )
    assert (got.source, got.seed, got.remat, got.limit, got.names) == ("1e3", 7, True, 9, ("a", "b"))
    assert got.optimizer == Sgd(rate=1e-3, schedule=Schedule(warmup=0.3, power=None))
    assert got.model == Wide(activation="relu")
    assert run("optimizer.rate=5").optimizer.rate == 5.0
    assert run("limit=none").limit is None
    assert run("optimizer=" + '{kind = "adam", decay = 0}').optimizer == Adam(decay=0.0)


def test_options_reach_one_element_of_a_list_or_all(tmp_path: Path) -> None:
    assert run("stages.1.steps=9").stages == (Stage(steps=1), Stage(steps=9))
    assert run("stages.*.batch=8", "stages.0.batch=2").stages == (Stage(steps=1, batch=2), Stage(steps=2, batch=8))
    assert run("stages.0.model.kind=grouped", "stages.0.model.groups.1=8").stages[0].model == Grouped(groups=(4, 8))
    assert run("stages.*.share=[0.3, 1]", "stages.1.share=2").stages == (
        Stage(steps=1, share=(0.3, 1.0)),
        Stage(steps=2, share=2.0),
    )
    assert run("stages=[{steps = 3}]").stages == (Stage(steps=3),)
    path = write(tmp_path, '[model]\nkind = "wide"\n[[stages]]\nbatch = 2\n')  # lacks what the option sets
    assert config.load(Run, [path], options("stages.*.steps=3")).stages == (Stage(steps=3, batch=2),)


@dataclass(frozen=True, kw_only=True)
class Required:
    model: Wide | Grouped
    stages: tuple[Stage, ...]
    seed: int


def test_a_missing_key_names_the_option_that_sets_it(tmp_path: Path) -> None:
    path = write(tmp_path, "stages = []\n")
    with pytest.raises(ConfigError, match=mentioning("model", "--model.kind=", "wide", "grouped")):
        config.load(Required, [path])
    with pytest.raises(ConfigError, match=mentioning("--seed=")):
        config.load(Required, [path], options("model.kind=wide"))
    assert config.load(Required, [path], options("model.kind=wide", "seed=3")).model == Wide()
    with pytest.raises(ConfigError, match=mentioning("stages", "config file")) as error:
        config.load(Required, [], options("model.kind=wide", "seed=3"))
    assert "--stages" not in str(error.value)


@dataclass(frozen=True, kw_only=True)
class Later:
    RETIRED: ClassVar[dict[str, int]] = {"lanes": 1}

    seed: int = 0


def test_a_retired_key_is_ignored_with_its_old_default_alone(tmp_path: Path) -> None:
    assert config.load(Later, [write(tmp_path, "lanes = 1\nseed = 3\n")]) == Later(seed=3)
    with pytest.raises(ConfigError, match=mentioning("unknown key lanes")):
        config.load(Later, [write(tmp_path, "lanes = 2\n")])
    with pytest.raises(ConfigError, match=mentioning("unknown key lanes")):
        config.load(Later, [], options("lanes=1"))


def test_another_kind_replaces_the_table_it_is_laid_over(tmp_path: Path) -> None:
    one = write(tmp_path, '[model]\nkind = "wide"\nwidth = 16\nlayers = 3\n[optimizer]\nrate = 5\n', "1.toml")
    two = write(tmp_path, '[model]\nkind = "grouped"\n', "2.toml")
    same_class = write(tmp_path, '[model]\nkind = "grouped_thin"\n', "3.toml")
    assert config.load(Run, [one, two]).model == Grouped()
    assert config.load(Run, [one, two, same_class], options("model.layers=2")).model == Grouped(
        kind="grouped_thin", layers=2
    )
    # The kind comes first, whatever the order on the command line, and the default's kind counts as one.
    got = config.load(Run, [one], options("optimizer.decay=0.5", "optimizer.kind=adam"))
    assert got.optimizer == Adam(decay=0.5)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("model.layrs=6", ("--model.layrs=6", "model.layers")),
        ("optimiser.rate=6", ("--optimiser.rate=6", "optimizer")),
        ("layers=6", ("--layers=6", "model.layers")),
        ("warmup=1", ("--warmup=1", "optimizer.schedule.warmup")),
        ("zzz=1", ("--zzz=1", "model", "optimizer")),
        ("model.layers=six", ("model.layers", "integer", "'six'")),
        ("model.layers=true", ("model.layers", "integer", "boolean")),
        ("model.layers=6.0", ("model.layers", "integer", "6.0")),
        ("model.layers=", ("model.layers", "integer", "''")),
        ("model.layers=1\nx = 2", ("model.layers", "integer")),
        ("model=6", ("--model=6", "table", "integer")),
        ("model.kind=wid", ("model.kind", "'wid'", "wide")),
        ("model.activation=geluu", ("model.activation", "gelu, relu", "'geluu'")),
        ("model.layers.depth=1", ("model.layers", "integer", "depth")),
        ("optimizer.rate=nan", ("optimizer.rate", "number")),
        ("remat=1", ("remat", "true", "false", "integer")),
        ("remat=True", ("remat", "true", "false", "'True'")),
        ("limit=many", ("limit", "integer", "none", "'many'")),
        ("names=a", ("names", "list", "'a'")),
        ("names=[1]", ("names.0", "text", "integer")),
        ("stages.2.steps=1", ("stages.2", 0, 1)),
        ("stages.-1.steps=1", ("stages.-1", 0, 1)),
        ("names.*=x", ("names.*", "empty")),
        ("stages.0.model.layers=3", ("stages.0.model.kind", "wide", "grouped")),
        ("stages.0.share=[0.3", ("stages.0.share", "number", "list", "none", "[0.3")),
        ("stages.0.share=[true]", ("stages.0.share.0", "number", "boolean")),
        ("stages=[{batch = 3}]", ("stages.0.steps",)),
        ("model.heads=3", ("--model.heads=3", "model: heads=3 does not divide width=8")),
    ],
)
def test_a_wrong_option_raises_one_error(option: str, message: tuple[object, ...]) -> None:
    with pytest.raises(ConfigError) as error:
        run(option)
    assert mentions(str(error.value), *message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed = 1\nseed = 2\n", ("a.toml", "TOML", "line 2")),
        ("[modle]\n", ("modle", "model", "a.toml")),
        ("[model]\nlayers = 3\n", ("model.kind", "grouped_thin")),
        ("seed = true\n", ("seed", "a.toml")),
        ("seed = 1979-05-27\n", ("seed", "a.toml")),
        ("", ("--model.kind=",)),
        ('[model]\nkind = "wide"\n[optimizer]\ndecay = 1\n', ("optimizer.decay", "a.toml")),
        ('[model]\nkind = "wide"\nheads = 3\n', ("a.toml", "model: heads=3 does not divide width=8")),
    ],
)
def test_a_wrong_file_raises_one_error(tmp_path: Path, text: str, message: tuple[object, ...]) -> None:
    with pytest.raises(ConfigError) as error:
        config.load(Run, [write(tmp_path, text)])
    assert mentions(str(error.value), *message)


def test_the_file_at_fault_is_named_among_several(tmp_path: Path) -> None:
    good = write(tmp_path, '[model]\nkind = "wide"\n', "good.toml")
    bad = write(tmp_path, "[model]\nlayrs = 1", "bad.toml")
    with pytest.raises(ConfigError, match=mentioning("model.layrs", "bad.toml")):
        config.load(Run, [good, bad, good])


def test_paths_that_are_not_config_files(tmp_path: Path) -> None:
    binary = tmp_path / "b.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    for name, noun in [(binary, "UTF-8"), (tmp_path, "directory"), ("nowhere.toml", "")]:
        with pytest.raises(ConfigError, match=mentioning(name, noun)):
            config.load(Run, [name])


def test_shipped_configs_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bertzoo").mkdir()
    (tmp_path / "configs").mkdir()
    monkeypatch.setattr(config, "__file__", str(tmp_path / "bertzoo" / "core" / "config.py"))
    path = write(tmp_path / "configs", '[model]\nkind = "grouped"\n', "squeeze.toml")
    assert config.shipped() == {"squeeze": path}
    monkeypatch.chdir(tmp_path)
    Path("squeeze").mkdir()  # does not hide the config
    assert config.load(Run, ["squeeze"]).model == Grouped()
    for name in ("squeze", "qqqq"):
        with pytest.raises(ConfigError, match=mentioning("squeeze")):
            config.find(name)
    for index in range(60):
        write(tmp_path / "configs", "", f"model{index}.toml")
    with pytest.raises(ConfigError, match=mentioning("model1", "bertzoo models")) as error:
        config.find("qqel1")
    assert str(error.value).count("model") < 6  # the nearest, not all
    inside = tmp_path / "bertzoo" / "configs"  # as in a wheel
    inside.mkdir()
    assert config.shipped() == {}


def test_from_dict_accepts_the_values_of_toml() -> None:
    assert config.from_dict(Run, WIDE | {"names": ["x"]}) == Run(model=Wide(), names=("x",))
    with pytest.raises(ConfigError, match=mentioning("stages.0.steps")):
        config.from_dict(Run, WIDE | {"stages": [{}]})
    with pytest.raises(TypeError, match=mentioning("dict[str, int]")):
        config.from_dict(Unsupported, {"values": {}})


@dataclass(frozen=True, kw_only=True)
class Unsupported:
    values: dict[str, int]


def test_dump_omits_none_only_if_it_is_the_default() -> None:
    text = config.dump(Run(model=Wide(), optimizer=Sgd(schedule=Schedule(power=None))))
    assert "limit" not in text
    assert 'power = "none"' in text


def test_difference_names_every_key_that_differs() -> None:
    a = Run(model=Wide(layers=12), stages=(Stage(steps=1),), names=("x",))
    b = Run(model=Grouped(layers=6), stages=(Stage(steps=1, batch=8), Stage(steps=3)), names=("x", "y"), remat=True)
    assert config.difference(a, a) == []
    assert config.difference(a, b) == [
        "model.kind: 'wide' -> 'grouped'",
        "model.layers: 12 -> 6",
        "model.width: 8 -> 'none'",
        "model.heads: 2 -> 'none'",
        "model.activation: 'gelu' -> 'none'",
        "stages.0.batch: 4 -> 8",
        "remat: false -> true",
        "names: ['x'] -> ['x', 'y']",
        "model.groups: 'none' -> [4, 2]",
        "stages.1.steps: 'none' -> 3",
        "stages.1.batch: 'none' -> 4",
    ]


numbers = st.floats(allow_nan=False)
texts = st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: text != config.NONE)
integers = st.integers(-(2**63), 2**63 - 1)
wide = st.builds(
    lambda h, n, a: Wide(heads=h, width=h * n, activation=a),
    st.integers(1, 99),
    st.integers(-(2**56), 2**56),  # times the heads in 64 bits, as TOML has
    st.sampled_from(["gelu", "relu"]),
)
grouped = st.builds(
    Grouped, kind=st.sampled_from(["grouped", "grouped_thin"]), layers=integers, groups=st.lists(integers).map(tuple)
)
schedules = st.builds(Schedule, warmup=numbers, power=st.none() | numbers)
optimizers = st.builds(Sgd, rate=numbers, schedule=schedules) | st.builds(Adam, rate=numbers, decay=numbers)
shares = st.none() | numbers | st.lists(numbers).map(tuple)
stages = st.builds(Stage, steps=integers, batch=integers, share=shares, model=st.none() | wide | grouped)
runs = st.builds(
    Run,
    model=wide | grouped,
    optimizer=optimizers,
    stages=st.lists(stages, max_size=3).map(tuple),
    source=texts,
    seed=integers,
    remat=st.booleans(),
    limit=st.none() | integers,
    names=st.lists(texts, max_size=3).map(tuple),
)


@given(runs)
def test_load_reads_the_output_of_dump(tmp_path_factory: pytest.TempPathFactory, run: Run) -> None:
    path = tmp_path_factory.getbasetemp() / "dumped.toml"
    path.write_text(config.dump(run), encoding="utf-8", newline="")
    assert config.load(Run, [path]) == run
    assert config.from_dict(Run, config.plain(run)) == run


@given(numbers, integers, st.booleans(), texts)
def test_options_are_parsed_from_their_text(rate: float, seed: int, remat: bool, source: str) -> None:
    got = run(f"optimizer.rate={rate!r}", f"seed={seed}", f"remat={str(remat).lower()}", f"source={source}")
    assert (got.optimizer.rate, got.seed, got.remat, got.source) == (rate, seed, remat, source)
