"""`bertzoo inspect attention`: divergences and matchings against plain loops, and the picture's pixels."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pairs
import pytest
import tiny
from messages import mentioning, mentions
from PIL import Image

import bertzoo
from bertzoo.cli import main as cli
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core.errors import UserError
from bertzoo.data.corpus.reader import Corpus
from bertzoo.heads import NoHead, parameter_shapes
from bertzoo.models import Bert, ConvBert, MobileBert
from bertzoo.runs import attention, load_model
from bertzoo.runs.attention import choose_layers

RNG = np.random.default_rng(0)
BERT = Bert(vocab_size=256, hidden_size=16, layers=2, heads=4, feed_forward_size=16, max_positions=48)
ORDER = [2, 0, 3, 1]  # the teacher's heads in the order of the permuted student


def maps(heads: int, length: int) -> np.ndarray:
    scores = np.exp(3.0 * RNG.normal(size=(heads, length, length)))
    return (scores / scores.sum(-1, keepdims=True)).astype(np.float32)


def plain(teacher: np.ndarray, student: np.ndarray) -> float:
    """Σ t·log(t/s) of one row by the definition."""
    pairs = zip(teacher.ravel().tolist(), student.ravel().tolist(), strict=True)
    return sum(t * math.log(t / s) for t, s in pairs if t)


def made(model: Any, tokenizer: Any, scale: float = 0.7) -> Pretrained:
    rng = np.random.default_rng(round(1 / scale))
    shapes = parameter_shapes(model, NoHead()).items()
    params = {name: rng.normal(0, scale, shape).astype(np.float32) for name, shape in shapes}
    return Pretrained(model=model, head=NoHead(), params=params, tokenizer=tokenizer, origin="m")


def permuted(name: str, array: np.ndarray) -> np.ndarray:
    if "/attention/" not in name:
        return array
    axis = 1 if array.ndim == 3 and "/output/" not in name else 0
    return array if name.endswith("output/bias") else np.take(array, ORDER, axis)


@pytest.fixture(scope="module")
def home(tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text, and models that read its vocabulary, or do not."""
    home = tmp_path_factory.mktemp("home")
    tiny.write_text(home / "text.txt")
    tokenizer = Corpus.open(tiny_corpus).tokenizer
    teacher = made(BERT, tokenizer)
    other = replace(tokenizer.config, path="", vocab_size=200)
    narrow = MobileBert(vocab_size=256, **pairs.NARROW, layers=1, feed_forwards=1, max_positions=16)
    models = {
        "teacher": teacher,
        "permuted": replace(teacher, params={name: permuted(name, a) for name, a in teacher.params.items()}),
        "narrow": made(narrow, tokenizer, 0.3),
        "mute": made(BERT, None),
        "foreign": made(replace(BERT, vocab_size=200), other.train(lambda: iter([(home / "text.txt").read_text()]))),
        "convbert": made(
            ConvBert(vocab_size=256, embedding_size=8, hidden_size=8, layers=1, heads=4, feed_forward_size=8), tokenizer
        ),
    }
    for name, model in models.items():
        (home / name).mkdir()
        load_model.write_model(model, home / name)
    return home


def inspect(home: Path, model: str, *options: str, out: str = "a.png") -> int:
    shown = [option.replace("HOME", str(home)) for option in options]
    return cli.main(["inspect", "attention", str(home / model), f"--out={home / out}", *shown])


def words(home: Path, count: int) -> str:
    return " ".join((home / "text.txt").read_text().replace(".", "").split()[:count])


def test_divergences_are_kl_by_its_definition():
    teacher, student = maps(3, 5), maps(2, 5)
    teacher[0, 1, 2:] = 0
    teacher[0, 1] /= teacher[0, 1].sum()
    expected = [[plain(t, s) for s in student] for t in teacher]
    np.testing.assert_allclose(attention.divergences(teacher, student), expected, rtol=1e-5)
    itself = attention.divergences(teacher, teacher)
    assert (itself.diagonal() < 1e-12).all() and itself[0, 1] > 0.1
    student[:, 0] = [0, 0, 0, 0, 1]
    assert np.isfinite(attention.divergences(teacher, student)).all()


