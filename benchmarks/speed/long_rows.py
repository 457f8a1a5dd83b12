"""Memory of ModernBERT's layers on long rows, by the compilers' account: a window's blocks beside the full mask.

    .venv-tpu/bin/python -m benchmarks speed.long_rows

Forward and backward pass of one layer of Ettin-17M for one row. XLA compiles it for this machine's CPU in float32, and
libtpu for a device of a v5e that is absent, in bfloat16; nothing runs.
"""

import os
from collections.abc import Callable
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
LAYERS = {"window of 128": 1, "all tokens": 0}


def gradients(number: int, length: int, dtype: str, platform: Platform | None) -> tuple[Callable, tuple]:
    """Return the function of a layer's gradients, traced for a platform, and the shapes of its arguments."""
    compute = Compute(dtype=dtype)
    model = loader.load(Pretrain, ["ettin_17m"], []).model
    layer = model.backbone(compute).encoder.layers[number]
    x = jax.ShapeDtypeStruct((1, length, model.hidden_size), dtype)
    mask = jax.ShapeDtypeStruct((1, length), jnp.int32)
    params = init_shapes(lambda key, x, mask: layer.init(key, x, mask, False), jax.random.key(0), x, mask)

    def loss(params, x, mask):
        with traced_for(platform):
            return jnp.sum(jnp.square(layer.apply(params, x, mask, False)[0].astype(jnp.float32)))

    return jax.grad(loss, argnums=(0, 1)), (params, x, mask)


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
            row = {"tokens": length, "layer": name}
            memory, moved = dict.fromkeys(("plain", "blocks", "kernel"), 0), {}
            for form in ("plain", "blocks") if number else ("plain",):
                blocks = modern.block_size if form == "blocks" else lambda *_: None
                with mock.patch.object(modern, "block_size", blocks):
                    function, shapes = gradients(number, length, "float32", Platform("cpu"))
                    memory[form] = jax.jit(function).lower(*shapes).compile().memory_analysis().temp_size_in_bytes
                print(f"{length} tokens, {name}, {form} on a CPU: {memory[form]:,} bytes", flush=True)
            mib = {form: round(size / 2**20, 1) or None for form, size in memory.items()}
            cpu.append(row | {"full mask, MiB": mib["plain"], "blocks, MiB": mib["blocks"]})
            for form, kernel in (("plain", None), ("kernel", sharding.attention_kernel(mesh))):
                with mock.patch.object(modern, "block_size", lambda *_: None):
                    function, shapes = gradients(number, length, "bfloat16", Platform("tpu", kernel))
                    jitted = jax.jit(function, in_shardings=whole)
                    program = jitted.lower(*shapes).compile()
                memory[form] = program.memory_analysis().temp_size_in_bytes
                print(f"{length} tokens, {name}, {form} on a TPU: {memory[form]:,} bytes", flush=True)
                moved[form] = round(measure_traffic(program.as_text(), 0).total / 1e6)
            tpu.append(
                row
                | {f"{form}, MiB": round(memory[form] / 2**20, 1) for form in ("plain", "kernel")}
                | {f"{form}, HBM MB": moved[form] for form in ("plain", "kernel")}
            )
    context = [results.packages("jax", "libtpu"), f"commit {results.commit()}"]
    results.write(args.out, context, {"cpu": cpu, "tpu": tpu})
