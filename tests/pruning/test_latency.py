"""A budget in milliseconds: table, interpolation, choice and errors."""

import itertools
import json
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from latencies import layer_time, only_time, planted
from messages import mentioning, mentions
from test_choose import brute, random_scores
from zoo import CASES, LAYERS, SIZES

from bertzoo.benchmarking import latency as measuring
from bertzoo.benchmarking.options import BenchmarkSettings
from bertzoo.benchmarking.worker import LoadRequest
from bertzoo.cli.main import main
from bertzoo.core.errors import UserError
from bertzoo.heads import NoHead
from bertzoo.models import Bert, SchuBert
from bertzoo.pruning.costs import Latency, choose, uniform
from bertzoo.pruning.latency import common, latency, read_table
from bertzoo.pruning.structure import cuttable, declare, layer_sizes, resized, shallow

BERT = Bert(**SIZES, **LAYERS)
CUT = {"h": 12, "f": 9, "a": 3, "k": 5, "v": 2, "e": 4}


def written(path, table):
    path.write_text(json.dumps(table.document()))
    return path


@pytest.mark.parametrize("case", ["bert", "schubert", "squeezebert", "convbert-span", "mobilebert", "albert"])
def test_between_measured_sizes_are_sums_of_products(case, tmp_path):
    model, head = CASES[case]
    structure, random = declare(model, head), np.random.default_rng(0)
    table = read_table(written(tmp_path / "table.json", planted(model)))
    cost = latency(structure, table, "table")
    for sizes in (structure.sizes, *(some_sizes(structure, random) for _ in range(20))):
        *others, last = layer_sizes(resized(model, sizes))
        assert cost(sizes) == pytest.approx(only_time(last) + sum(map(layer_time, others)))
    assert type(cost(structure.sizes)) is float


def some_sizes(structure, random):
    """Return random sizes that a cut can leave."""
    ties = {}
    for name, dimension in structure.dimensions.items():
        each = dimension.size // dimension.groups
        ties.setdefault(dimension.tie or name, dimension.groups * int(random.integers(1, each + 1)))
    return {name: ties[dimension.tie or name] for name, dimension in structure.dimensions.items()}


def test_letters_that_are_not_measured_stay(tmp_path):
    structure = declare(BERT, NoHead(), ("h", "v"))
    cost = latency(structure, planted(BERT, ("h", "v")), "table")
    sizes = structure.sizes | {"h": 7, "encoder/layers_1/attention/v": 3}
    *_, last = layer_sizes(resized(BERT, sizes))
    assert (last["f"], last["h"], last["v"]) == (20, 7, 3)
    first = last | {"v": 6}
    assert cost(sizes) == pytest.approx(only_time(last) + layer_time(first))


def test_larger_sizes_never_take_less_time():
    """Whatever the noise: `choose` finds the cut by bisection, which needs a monotonic cost."""
    structure, random = declare(BERT, NoHead()), np.random.default_rng(1)
    cost = latency(structure, planted(BERT, noise=lambda: random.uniform(0.3, 1.7)), "table")
    for _ in range(100):
        small, large = some_sizes(structure, random), some_sizes(structure, random)
        both = [{name: f(small[name], large[name]) for name in small} for f in (min, max)]
        assert cost(both[0]) <= cost(both[1]) + 1e-9


@pytest.mark.parametrize("share", [0.8, 0.4])
@pytest.mark.parametrize("case", ["bert", "squeezebert", "convbert-span"])
def test_the_choice_under_a_table_equals_removing_one_by_one(case, share):
    model, head = CASES[case]
    structure, random = declare(model, head), np.random.default_rng(2)
    cost = latency(structure, planted(model, noise=lambda: random.uniform(0.9, 1.1)), "table")
    whole = cost(structure.sizes)
    least = cost({name: dimension.groups for name, dimension in structure.dimensions.items()})
    target, scores = least + share * (whole - least), random_scores(structure)
    kept = choose(structure, scores, cost, target)
    expected = brute(structure, scores, cost, target, dict.fromkeys("hefakv", 1))
    assert {name: list(indices) for name, indices in kept.items()} == expected
    evenly = uniform(structure, scores, cost, target, structure.sizes)
    assert cost({name: len(indices) for name, indices in evenly.items()}) <= target


