"""parse_topology accepts the slices that exist and lists them in its error for any other."""

import pytest
from messages import mentioning

from bertzoo.core.errors import ConfigError
from bertzoo.planning.chips import CHIPS, parse_topology


@pytest.mark.parametrize(
    ("text", "chips", "devices"),
    [
        ("v3:4x4", 16, 32),
        ("v4:4x4x8", 128, 128),
        ("v5e:1x1", 1, 1),
        ("v5p:8x8x12", 768, 768),
        ("v6e:2x4", 8, 8),
        ("tpu7x:2x2x1", 4, 8),
        ("2xv5e:4x4", 32, 32),
    ],
)
def test_a_slice_has_its_chips_and_devices(text, chips, devices):
    topology = parse_topology(text)
    assert (topology.name, topology.chips, topology.devices) == (text, chips, devices)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("v5e-16", "v5e:4x4"),
        ("v5litepod-16", "v5e:4x4"),
        ("v5litepod-1", "v5e:1x1"),
        ("v3-32", "v3:4x4"),
        ("2xv6e-16", "2xv6e:4x4"),
        ("v4-8", "v4:2x2x1"),
        ("v4-128", "v4:4x4x4"),
        ("v5p-12288", "v5p:16x16x24"),
        ("tpu7x-128", "tpu7x:4x4x4"),
    ],
)
def test_an_accelerator_type_counts_chips_or_tensorcores(text, name):
    assert parse_topology(text) == parse_topology(name)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("2xv4:2x2x1", ("2xv4:2x2x1", "between slices", "v5e, v6e", "--topology=v4:2x2x1")),
        ("v5e-12", ("v5e-12", "chips", "2x4")),
        ("v4-7", ("v4-7", "TensorCores", "2x2x1")),
        ("v5p-99999", ("v5p-99999", "6144")),
        ("v5lite-16", ("v5lite-16", "v5litepod-256")),
        ("v2-8", ("v2-8", "v3, v4, v5e, v5p, v6e, tpu7x", "v5litepod-256")),
        ("v5e:3x3", ("2x2, 2x4, 4x4",)),
        ("v5e:16x32", ("16x16",)),
        ("v5e", ("16x16",)),
        ("v5e:16X16", ("16x16",)),
        ("v4:4x4", ("multiples", " 4")),
        ("v4:4x8x4", ("rising",)),
        ("v4:0x4x4", ("multiples", " 4")),
        ("v4:16x16x20", ("4096 chips",)),
        ("", ("v3, v4, v5e, v5p, v6e, tpu7x",)),
    ],
)
def test_a_slice_that_does_not_exist_raises_with_those_that_do(text, parts):
    with pytest.raises(ConfigError, match=mentioning(*parts)):
        parse_topology(text)


def test_every_listed_slice_parses():
    for chip in CHIPS.values():
        assert all(parse_topology(f"{chip.name}:{shape}").chips <= chip.largest for shape in chip.slices)
        assert 15 < chip.capacity / 2**30 < 100
