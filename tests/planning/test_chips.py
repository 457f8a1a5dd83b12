"""The slices that exist are taken, others are refused with those that do."""

import pytest
from messages import mentioning

from bertzoo.core.errors import ConfigError
from bertzoo.planning.chips import CHIPS, parse


@pytest.mark.parametrize(
    ("text", "chips", "devices"),
    [
        ("v3:4x4", 16, 32),
        ("v4:4x4x8", 128, 128),
        ("v5e:16x16", 256, 256),
        ("v5e:1x1", 1, 1),
        ("v5p:8x8x12", 768, 768),
        ("v6e:2x4", 8, 8),
        ("tpu7x:4x4x8", 128, 256),
        ("tpu7x:2x2x1", 4, 8),
    ],
)
def test_a_slice_has_its_chips_and_devices(text, chips, devices):
    topology = parse(text)
    assert (topology.name, topology.chips, topology.devices) == (text, chips, devices)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("v5e:3x3", ("2x2, 2x4, 4x4",)),
        ("v5e:16x32", ("16x16",)),
        ("v5e:4x4x4", ("16x16",)),
        ("v5e", ("16x16",)),
        ("v5e:16X16", ("16x16",)),
        ("v4:4x4", ("multiples", " 4")),
        ("v4:4x8x4", ("rising",)),
        ("v4:4x4x6", ("multiples", " 4")),
        ("v4:0x4x4", ("multiples", " 4")),
        ("v4:16x16x20", ("4096 chips",)),
        ("v2:2x2", ("v3, v4, v5e, v5p, v6e, tpu7x",)),
        ("", ("v3, v4, v5e, v5p, v6e, tpu7x",)),
    ],
)
def test_what_does_not_exist_is_refused_with_what_does(text, said):
    with pytest.raises(ConfigError, match=mentioning(*said)):
        parse(text)


def test_every_listed_slice_is_one():
    for chip in CHIPS.values():
        assert all(parse(f"{chip.name}:{shape}").chips <= chip.largest for shape in chip.slices)
        assert 15 < chip.capacity / 2**30 < 100
