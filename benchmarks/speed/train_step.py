# pyright: reportMissingImports=false
"""Training steps beside Hugging Face's models in PyTorch: rows a second, memory and utilisation.

    python -m benchmarks speed.train_step [--models=bert_base,squeezebert] [--dtype=float32,bfloat16]

Both sides have the same sizes, batch (every token real, `--predictions` masked in a row), dropout 0.1, clipping by the
global norm, AdamW and number of threads. Ours is the compiled step of `bertzoo.train`; theirs is Hugging Face's masked
language model with its own choice of attention, `loss.backward()` and torch's fused AdamW. `electra_small` is a whole
step of replaced token detection: theirs is two of its classes on one embedding and the sampling between them.
`mobilebert_transfer` is a stage of its transfer (transfer_stage.py). In bfloat16 theirs runs under autocast. Each side
in each format has a process of its own; they take turns, step by step, and a ratio is the median of the rounds'. On a
busy machine compare the CPU times of --threads=1.

Fails if a model is less than 1.2 times as fast in float32, or 1.5 times in bfloat16; or if BERT-base in bfloat16 is
less than 2.5 times as fast as in float32 on a CPU with AMX. Needs torch and transformers: `make .venv-parity/stamp`
installs them.
"""

import argparse
import dataclasses
import functools
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

import numpy as np

from benchmarks.lib import processes, results
from benchmarks.lib.processes import CPU, PEAK, WALL, Format, Setting, Step, StepProcess, take_turns
from benchmarks.speed import huggingface, transfer_stage
from benchmarks.speed.huggingface import DROPOUT, REPLACED, TRANSFER, VOCABULARY, their_step
from bertzoo.core.machine import processor

MODELS = ("bert_base", "squeezebert", "mobilebert", TRANSFER, "convbert_base", "convbert_small", "electra_small")
SHAPE = "8x128x20"  # rows, tokens of a row, masked tokens of a row
FASTER = {"float32": 1.2, "bfloat16": 1.5}  # targets: their time divided by ours
GAIN = {"bert_base": 2.5}  # target with AMX: our time in float32 divided by that in bfloat16
SIDES = ("ours", "theirs")
Shape = tuple[int, int, int]


