"""The TPU chips a plan may be made for, the slices of them that exist, and how a slice is named.

Sources: peak and bandwidth of the memory from the pages v3, v4, v5e, v5p, v6e and tpu7x of
https://docs.cloud.google.com/tpu/docs/; cores that are devices, the matrix unit and the memory beside it from
https://docs.jax.dev/en/latest/pallas/tpu/hardware.html. Memory is what libtpu 0.0.42.1 says is available when a program
does not fit, a little less than the pages' 32, 32, 16, 95, 32 and 192 GB. The interconnect's bandwidth is all links'
together in one direction: 2,400, 1,600 and 4,800 Gb/s on the pages of v4, v5e and v5p, half of the "bidirectional"
figure on those of v6e and TPU7x, 4 links of 656 Gb/s for v3 (Jouppi et al. 2020, "A Domain-Specific Supercomputer for
Training Deep Neural Networks"). Slices: the pages, and the list of https://github.com/AI-Hypercomputer/xpk.
"""

import math
import re
from dataclasses import dataclass

from bertzoo.core.errors import ConfigError

GIB = 1 << 30
CUBE = 4  # larger 3D slices are made of cubes of 4x4x4 chips


@dataclass(frozen=True, kw_only=True)
class Chip:
    """A kind of TPU; figures are a chip's.

    `devices`: what JAX sees of a chip (its cores, or 1 where both work as one); `hbm`: GiB of memory that a program may
    use, of all devices together; `flops`: bfloat16 operations a second; `hbm_bandwidth`, `ici_bandwidth`: bytes a
    second; `mxu`: rows and columns of the matrix unit; `on_chip`: MiB of memory beside a device's cores, where arrays
    live that are soon used.

    What libtpu 0.0.42.1 does for it: `keeps_shares`: what a softmax makes, dropped out and converted, is written out
    for the product that uses it and kept for the backward pass, where for others it is made again; `late_gradients`:
    the products that give gradients of weights come last, so that all gradients are there while activations still are.
    """

    name: str
    devices: int
    hbm: float
    flops: float
    hbm_bandwidth: float
    ici_bandwidth: float
    mxu: int
    on_chip: int
    slices: tuple[str, ...]  # those of fewer chips than a cube, or all of a 2D torus
    largest: int  # chips of the largest slice
    keeps_shares: bool
    late_gradients: bool = False
    configuration: str = "default"  # the compiler's name for how a chip's cores are used

    @property
    def capacity(self) -> int:
        """Bytes that a program may use of one device's memory."""
        return int(self.hbm / self.devices * GIB)


_FLAT = ("4x4", "4x8", "8x8", "8x16", "16x16")
_SOLID = ("2x2x1", "2x2x2", "2x2x4", "2x4x4")

CHIPS = {
    chip.name: chip
    for chip in (
        Chip(
            name="v3",
            devices=2,
            hbm=2 * 15.48,
            flops=123e12,
            hbm_bandwidth=900e9,
            ici_bandwidth=328e9,
            mxu=128,
            on_chip=16,
            slices=("2x2", *_FLAT, "16x32", "32x32"),
            largest=1024,
            keeps_shares=True,
        ),
        Chip(
            name="v4",
            devices=1,
            hbm=30.75,
            flops=275e12,
            hbm_bandwidth=1200e9,
            ici_bandwidth=300e9,
            mxu=128,
            on_chip=32,
            slices=_SOLID,
            largest=4096,
            keeps_shares=True,
            configuration="megacore",
        ),
        Chip(
            name="v5e",
            devices=1,
            hbm=15.75,
            flops=197e12,
            hbm_bandwidth=819e9,
            ici_bandwidth=200e9,
            mxu=128,
            on_chip=128,
            slices=("1x1", "2x2", "2x4", *_FLAT),
            largest=256,
            keeps_shares=False,
        ),
        Chip(
            name="v5p",
            devices=1,
            hbm=95.74,
            flops=459e12,
            hbm_bandwidth=2765e9,
            ici_bandwidth=600e9,
            mxu=128,
            on_chip=128,
            slices=_SOLID,
            largest=6144,
            keeps_shares=True,
            configuration="megacore",
        ),
        Chip(
            name="v6e",
            devices=1,
            hbm=31.25,
            flops=918e12,
            hbm_bandwidth=1638e9,
            ici_bandwidth=400e9,
            mxu=256,
            on_chip=128,
            slices=("1x1", "2x2", "2x4", *_FLAT),
            largest=256,
            keeps_shares=False,
        ),
        Chip(
            name="tpu7x",
            devices=2,
            hbm=2 * 94.75,
            flops=2307e12,
            hbm_bandwidth=7380e9,
            ici_bandwidth=600e9,
            mxu=256,
            on_chip=64,
            slices=("1x1x1", *_SOLID),
            largest=9216,
            keeps_shares=True,
            late_gradients=True,
        ),
    )
}


@dataclass(frozen=True, kw_only=True)
class Topology:
    """A slice of one kind of chip; `shape`: chips along each axis of its torus."""

    chip: Chip
    shape: tuple[int, ...]

    @property
    def name(self) -> str:
        """As the compiler and --topology call it."""
        return f"{self.chip.name}:{'x'.join(map(str, self.shape))}"

    @property
    def chips(self) -> int:
        return math.prod(self.shape)

    @property
    def devices(self) -> int:
        """What JAX sees of the slice."""
        return self.chips * self.chip.devices


def parse(text: str) -> Topology:
    """The slice that a text such as v5e:16x16 names; raises ConfigError listing those there are."""
    kind, _, shape = text.partition(":")
    chip = CHIPS.get(kind)
    if chip is None:
        raise ConfigError(
            f"--topology={text} names no kind of TPU; the kinds are {', '.join(CHIPS)}, as in --topology=v5e:16x16"
        )
    sizes = tuple(map(int, shape.split("x"))) if re.fullmatch(r"\d{1,4}(x\d{1,4})*", shape) else ()
    if shape not in chip.slices and not _cubes(chip, sizes):
        raise ConfigError(f"--topology={text} does not exist: the slices of {kind} are {described(chip)}")
    return Topology(chip=chip, shape=sizes)


def described(chip: Chip) -> str:
    """The slices that there are of a chip, in words."""
    listed = ", ".join(chip.slices)
    if "x" not in chip.slices[-1].partition("x")[2]:
        return listed
    return (
        f"{listed} and every AxBxC of multiples of {CUBE} in rising order with at most {chip.largest} chips, "
        "such as 4x4x4, 4x4x8 and 8x8x8"
    )


def _cubes(chip: Chip, sizes: tuple[int, ...]) -> bool:
    """Whether these are the sizes of a slice of whole cubes."""
    solid = chip.slices[-1].count("x") == 2
    whole = len(sizes) == 3 and all(size and size % CUBE == 0 for size in sizes)
    return solid and whole and sorted(sizes) == list(sizes) and math.prod(sizes) <= chip.largest
