"""benchmarks/pictures.py: the committed pictures are what it draws, show the configs' sizes, and are readable."""

import re
from xml.etree import ElementTree

import pytest

from benchmarks import pictures
from bertzoo.models import ConvBert, MobileBert, SchuBert, SqueezeBert

DRAWINGS = pictures.pictures()
TAG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> str:
    """The words of a picture, a line each."""
    return "\n".join(text.text or "" for text in ElementTree.fromstring(svg).iter(f"{TAG}text"))


def numbers(svg: str) -> set[int]:
    return {int(number) for number in re.findall(r"\d+", texts(svg).replace(",", ""))}


@pytest.mark.parametrize("name", DRAWINGS)
def test_the_committed_picture_is_up_to_date(name: str) -> None:
    """`python -m benchmarks pictures` has nothing to write, and no picture lacks its drawing."""
    assert (pictures.OUT / f"{name}.svg").read_text(encoding="utf-8") == DRAWINGS[name]()
    assert {file.stem for file in pictures.OUT.glob("*.svg")} == set(DRAWINGS)


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