def random_batch(rows: int, length: int, predictions: int, seed: int) -> dict[str, np.ndarray]:
    """A batch as `pipeline.array_shapes` describes it, without padding."""
    random = np.random.default_rng(seed)
    positions = [np.sort(random.choice(np.arange(1, length), predictions, replace=False)) for _ in range(rows)]
    return {
        "input_ids": random.integers(1, VOCABULARY, (rows, length), np.int32),
        "token_type_ids": np.repeat((np.arange(length) > length // 2)[None].astype(np.int32), rows, 0),
        "attention_mask": np.ones((rows, length), np.int32),
        "masked_positions": np.stack(positions).astype(np.int32),
        "masked_ids": random.integers(1, VOCABULARY, (rows, predictions), np.int32),
        "masked_weights": np.ones((rows, predictions), np.float32),
        "row_weight": np.ones(rows, np.float32),
    }


def our_step(model: str, setting: Setting, shape: Shape) -> Step:
    """A training step of bertzoo."""
    processes.limit_jax(setting)
    if model == TRANSFER:
        return transfer_stage.our_step(setting, adamw(), *shape)
    return processes.our_step(objective(model, setting.dtype), adamw())


def adamw() -> Any:
    """The optimiser's settings on our side."""
    from bertzoo.train.optim import AdamW

    settings = {"learning_rate": huggingface.LEARNING_RATE, "weight_decay": huggingface.DECAY}
    return AdamW(**settings, clip_norm=huggingface.CLIP, epsilon=huggingface.EPSILON)


def objective(model: str, dtype: Format = "float32") -> Any:
    """The objective of a shipped config with Hugging Face's vocabulary."""
    from bertzoo.core import config
    from bertzoo.models import Compute
    from bertzoo.objectives import Masked
    from bertzoo.runs.configs import Pretrain

    recipe = config.load(Pretrain, [model])
    shape = dataclasses.replace(recipe.model, vocab_size=VOCABULARY, dropout=DROPOUT, attention_dropout=DROPOUT)
    settings = recipe.objective if model in REPLACED else Masked(sentence="none")
    return settings.build(shape, Compute(dtype=dtype))


def row_flops(model: str, shape: Shape) -> float:
    """Operations of a row's step: three times the matrix products of the forward pass, or what a transfer computes."""
    if model == TRANSFER:
        return transfer_stage.flops(*shape)
    from flax import linen as nn

    from bertzoo.nn.flops import matmul_flops
    from bertzoo.train.state import boxed_shapes

    built, batch = objective(model), random_batch(*shape, seed=0)
    params = nn.meta.unbox(boxed_shapes(built))
    return 3 * matmul_flops(lambda params, batch: built(params, None, batch, None), params, batch) / shape[0]


def their_row_flops(model: str, shape: Shape) -> float:
    """The other side's operations of a row: its last layer and its logits are of every position."""
    rows, length, _ = shape
    if model == TRANSFER:
        return row_flops(model, shape)
    # A batch cannot mask the first token, so add the operations of one more.
    most, fewer = (row_flops(model, (rows, length, length - unmasked)) for unmasked in (1, 2))
    return most + (most - fewer)


class Comparison:
    """A model in some formats on both sides, as processes that take turns."""

    def __init__(self, model: str, shape: Shape, settings: Sequence[Setting], warmup: int) -> None:
        """Start the processes; the first `warmup` rounds do not count."""
        self.model, self.shape, self.settings, self.warmup = model, shape, settings, warmup
        makes = {"ours": our_step, "theirs": their_step}
        self.sides = {
            (setting.dtype, side): StepProcess(make, model, setting, shape)
            for setting in settings
            for side, make in makes.items()
        }

    def rows(self, rounds: int, peaks: Mapping[str, float]) -> list[dict[str, Any]]:
        """Time the model; one row for each format. peaks: by format the operations a second that utilisation is of."""
        batches = [random_batch(*self.shape, seed=index) for index in range(self.warmup + rounds)]
        take_turns(list(self.sides.values()), batches)
        return [self._row(setting, peaks[setting.dtype]) for setting in self.settings]

    def gain(self) -> dict[str, Any]:
        """Our time in float32 divided by that in bfloat16."""
        times = processes.ratio(self.sides["bfloat16", "ours"], self.sides["float32", "ours"], self.warmup)
        aim = GAIN.get(self.model, 0) if "amx_bf16" in processor().extensions else 0
        batch = f"{self.shape[0]}x{self.shape[1]}"
        row = {"model": self.model, "batch": batch, "bfloat16, times as fast": times, "aim": aim or None}
        return row | {"met": times["median"] >= aim if aim else None}

    def _row(self, setting: Setting, peak: float) -> dict[str, Any]:
        shape, dtype = self.shape, setting.dtype
        ours, theirs = sides = [self.sides[dtype, side] for side in SIDES]
        row: dict[str, Any] = {"model": self.model, "batch": f"{shape[0]}x{shape[1]}", "format": dtype}
        row |= {"times as fast": processes.ratio(ours, theirs, self.warmup)}
        row |= {"by CPU time": processes.ratio(ours, theirs, self.warmup, CPU)}
        speeds = [shape[0] / side.median(WALL, self.warmup) for side in sides]
        flops = [row_flops(self.model, shape), their_row_flops(self.model, shape)]
        used = [speed * each / peak for speed, each in zip(speeds, flops, strict=True)]
        row |= {"rows/s, ours": round(speeds[0], 2), "rows/s, theirs": round(speeds[1], 2)}
        row |= {"GFLOPs a row, ours": round(flops[0] / 1e9, 1), "GFLOPs a row, theirs": round(flops[1] / 1e9, 1)}
        row |= {"utilisation, ours": round(used[0], 2), "utilisation, theirs": round(used[1], 2)}
        row |= {f"peak MiB, {name}": round(side.rounds[-1][PEAK]) for name, side in zip(SIDES, sides, strict=True)}
        return row | {"met": row["times as fast"]["median"] >= FASTER[dtype]}


def our_product(setting: Setting, rows: int, width: int) -> Step:
    """A product of two large matrices in XLA."""
    processes.limit_jax(setting)
    import jax
    import jax.numpy as jnp

    left, right = (jax.random.normal(jax.random.key(0), (size, width), setting.dtype) for size in (rows, width))
    product = jax.jit(functools.partial(jnp.dot, preferred_element_type=jnp.float32))
    return lambda _: float(product(left, right)[0, 0])


def their_product(setting: Setting, rows: int, width: int) -> Step:
    """The same product in PyTorch."""
    import torch

    torch.set_num_threads(setting.threads)
    left, right = (torch.randn(size, width, dtype=getattr(torch, setting.dtype)) for size in (rows, width))
    return lambda _: float((left @ right)[0, 0])


def fastest_product(setting: Setting, times: int = 20) -> tuple[float, float]:
    """Operations a second of the fastest of some large products, in XLA and in PyTorch: what this machine reaches."""
    sizes = (1024, 3072)
    sides = [StepProcess(make, setting, *sizes) for make in (our_product, their_product)]
    take_turns(sides, range(times))
    ours, theirs = (2 * sizes[0] * sizes[1] ** 2 / min(row[WALL] for row in side.rounds) for side in sides)
    return ours, theirs


def main() -> None:
    """Measure every model and write the result."""
    parser = results.parser("train_step", __doc__)
    parser.add_argument("--models", default=",".join(MODELS), help="(default: %(default)s)")
    parser.add_argument("--dtype", default="float32", help="number formats of products (default: %(default)s)")
    parser.add_argument(
        "--shapes", default=SHAPE, help="rows, tokens and masked tokens of the batches (default: %(default)s)"
    )
    results.add_numbers(parser, rounds=5, warmup=2, threads=2)
    args = parser.parse_args()
    models = results.names(parser, "models", args.models, MODELS)
    formats = results.names(parser, "dtype", args.dtype, get_args(Format))
    shapes = [_shape(parser, text) for text in args.shapes.split(",")]
    if args.warmup < 1:
        parser.error("--warmup must be at least 1")
    os.environ["JAX_PLATFORMS"] = "cpu"  # of this process, which only counts operations
    settings = [Setting(args.threads, cast(Format, dtype)) for dtype in formats]
    # Read now, as the checkout may change while it is measured.
    context = [results.packages("jax", "jaxlib", "torch", "transformers"), f"commit {results.commit()}"]
    context.append(f"{args.threads} threads")
    reached, peaks = [], {}
    for setting in settings:
        ours, theirs = fastest_product(setting)
        speeds = {"XLA, GFLOP/s": round(ours / 1e9), "PyTorch, GFLOP/s": round(theirs / 1e9)}
        reached.append({"format": setting.dtype} | speeds)
        peaks[setting.dtype] = max(ours, theirs)
    rows, gains = [], []
    for model, shape in itertools.product(models, shapes):
        comparison = Comparison(model, shape, settings, args.warmup)
        for row in comparison.rows(args.rounds, peaks):
            print(f"{row['model']}, {row['batch']}, {row['format']}: {row['times as fast']} times as fast", flush=True)
            rows.append(row)
        if set(formats) == {"float32", "bfloat16"}:
            gains.append(comparison.gain())
    tables = {"steps": rows} | ({"formats": gains} if gains else {}) | {"products": reached}
    results.write(args.out, context, tables)


def _shape(parser: argparse.ArgumentParser, text: str) -> Shape:
    """Rows, tokens of a row and masked tokens of a row in a text such as 8x128x20."""
    parts = text.split("x")
    if len(parts) != 3 or not all(part.isdecimal() and int(part) for part in parts) or int(parts[2]) >= int(parts[1]):
        parser.error(f"--shapes: {text} is not rows, tokens and fewer masked tokens; write them as {SHAPE}")
    rows, tokens, masked = map(int, parts)
    return rows, tokens, masked
