"""TPU chips that a run can be planned for, their existing slices, and the names of slices.

Sources: memory bandwidth is from the pages v3, v4, v5e, v5p, v6e and tpu7x of
https://docs.cloud.google.com/tpu/docs/. Devices of a chip and the matrix unit are from
https://docs.jax.dev/en/latest/pallas/tpu/hardware.html. Memory is what libtpu 0.0.42.1 reports as available when a
program does not fit, a little less than the pages' 32, 32, 16, 95, 32 and 192 GB. Interconnect bandwidth is the sum of
all links in one direction. The pages of v4, v5e and v5p print this sum: 2,400, 1,600 and 4,800 Gb/s. For v6e and
TPU7x, it is half of the pages' "bidirectional" value. v3 has 4 links of 656 Gb/s (Jouppi et al. 2020, "A
Domain-Specific Supercomputer for Training Deep Neural Networks"). Slices are from the pages and the list of
https://github.com/AI-Hypercomputer/xpk. The bandwidth between slices is that of a pod's data-centre network over its
chips: 6.4 and 25.6 Tb/s over 256 chips of v5e and v6e; the other pages print none.
"""

import itertools
import math
import re
from dataclasses import dataclass, replace

from bertzoo.core.errors import ConfigError
from bertzoo.train.progress import peak_flops

GIB = 1 << 30
CUBE = 4  # edge in chips: larger 3D slices consist of cubes of 4x4x4


@dataclass(frozen=True)
class Chip:
    """A kind of TPU; values are for a whole chip.

    kind: JAX's name of a device.
    devices: number of JAX devices per chip (its cores, or 1 if both cores act as one).
    hbm: GiB of memory that programs may use, summed over the chip's devices.
    hbm_bandwidth, ici_bandwidth: bytes per second of the memory and of the interconnect.
    dcn_bandwidth: bytes per second of the network between slices; infinite if unknown.
    mxu: rows of the matrix unit, which is square.
    largest: chips in the largest slice.
    slices: shapes of all slices; if slices are 3D, only of those smaller than 4x4x4.
    configuration: libtpu's chip_config_name.
    """

    name: str
    kind: str
    devices: int
    hbm: float
    hbm_bandwidth: float
    ici_bandwidth: float
    mxu: int
    largest: int
    slices: tuple[str, ...]
    configuration: str = "default"
    dcn_bandwidth: float = math.inf

    @property
    def capacity(self) -> int:
        """Bytes of one device's memory that a program may use."""
        return int(self.hbm / self.devices * GIB)

    @property
    def flops(self) -> float:
        """Peak bfloat16 operations per second."""
        return self.devices * (peak_flops(self.kind) or 0.0)


_SQUARES = ("4x4", "4x8", "8x8", "8x16", "16x16")
_FLAT = ("1x1", "2x2", "2x4", *_SQUARES)
_SMALL_3D = ("2x2x1", "2x2x2", "2x2x4", "2x4x4")

# fmt: off
_CHIPS = (
    #   name   kind          devices  hbm  hbm_bandwidth  ici  mxu  largest  slices
    Chip("v3",    "TPU v3",      2, 2 * 15.48,  900e9, 328e9, 128, 1024, ("2x2", *_SQUARES, "16x32", "32x32")),
    Chip("v4",    "TPU v4",      1,     30.75, 1200e9, 300e9, 128, 4096, _SMALL_3D, "megacore"),
    Chip("v5e",   "TPU v5 lite", 1,     15.75,  819e9, 200e9, 128,  256, _FLAT, dcn_bandwidth=3.125e9),
    Chip("v5p",   "TPU v5",      1,     95.74, 2765e9, 600e9, 128, 6144, _SMALL_3D, "megacore"),
    Chip("v6e",   "TPU v6 lite", 1,     31.25, 1638e9, 400e9, 256,  256, _FLAT, dcn_bandwidth=12.5e9),
    Chip("tpu7x", "TPU7x",       2, 2 * 94.75, 7380e9, 600e9, 256, 9216, ("1x1x1", *_SMALL_3D)),
)
# fmt: on
CHIPS = {chip.name: chip for chip in _CHIPS}


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Equal slices of one kind of chip; `shape`: chips along each axis of a slice's torus."""

    chip: Chip
    shape: tuple[int, ...]
    slices: int = 1

    @property
    def name(self) -> str:
        """The name for --topology, such as v5e:16x16, or 2xv5e:16x16 for two slices."""
        return f"{f'{self.slices}x' if self.slices > 1 else ''}{self.slice_name}"

    @property
    def slice_name(self) -> str:
        """One slice's name for the compiler, such as v5e:16x16."""
        return f"{self.chip.name}:{'x'.join(map(str, self.shape))}"

    @property
    def chips(self) -> int:
        return self.slices * math.prod(self.shape)

    @property
    def devices(self) -> int:
        """Number of JAX devices."""
        return self.chips * self.chip.devices