def test_rows_are_compared_by_their_queries():
    rows = [([maps(2, n), maps(2, n)], [maps(3, n), maps(3, n)]) for n in (4, 9)]
    for layer, got in enumerate(attention.compare(rows)):
        expected = [
            [sum(plain(t[layer][g], s[layer][h]) for t, s in rows) / (4 + 9) for h in range(3)] for g in range(2)
        ]
        np.testing.assert_allclose(got, expected, rtol=1e-5)


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3), (1, 2)])
def test_the_matching_is_optimal(shape: tuple[int, int]):
    teachers, students = shape
    for _ in range(20):
        table = RNG.random(shape)
        wide = table if teachers <= students else table.T
        sides = min(shape), max(shape)
        best = min(
            sum(wide[i, j] for i, j in enumerate(chosen))
            for chosen in itertools.permutations(range(sides[1]), sides[0])
        )
        pairs = attention.match(table)
        assert sum(table[pair] for pair in pairs) == pytest.approx(best)
        assert [len(set(side)) for side in zip(*pairs, strict=True)] == [sides[0]] * 2


def test_maps_do_not_depend_on_other_rows(home: Path):
    model, params, _ = bertzoo.load(home / "teacher")
    rows = [RNG.integers(5, 200, n) for n in (11, 6)]
    long, (second, first) = attention.attentions(load_model.read_model(home / "teacher"), rows, [2, 1])
    ids = rows[1][None]
    expected = jax.jit(model.apply)({"params": params}, ids, 0 * ids, np.ones_like(ids)).attentions
    np.testing.assert_allclose(second, expected[1][0], atol=1e-6)
    np.testing.assert_allclose(first, expected[0][0], atol=1e-6)
    np.testing.assert_allclose(long[0].sum(-1), np.ones((4, 11)), atol=1e-5)
    assert abs(second - first).max() > 0.1


def test_a_model_without_heads_or_keys_raises(home: Path):
    found = load_model.read_model(home / "teacher")
    blind = SimpleNamespace(apply=lambda *_, **__: SimpleNamespace(attentions=[np.zeros((1, 0, 4, 4), np.float32)] * 2))
    without: Any = SimpleNamespace(model=found.model, origin="pruned", module=lambda: (blind, {}))
    row = np.arange(4)
    with pytest.raises(UserError, match=mentioning("layer 2")):
        list(attention.attentions(without, [row], [2]))
    blind.apply = lambda *_, **__: SimpleNamespace(attentions=[np.ones((1, 2, 4, 2), np.float32)])
    with pytest.raises(UserError, match=mentioning("layer 1", 2, 4, "stride")):
        list(attention.attentions(without, [row], [1]))


@pytest.mark.parametrize(
    ("given", "student", "teacher", "chosen"),
    [
        ([], 24, None, {"model": [1, 12]}),
        ([], 6, None, {"model": [1, 6]}),
        ([], 1, None, {"model": [1]}),
        ([], 24, 24, {"teacher": [1, 12], "student": [1, 12]}),
        ([], 6, 24, {"teacher": [1, 12], "student": [1, 6]}),
        ([], 24, 6, {"teacher": [1, 6], "student": [1, 12]}),
        (["--layers=1,6:12"], 6, 24, {"teacher": [1, 12], "student": [1, 6]}),
    ],
)
def test_the_layers_match_the_papers_figure(given, student, teacher, chosen):
    """MobileBERT's Appendix C draws the 1st and the 12th of 24; a model that is not so deep shows its last."""
    _, options = cli.parse(["inspect", "attention", "m", "--out=a.png", "--text=a", *given])
    roles = {"model": student} if teacher is None else {"teacher": teacher, "student": student}
    models = {role: made(replace(BERT, layers=layers), None) for role, layers in roles.items()}
    assert choose_layers(models, options.layers) == chosen


