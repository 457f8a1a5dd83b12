"""docs/ablations.md: every command on the page is understood, and its model counts to what stands behind it."""

import dataclasses
import json
import re
import shlex
from pathlib import Path

import flax.linen as nn
import flax.traverse_util
import jax
import pytest

from bertzoo import config
from bertzoo.cli import main
from bertzoo.models import Compute, pretraining
from bertzoo.recipe import Pretrain

PAGE = (Path(__file__).parent.parent / "docs" / "ablations.md").read_text()
LINES = re.findall(r"^(bertzoo (?:models|pretrain) [^#\n]*[^#\s]) *(?:# (.*))?$", PAGE, re.MULTILINE)
TEACHERS = {note[:3]: (command, note[4:]) for command, note in LINES if note.startswith("(")}
STUDENTS = {note.split(":")[0]: (command, note.split(": ")[1]) for command, note in LINES if note[:1].isdigit()}
# MobileBERT's Table 2: widths of stream and bottleneck, heads, printed size.
TABLE_2 = {
    "(a)": (1024, 1024, 16, 356),
    "(b)": (768, 1024, 16, 325),
    "(c)": (512, 1024, 16, 293),
    "(d)": (384, 1024, 16, 276),
    "(e)": (256, 1024, 16, 262),
    "(f)": (512, 1024, 4, 293),
    "(g)": (512, 512, 4, 92),
    "(h)": (512, 256, 4, 33),
    "(i)": (512, 128, 4, 15),
}
# MobileBERT's Table 3: heads, number of feed-forwards, printed sizes of attention and feed-forwards.
TABLE_3 = {"192": (6, 1, 8, 7), "160": (5, 2, 6.5, 10), "128": (4, 4, 5, 12.5), "96": (3, 8, 4, 14)}


def load(command: str) -> Pretrain:
    _, _, name, *options = shlex.split(command)
    pairs = [option.removeprefix("--").partition("=") for option in options]
    return config.load(Pretrain, [name], [(key, value) for key, _, value in pairs if key != "run_dir"])


def sizes(model) -> dict[str, float]:
    """Millions of parameters: of the encoder with its embeddings, of its attentions, of its feed-forwards.

    Counted in one layer and in two, which is fast; all layers are alike.
    """
    counted = []
    for layers in (1, 2):
        module = pretraining(dataclasses.replace(model, layers=layers), Compute(), sentence=True)
        ids = jax.ShapeDtypeStruct((1, 8), "int32")
        boxed = jax.eval_shape(module.init, jax.random.key(0), ids, ids, ids, ids)
        leaves = flax.traverse_util.flatten_dict(nn.unbox(boxed)["params"], sep="/")
        total = {"encoder": 0, "attention": 0, "feed_forward": 0}
        for path, leaf in leaves.items():
            total["encoder"] += leaf.size * path.startswith(("embedding/", "encoder/"))
            total["attention"] += leaf.size * ("/attention/" in path)
            total["feed_forward"] += leaf.size * bool(re.search(r"/feed_forward_\d+/", path))
        counted.append(total)
    one, two = counted
    return {name: (one[name] + (model.layers - 1) * (two[name] - one[name])) / 1e6 for name in one}


def test_every_line_of_the_page_is_read():
    assert (set(TEACHERS), set(STUDENTS)) == (set(TABLE_2), set(TABLE_3))
    assert len(LINES) == PAGE.count("\nbertzoo ") == len(TABLE_2) + len(TABLE_3) + 1
    (search,) = [load(command) for command, note in LINES if not note]
    assert (search.stages[0].steps, search.stages[0].batch_size) == (125_000, 2048)


def test_the_teachers_of_mobilebert():
    cut_off = set()
    for row, (stream, bottleneck, heads, printed) in TABLE_2.items():
        command, note = TEACHERS[row]
        model = load(command).model
        assert (model.hidden_size, model.bottleneck_size, model.heads) == (stream, bottleneck, heads)
        assert (model.layers, model.feed_forwards, model.feed_forward_size) == (24, 1, 4 * bottleneck)
        count = sizes(model)["encoder"]
        assert note.split(";")[0] == f"{printed}, {count:.1f}"
        cut_off |= {row} if int(count) == printed else set()
        assert int(count) == printed or 1.2 <= round(count - printed, 1) <= 2.4
    assert cut_off == {"(b)", "(e)", "(g)", "(i)"}  # what the page says


def test_the_students_of_mobilebert():
    for row, (heads, feed_forwards, attention, feed_forward) in TABLE_3.items():
        command, note = STUDENTS[row]
        model = load(command).model
        assert (model.bottleneck_size, model.heads, model.feed_forwards) == (int(row), heads, feed_forwards)
        assert (model.hidden_size, model.layers, model.feed_forward_size) == (512, 24, 4 * int(row))
        count = sizes(model)
        assert [round(2 * count[name]) / 2 for name in ("attention", "feed_forward")] == [attention, feed_forward]
        figures = f"{attention}, {feed_forward}; {count['attention']:.2f}, {count['feed_forward']:.2f}"
        assert note.rsplit(";", 1)[0] == figures


@pytest.mark.parametrize("row", ["(i)"])
def test_a_line_of_the_page_runs(row, capsys):
    command, note = TEACHERS[row]
    assert main([*shlex.split(command)[1:], "--json"]) == 0
    (counted,) = json.loads(capsys.readouterr().out)
    assert f"{counted['params_encoder'] / 1e6:.1f}" in note
    assert counted["params_published"] is None and counted["paper"] == ""
