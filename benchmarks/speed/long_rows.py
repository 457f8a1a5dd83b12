"""Memory of ModernBERT's layers on long rows, by the compilers' account: a window's blocks beside the full mask.

    .venv-tpu/bin/python -m benchmarks speed.long_rows

Forward and backward pass of one layer of Ettin-17M for one row. XLA compiles it for this machine's CPU in float32, and
libtpu for a v5e that is absent, in bfloat16; nothing runs.
"""

import os
from typing import Any
from unittest import mock

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp

from benchmarks.lib import results
from benchmarks.lib.hbm_traffic import measure_traffic
from bertzoo.core import config as loader
from bertzoo.models import Compute
from bertzoo.nn import modern
from bertzoo.nn.parameter import init_shapes
from bertzoo.nn.platform import Platform, traced_for
from bertzoo.planning import chips, compiled
from bertzoo.runs.configs import Pretrain
from bertzoo.train import sharding

LENGTHS = "1024,2048,4096,8192"
PLAIN = 4096  # most tokens of a full mask for libtpu, which compiles longer ones for many minutes
LAYERS = {"window of 128": 1, "all tokens": 0}


def compile_layer(
    number: int, length: int, dtype: str, platform: Platform, sharding_: Any = None, blocks: bool = False
) -> Any:
    """Return the program of a layer's gradients, compiled for a platform.

    sharding_: of the arguments, on the device to compile for; None: this machine. blocks: split windows into blocks.
    """
    compute = Compute(dtype=dtype)
    model = loader.load(Pretrain, ["ettin_17m"], []).model
    layer = model.backbone(compute).encoder.layers[number]
    x = jax.ShapeDtypeStruct((1, length, model.hidden_size), dtype)
    mask = jax.ShapeDtypeStruct((1, length), jnp.int32)
    params = init_shapes(lambda key, x, mask: layer.init(key, x, mask, False), jax.random.key(0), x, mask)

    def loss(params, x, mask):
        with traced_for(platform):
            return jnp.sum(jnp.square(layer.apply(params, x, mask, False)[0].astype(jnp.float32)))

    with mock.patch.object(modern, "block_size", modern.block_size if blocks else lambda *_: None):
        return jax.jit(jax.grad(loss, argnums=(0, 1)), in_shardings=sharding_).lower(params, x, mask).compile()


def temporaries(program: Any) -> float:
    """Return the MiB that a program holds beside its arguments and results."""
    return round(program.memory_analysis().temp_size_in_bytes / 2**20, 1)


def moved(program: Any) -> float:
    """Return the MB that a TPU program reads and writes in main memory; a kernel's operands and results count once."""
    return round(measure_traffic(program.as_text(), 0).total / 1e6, 1)


def main() -> None:
    """Compile every layer and write the tables."""
    parser = results.parser("long_rows", __doc__)
    parser.add_argument("--lengths", default=LENGTHS, help="(default: %(default)s)")
    args = parser.parse_args()
    os.environ |= compiled.ENVIRONMENT  # before libtpu starts
    devices = compiled.slice_devices(chips.parse_topology("v5e:1x1"))
    mesh = sharding.make_mesh(sharding.Mesh(), devices[:1])
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    cpu, tpu = [], []
    for length in map(int, args.lengths.split(",")):
        for name, number in LAYERS.items():
            key = {"tokens": length, "layer": name}
            full = temporaries(compile_layer(number, length, "float32", Platform("cpu")))
            split = number and temporaries(compile_layer(number, length, "float32", Platform("cpu"), blocks=True))
            cpu.append(key | {"full mask, MiB": full, "blocks, MiB": split or None})
            plain = compile_layer(number, length, "bfloat16", Platform("tpu"), whole) if length <= PLAIN else None
            kernel = compile_layer(number, length, "bfloat16", Platform("tpu", sharding.attention_kernel(mesh)), whole)
            for title, measure in (("held, MiB", temporaries), ("moved, MB", moved)):
                key |= {f"full mask, {title}": plain and measure(plain), f"kernel, {title}": measure(kernel)}
            tpu.append(key)
            print(cpu[-1], tpu[-1], flush=True)
    context = [results.packages("jax", "libtpu"), f"commit {results.commit()}"]
    results.write(args.out, context, {"cpu": cpu, "tpu": tpu})
