"""Every command of docs/ablations_convbert.md runs, and counts what the document says and what the formulas give."""

import json
import re
import shlex
from pathlib import Path

import pytest

from bertzoo.cli import main

ROWS = re.findall(
    r"^\| ([^|]+) \| `bertzoo ([^`]+)` \| ([\d,]+) \| (\d*) ?\| ([\d.]*) ?\|$",
    (Path(__file__).parents[1] / "docs" / "ablations_convbert.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


def encoder(
    width: int, embedding: int, attended: int, feed_forward: int, groups: int = 1, kind: str = "span", window: int = 9
) -> int:
    """Parameters of 12 layers and their embeddings, term by term; `attended` is the width of all attention heads, which
    are of 64, 48 or 54 each."""
    heads = attended // {256: 64, 384: 48, 432: 54, 768: 64}[width]
    convolution = {
        "none": 0,
        "fixed": window * attended,
        "dynamic": (width + 1) * heads * window,
        "span": window * width + (width + 1) * attended + (attended + 1) * heads * window,
    }[kind]
    values, inputs = ((width + 1) * attended, 2 * attended) if kind != "none" else (0, attended)
    attention = 3 * (width + 1) * attended + convolution + values + (inputs + 1) * width
    feed_forward = 2 * width * feed_forward // groups + feed_forward + width
    projection = 0 if embedding == width else (embedding + 1) * width
    return 12 * (attention + feed_forward + 4 * width) + (30522 + 512 + 2 + 2) * embedding + projection


SMALL, MEDIUM, BASE = (256, 128, 128, 1024), (384, 128, 192, 1536), (768, 768, 384, 3072)
EXPECTED = {
    "small, +BNK": encoder(*SMALL, kind="none"),
    "small, +BNK, +SDConv": encoder(*SMALL),
    "medium-small, +BNK": encoder(*MEDIUM, kind="none"),
    "medium-small, +BNK, +GL": encoder(*MEDIUM, groups=2, kind="none"),
    "medium-small, +BNK, +GL, +Larger": encoder(432, 128, 216, 1728, groups=2, kind="none"),
    "medium-small, +BNK, +GL, +SDConv": encoder(*MEDIUM, groups=2),
    "base, +BNK": encoder(*BASE, kind="none"),
    "base, +BNK, +SDConv": encoder(*BASE),
    "conventional": encoder(*SMALL, kind="fixed"),
    "dynamic": encoder(*SMALL, kind="dynamic"),
    "span-based dynamic": encoder(*SMALL),
    **{str(window): encoder(*SMALL, window=window) for window in (3, 5, 7, 11, 13, 15)},
}
# As recomputed from the paper by its readers, in millions.
RECOMPUTED = {
    "small, +BNK": 11.9,
    "medium-small, +BNK": 21.8,
    "medium-small, +BNK, +GL": 14.7,
    "medium-small, +BNK, +GL, +Larger": 17.5,
    "base, +BNK": 94.7,
}


def test_every_command_of_the_document_is_found() -> None:
    text = (Path(__file__).parents[1] / "docs" / "ablations_convbert.md").read_text(encoding="utf-8")
    assert [row[0] for row in ROWS] == list(EXPECTED) and len(ROWS) == text.count("`bertzoo models convbert")
    assert {name: round(EXPECTED[name] / 1e6, 1) for name in RECOMPUTED} == RECOMPUTED


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=pytest.mark.slow if index % 3 else ()) for index, row in enumerate(ROWS)],
    ids=lambda row: row[0],
)
def test_it_counts_as_the_document_says(row: tuple[str, ...], capsys: pytest.CaptureFixture) -> None:
    name, command, parameters, printed, _ = row
    assert main([*shlex.split(command), "--json"]) == 0
    (counted,) = json.loads(capsys.readouterr().out)
    assert counted["params_encoder"] == int(parameters.replace(",", "")) == EXPECTED[name]
    # What the paper prints of the shipped model is not said of another that options make of it.
    assert (counted["params_published"] is None) == ("--" in command and name != "span-based dynamic")
    if printed:  # whole millions, of a little more than the encoder
        assert -1 < int(printed) - counted["params_encoder"] / 1e6 < 1.3
