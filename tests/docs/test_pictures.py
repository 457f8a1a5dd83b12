"""benchmarks/pictures.py: the committed pictures are what it draws, show the configs' sizes, and are readable."""

import itertools
import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from benchmarks import pictures
from bertzoo.models import ConvBert, MobileBert, SchuBert, SqueezeBert

ROOT = Path(__file__).parents[2]
DRAWINGS = pictures.pictures()
TAG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> str:
    """The words of a picture, a line each."""
    return "\n".join(text.text or "" for text in ElementTree.fromstring(svg).iter(f"{TAG}text"))


def numbers(svg: str) -> set[int]:
    return {int(number) for number in re.findall(r"\d+", texts(svg).replace(",", ""))}


def table(name: str) -> dict:
    return tomllib.loads((ROOT / "configs" / f"{name}.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", DRAWINGS)
def test_the_committed_picture_is_up_to_date(name: str) -> None:
    """`python -m benchmarks pictures` has nothing to write, and no picture lacks its drawing."""
    assert (pictures.OUT / f"{name}.svg").read_text(encoding="utf-8") == DRAWINGS[name]()
    assert {file.stem for file in pictures.OUT.glob("*.svg")} == set(DRAWINGS)


def test_shipped_sizes_are_shown() -> None:
    teacher, convbert, schubert = (table(name)["model"] for name in ("ib_bert_large", "convbert_base", "schubert_88m"))
    transfer, student = table("mobilebert_transfer"), MobileBert()
    assert {teacher["bottleneck_size"], teacher["feed_forward_size"], student.bottleneck_size} <= numbers(
        DRAWINGS["mobilebert"]()
    )
    assert {convbert["hidden_size"], convbert["feed_forward_size"]} <= numbers(DRAWINGS["convbert"]())
    ends = {
        function(schubert[key]) for key in ("feed_forward_sizes", "value_sizes", "heads") for function in (min, max)
    }
    assert {schubert["hidden_size"], *ends} <= numbers(DRAWINGS["schubert"]())
    steps = {transfer["transfer"]["steps"], transfer["distillation"][0]["steps"]}
    assert {*steps, student.layers} <= numbers(DRAWINGS["transfer_stages"]())


def test_another_config_is_another_picture() -> None:
    """No number is in a picture but the config's and what follows from it."""
    narrow = SqueezeBert(hidden_size=640, heads=5, feed_forward_size=1280, query_groups=2, layers=7)
    named = {1, 2, 3}  # FFN1, FFN2, FFN3
    weights = {640 // 2, 640 * 640 // 2, 640 * 640}
    assert numbers(pictures.squeezebert(narrow)) == {7, 640, 5, 128, 1280, 1, 2, 4} | named | weights
    student = MobileBert(bottleneck_size=96, feed_forward_size=480, feed_forwards=2, layers=6, norm="layer_norm")
    picture = pictures.mobilebert(student, student)
    assert numbers(picture) == {6, 512, 96, 4, 24, 480, 2} and "NoNorm" not in picture
    small = ConvBert(kernel_size=5, heads=8, feed_forward_groups=2)
    assert numbers(pictures.convbert(small)) == {12, 256, 4 * 32, 5, 4, 32, 8, 1024, 2}
    uneven = {"feed_forward_sizes": (700, 900), "heads": (3, 4), "key_sizes": (20, 30), "value_sizes": (11, 13)}
    before, places = {768, 3072, 12, 64}, {1, 2}
    sizes = {size for pair in uneven.values() for size in pair}
    assert numbers(pictures.schubert(SchuBert(hidden_size=96, **uneven))) == {96} | sizes | before | places


def extent(text: ElementTree.Element) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of a text, in a font that is wider than most."""
    family = "DejaVu Sans Mono" if "code" in text.attrib["class"] else "DejaVu Sans"
    font = FontProperties(family=family, weight=text.attrib["font-weight"])
    size = float(text.attrib["font-size"])
    width = TextPath((0, 0), text.text or "", size=size, prop=font).get_extents().width if text.text else 0
    x, y = float(text.attrib["x"]), float(text.attrib["y"])
    left = x - width * {"start": 0, "middle": 0.5, "end": 1}[text.attrib["text-anchor"]]
    return left, y - 0.75 * size, left + width, y + 0.2 * size


@pytest.mark.parametrize("name", DRAWINGS)
def test_text_is_readable(name: str) -> None:
    """On a page of 360 pixels no text is small, leaves its box or the picture, or covers another."""
    root = ElementTree.fromstring(DRAWINGS[name]())
    width, height = (float(number) for number in root.attrib["viewBox"].split()[2:])
    assert width == 360
    labels = [text for text in root.iter(f"{TAG}text") if text.text]
    places = {text: extent(text) for text in labels}
    boxes = [
        tuple(float(box.attrib[key]) for key in ("x", "y", "width", "height"))
        for box in root.iter(f"{TAG}rect")
        if "outline" in box.attrib["class"]
    ]
    for text, (left, top, right, bottom) in places.items():
        assert float(text.attrib["font-size"]) >= 11 and 0 <= left < right <= width and 0 <= top < bottom <= height
        x, y = float(text.attrib["x"]), (top + bottom) / 2
        for box_x, box_y, box_width, box_height in boxes:
            if box_x < x < box_x + box_width and box_y < y < box_y + box_height:
                assert box_x <= left and right <= box_x + box_width, text.text
    for (one, a), (two, b) in itertools.combinations(places.items(), 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1], (one.text, two.text)