def parse_topology(text: str) -> Topology:
    """Return the slice named by a text such as v5e:16x16 or by an accelerator type such as v5litepod-16 or tpu7x-128.

    A number in front, as in 2xv5e:16x16, stands for several slices. Raises ConfigError, which lists the existing
    slices, for any other text.
    """
    if several := re.fullmatch(r"([1-9]\d{0,3})x((?:v|tpu).*)", text):
        single = parse_topology(several[2])
        if math.isinf(single.chip.dcn_bandwidth):
            names = ", ".join(chip.name for chip in _CHIPS if math.isfinite(chip.dcn_bandwidth))
            raise ConfigError(
                f"--topology={text}: bertzoo knows the bandwidth between slices of {names} only. Plan one slice of "
                f"{single.chip.name}, as in --topology={single.name}."
            )
        return replace(single, slices=int(several[1]))
    accelerator = re.fullmatch(r"((?:v|tpu)\w+)-(\d{1,5})", text)
    kind, _, shape = text.partition(":") if accelerator is None else (accelerator[1].replace("litepod", "e"), "", "")
    if (chip := CHIPS.get(kind)) is None:
        raise ConfigError(
            f"--topology={text}: bertzoo has no data on {kind or 'a TPU without a name'}, only on {', '.join(CHIPS)}. "
            "Name one of these with a slice's shape, as in --topology=v5e:16x16, or as an accelerator type such as "
            "v5litepod-256."
        )
    if accelerator is not None:
        return Topology(chip=chip, shape=_accelerator_shape(chip, text, int(accelerator[2])))
    sizes = tuple(map(int, shape.split("x"))) if re.fullmatch(r"\d{1,4}(x\d{1,4})*", shape) else ()
    in_cubes = _is_3d(chip) and len(sizes) == 3 and all(size and size % CUBE == 0 for size in sizes)
    rising = sorted(sizes) == list(sizes) and math.prod(sizes) <= chip.largest
    if shape not in chip.slices and not (in_cubes and rising):
        raise ConfigError(
            f"--topology={text} is no slice of {kind}. Use --topology={kind}:SHAPE with one of {describe_slices(chip)}."
        )
    return Topology(chip=chip, shape=sizes)


def _accelerator_shape(chip: Chip, text: str, number: int) -> tuple[int, ...]:
    """Return the shape of an accelerator type such as v5litepod-16 (`text`), with 16 as `number`.

    The number counts chips for v5e and v6e, and TensorCores, two per chip, for all others. If several shapes have this
    many chips, returns the most cubic one, which is Cloud TPU's default.
    """
    cores = 1 if chip.name in ("v5e", "v6e") else 2
    chips, rest = divmod(number, cores)
    shapes = [tuple(map(int, shape.split("x"))) for shape in chip.slices]
    if _is_3d(chip) and chips <= chip.largest:
        shapes += itertools.combinations_with_replacement(range(CUBE, chips // CUBE**2 + 1, CUBE), 3)
    fitting = [shape for shape in shapes if math.prod(shape) == chips and not rest]
    if not fitting:
        unit = "chips" if cores == 1 else "TensorCores (two a chip)"
        raise ConfigError(
            f"--topology={text} stands for {number} {unit}, and no slice of {chip.name} has that many. Use "
            f"--topology={chip.name}:SHAPE with one of the shapes {describe_slices(chip)}."
        )
    return min(fitting, key=sum)


def describe_slices(chip: Chip) -> str:
    cubes = (
        f" and every AxBxC of multiples of {CUBE} in rising order with at most {chip.largest} chips, such as 4x4x4, "
        "4x4x8 and 8x8x8"
    )
    return ", ".join(chip.slices) + (cubes if _is_3d(chip) else "")


def _is_3d(chip: Chip) -> bool:
    return chip.slices[-1].count("x") == 2