def test_a_budget_is_met_within_one_per_cent():
    model = Bert()
    structure = declare(model, NoHead())
    cost = latency(structure, planted(model), "table")
    target = 0.6 * cost(structure.sizes)
    kept = choose(structure, random_scores(structure), cost, target)
    assert 0.99 * target < cost({name: len(indices) for name, indices in kept.items()}) <= target
    for wrong, says in ((1.1, "below"), (1e-6, "cut")):
        with pytest.raises(UserError, match=mentioning("budget", says) + r".*\b[0-9,]+[.][0-9]{3}\b"):
            choose(structure, random_scores(structure), cost, wrong * cost(structure.sizes))


def test_every_encoder_of_a_table_has_the_models_fields():
    for model, head in CASES.values():
        if head.kind == "joint_span":
            continue
        sizes = {letter: CUT[letter] - CUT[letter] % measuring.groups(model) for letter in cuttable(model)}
        made = shallow(model, 3, sizes)
        assert layer_sizes(made) == [sizes] * 3 and common(made, cuttable(model)) == common(model, cuttable(model))
        assert isinstance(made, SchuBert) == isinstance(model, Bert | SchuBert)
    assert layer_sizes(shallow(BERT, 1, {"f": 8})) == [{"h": 24, "f": 8, "a": 4, "k": 6, "v": 6}]


@pytest.mark.parametrize(("case", "letters"), [("schubert", ""), ("bert", "ha"), ("squeezebert", ""), ("albert", "")])
def test_the_table_holds_the_measured_times(logged, case, letters, monkeypatch):
    """The device's times are sums over operations, and it slows down; paths identify encoders."""
    model, slower = CASES[case][0], itertools.count(1)
    known: dict[str, float] = {}

    def load(made, place, wanted):
        *others, last = layer_sizes(made)
        path = str(len(known))
        known[path] = only_time(last) + sum(map(layer_time, others))
        assert made.vocab_size == 61 and wanted.lengths == (16,)
        return LoadRequest("litert", path, wanted.threads[0], made.vocab_size)

    @contextmanager
    def started(loads):
        factor = next(slower)
        yield [
            SimpleNamespace(
                state={"version": "9"}, run=lambda lengths, at=at: [1e-3 * factor * known[at.path]] * len(lengths)
            )
            for _, at in loads
        ]

    monkeypatch.setattr(measuring, "_request", load)
    monkeypatch.setattr(measuring, "start_workers", started)
    wanted = BenchmarkSettings(lengths=(16,), threads=(2,), runs=4, rounds=2)
    table = measuring.measure(model, wanted, letters, 3)
    structure = declare(model, NoHead(), tuple(letters))
    rounds = next(slower) - 1
    unit = (rounds + 1) / 2  # the median of all turns that the first model had
    whole = latency(structure, table, "table")(structure.sizes)
    *others, last = layer_sizes(model)
    assert whole == pytest.approx(unit * (only_time(last) + sum(map(layer_time, others))))
    assert table.measurement["whole"] == {"measured_ms": pytest.approx(whole), "table_ms": whole}
    measured = {"runtime": "litert 9", "threads": 2, "precision": "fp32"}
    assert measured.items() <= table.measurement.items() and table.measurement["machine"]
    count = 2 + 2 * len(table.single)
    assert logged[-1] == f"{count} of {count} encoders"


def refused(table, model=BERT, letters=(), sizes=None):
    structure = declare(model, NoHead(), letters)
    with pytest.raises(UserError) as raised:
        latency(structure, table, "table.json")(structure.sizes | (sizes or {}))
    return str(raised.value)