def test_the_matching_finds_permuted_heads(home: Path, capsys):
    texts = [f"--text={words(home, count)}" for count in (4, 9, 6)]
    assert inspect(home, "permuted", "--teacher=HOME/teacher", *texts, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["rows"] == 3 and [layer["student"] for layer in printed["layers"]] == [1, 2]
    for layer in printed["layers"]:
        assert layer["teacher"] == layer["student"]
        assert [ORDER[pair["student"] - 1] for pair in layer["matching"]] == [0, 1, 2, 3]
        assert layer["matched_kl"] < 1e-6 < 0.1 < layer["any_kl"]
        assert layer["left"] == {"teacher": [], "student": []}
    assert (np.asarray(Image.open(home / "a.png").convert("L")) < 250).mean() > 0.1  # not white


def test_other_numbers_of_heads_and_layers(home: Path, capsys):
    text = words(home, 3)
    options = ("--teacher=HOME/teacher", f"--text={text}", "--layers=1:2")
    assert inspect(home, "narrow", *options) == 0
    printed = capsys.readouterr().out
    assert inspect(home, "narrow", *options, "--json") == 0
    (layer,) = json.loads(capsys.readouterr().out)["layers"]
    assert mentions(printed, "layer 2", "layer 1", f"{layer['matched_kl']:.4f}", f"{layer['any_kl']:.4f}")
    tokenizer = load_model.read_model(home / "teacher").tokenizer
    ids = np.array([[tokenizer.specials.cls, *tokenizer.encode_batch([text])[0].tolist(), tokenizer.specials.sep]])
    loaded = (bertzoo.load(home / name)[:2] for name in ("teacher", "narrow"))
    teacher, student = (jax.jit(m.apply)({"params": p}, ids, 0 * ids, 0 * ids + 1).attentions[-1][0] for m, p in loaded)
    expected = [[plain(np.asarray(t), np.asarray(s)) / ids.size for s in student] for t in teacher]
    np.testing.assert_allclose(layer["kl"], expected, atol=1e-4)
    matched = {pair["teacher"] for pair in layer["matching"]}
    assert len(matched) == 2 and layer["left"] == {"teacher": sorted({1, 2, 3, 4} - matched), "student": []}


@pytest.mark.filterwarnings("ignore:Glyph")
def test_the_picture_shows_the_maps(tmp_path):
    """Every cell of every map has its colour, on one scale, inside its axes."""
    eye, faint = np.eye(2), 0.4 * np.eye(2)[::-1]
    strips = [("a", [("1", eye), ("2", faint)]), ("b", [("3", faint)])]
    for name in ("a.png", "b.png"):
        page = attention.draw(strips, "x", ["$a$", "語"], tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    pixels = np.asarray(Image.open(tmp_path / "a.png").convert("L")).astype(int)
    height, width = pixels.shape
    axes = page.axes[:4]  # of two strips with two columns

    def colour(place: int, row: int, key: int) -> int:
        x, y = page.transFigure.inverted().transform(axes[place].transData.transform((key, row)))
        return pixels[int((1 - y) * height), int(x * width)]

    dark, middle, light = colour(0, 0, 0), colour(1, 0, 1), colour(0, 0, 1)
    assert dark < middle - 20 and middle < light - 20
    for place, map_LM in ((0, eye), (1, faint), (2, faint)):
        for row, key in itertools.product(range(2), repeat=2):
            assert colour(place, row, key) == {0: light, 0.4: middle, 1: dark}[map_LM[row, key]]
    middles = axes[3].transAxes.transform((0.5, 0.5))  # of the place without a map
    x, y = page.transFigure.inverted().transform(middles)
    assert pixels[int((1 - y) * height), int(x * width)] == 255


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("teacher", ["--layers=1,3", "--text=a"], ("/teacher", "layer 3", 1, 2)),
        ("teacher", ["--layers=0", "--text=a"], ("layer 0",)),
        ("narrow", ["--layers=1:4", "--teacher=HOME/teacher", "--text=a"], ("/teacher", "layer 4")),
        ("teacher", ["--layers=1-3", "--text=a"], ("--layers=1-3", "1,12")),
        ("teacher", ["--layers=1:2", "--text=a"], ("--teacher",)),
        ("teacher", ["--text=" + "a " * 60], (62,)),
        ("narrow", ["--teacher=HOME/teacher", "--text=" + "a " * 20], ("/narrow", 16)),
        ("teacher", ["--text= "], ("--text='",)),
        ("teacher", ["--text=a", "--text=b"], (2, "--text")),
        ("teacher", [], ("--text",)),
        ("mute", ["--text=a"], ("/mute",)),
        ("teacher", ["--teacher=HOME/mute", "--text=a"], ("/mute",)),
        ("foreign", ["--teacher=HOME/teacher", "--text=a"], ("/teacher", 250, 200)),
        ("nothing", ["--text=a"], ("/nothing",)),
        ("teacher", ["--text=a", "--out=a.jpg"], ("--out=a.jpg", "PNG")),
        ("teacher", ["--text=a", "--out=HOME/no/a.png"], ("directory",)),
    ],
)
def test_wrong_input_prints_one_error(home: Path, capsys, model: str, options: list[str], message: tuple[object, ...]):
    assert inspect(home, model, *options, out="wrong.png") == 2
    out, err = capsys.readouterr()
    assert err.startswith("bertzoo: ") and mentions(err, *message) and err.count("\n") == 1 and not out
    assert not (home / "wrong.png").exists()