def test_a_table_of_something_else():
    wider = Bert(**SIZES | {"hidden_size": 28}, **LAYERS)
    assert mentions(refused(planted(BERT), wider), "table.json", "layers", " 1 ", 24, 28)
    said = refused(planted(BERT, ("f",)), wider, ("f",))
    assert mentions(said, "table.json", "hidden_size", 24, 28)
    squeezed = CASES["squeezebert"][0]
    assert mentions(refused(planted(BERT, ("f",)), squeezed), "table.json", "kind", "schubert", "squeezebert")
    assert mentions(refused(planted(BERT, ("h", "f"))), "table.json", "no a (", "heads")
    uneven = CASES["schubert"][0]
    said = refused(planted(BERT, ("h", "f")), uneven, ("h", "f"))
    assert mentions(said, "heads", "layer", "no a (")
    deeper = Bert(**SIZES | {"vocab_size": 99}, **LAYERS | {"layers": 5})  # is the same to a table
    structure = declare(deeper, NoHead())
    assert latency(structure, planted(BERT), "table")(structure.sizes) > 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.pop("sizes"), ("complete table", "sizes")),
        (lambda d: d.update(format="other"), ("complete table", "format")),
        (lambda d: d["encoders"].pop(), ("complete table", "(24,")),
        (lambda d: d["sizes"].update(h=[24, 1]), ("complete table", "sizes", "ascending")),
        (lambda d: d["sizes"].update(q=[1, 2]), ("complete table", "sizes", "ascending")),
        (lambda d: d["encoders"][0].update(one_ms=float("nan")), ("complete table", "time", "number")),
        (lambda d: d.update(encoders=3), ("complete table",)),
    ],
)
def test_a_damaged_table(change, says, tmp_path):
    path = written(tmp_path / "table.json", planted(BERT))
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match=mentioning(path, *says)):
        read_table(path)


def test_a_missing_table_or_one_of_another_length(tmp_path):
    structure = declare(BERT, NoHead())
    with pytest.raises(UserError, match=mentioning("none.json", "No such file")):
        Latency(share=0.5, table=str(tmp_path / "none.json")).cost(structure)
    path = written(tmp_path / "table.json", planted(BERT))
    with pytest.raises(UserError, match=mentioning("target.length", 64, 128)):
        Latency(share=0.5, table=str(path), length=64).cost(structure)
    assert Latency(share=0.5, table=str(path)).cost(structure)(structure.sizes) > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps=3"], ("--steps", "--table=FILE")),
        (["--table=t.json", "bert_6l"], ("--table", "MODEL", "bert_6l")),
        (["--table=t.json", "--backends=onnx"], ("--table", "litert", "onnx")),
        (["--table=t.json", "--threads=1,2"], ("--table", "--threads", "1,2")),
        (["--table=t.json", "--profile"], ("--profile", "table")),
        (["--table=t.json", "--steps=1"], ("--steps=1", "least 2")),
        (["--table=none/t.json"], ("none", "directory")),
    ],
)
def test_invalid_options_of_a_table(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["benchmark", "bert_base", *words]) == 2
    assert mentions(capsys.readouterr().err, *message)
    assert not any(tmp_path.iterdir())


def test_dimensions_that_a_model_does_not_have():
    with pytest.raises(UserError, match=mentioning("--dimensions=x", "h, e, f, a, k, v")):
        measuring.grid(BERT, ("x",), 3)
    with pytest.raises(UserError, match=mentioning("--dimensions: h (", "kind squeezebert")):
        measuring.grid(CASES["squeezebert"][0], ("h",), 3)
    assert measuring.grid(CASES["squeezebert"][0], (), 4) == {"f": (4, 8, 16, 20)}
    assert measuring.grid(BERT, ("k", "h"), 3) == {"h": (1, 12, 24), "k": (1, 4, 6)}
