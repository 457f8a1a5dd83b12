# pyright: reportMissingImports=false
"""Examples/s of one training step, ours beside Hugging Face PyTorch's: `python benchmarks/train_step.py --all`.

The same sizes, batch (every token real, `--predictions` masked a row), dropout 0.1, global-norm clip, AdamW, float32,
and the same number of threads. Each side is what its user would run: ours `bertzoo.train`'s compiled step, theirs
Hugging Face's masked language model with its own choice of attention, `loss.backward()` and torch's fused AdamW.
`electra_small` is a whole step of replaced token detection: theirs is two of its classes on one embedding and the
sampling between them. Each side lives
in a process of its own, so that the peak memory is its own; they take turns, step by step, and the ratio is the median
of the rounds' ratios. On a busy machine compare the CPU times of `--threads 1`: what other processes take away does not
count there. Needs torch and transformers: `make .venv-parity/stamp` makes an environment that has them.

`mobilebert_transfer` is a stage of its transfer (lesson.py). --all takes every model, writes its section of
docs/performance.md anew, and fails where less than 1.2 times the speed is reached.

    python benchmarks/train_step.py --all --gpu

is for an NVIDIA GPU: bfloat16 on both sides, theirs under autocast and torch.compile, 256 rows of 128 tokens and 64 of
512, and a section of its own. It wants builds of jax and torch for CUDA; those of `make test-all` are for processors.
"""

import argparse
import dataclasses
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lesson
import machine
import numpy as np
import sides
import train_step_page
from pages import write_section
from sides import Setting, Side, Step, ratio, take_turns
from train_step_page import Row, met
from train_step_peer import CLIP, DECAY, DROPOUT, EPSILON, LEARNING_RATE, LESSON, REPLACED, VOCABULARY, their_step

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
MODELS = ("bert_base", "squeezebert", "mobilebert", LESSON, "convbert_base", "convbert_small", "electra_small")
USUAL = (8, 128, 20)  # rows, tokens of each, masked ones
ON_GPU = ((256, 128, 20), (64, 512, 77))


def random_batch(rows: int, length: int, predictions: int, seed: int) -> dict[str, np.ndarray]:
    """A batch by docs/formats.md without padding."""
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


def our_step(model: str, setting: Setting, shape: tuple[int, int, int]) -> Step:
    """One step of bertzoo -> its loss."""
    sides.keep_to(setting)
    if model == LESSON:
        return lesson.our_step(setting, adamw(), *shape)
    from bertzoo.models import Compute

    return sides.our_step(objective(model, compute=Compute(dtype=setting.dtype)), adamw())


def adamw() -> Any:
    """The settings of the optimiser."""
    from bertzoo.train.optim import AdamW

    return AdamW(learning_rate=LEARNING_RATE, weight_decay=DECAY, clip_norm=CLIP, epsilon=EPSILON)


def objective(model: str, layers: int | None = None, compute: Any = None) -> Any:
    """Of a config's model, with Hugging Face's vocabulary; `layers` instead of its own; float32 without `compute`."""
    from bertzoo.core import config
    from bertzoo.models import Compute
    from bertzoo.objectives import Masked
    from bertzoo.runs.pretrain_config import Pretrain

    recipe = config.load(Pretrain, [model])
    shape = dataclasses.replace(recipe.model, vocab_size=VOCABULARY, dropout=DROPOUT, attention_dropout=DROPOUT)
    if layers is not None:
        shape = dataclasses.replace(shape, layers=layers)
    settings = recipe.objective if model in REPLACED else Masked(sentence="none")
    return settings.build(shape, compute or Compute())


def row_flops(model: str, shape: tuple[int, int, int]) -> float:
    """Model operations of one row's step: of the matrix products, three times those of the forward pass; of a stage of
    a transfer, those that it computes.
    """
    if model == LESSON:
        return lesson.flops(*shape)
    from flax import linen as nn

    from bertzoo.nn.flops import matmul_flops
    from bertzoo.train.state import boxed_shapes

    made, batch = objective(model), random_batch(*shape, seed=0)
    params = nn.meta.unbox(boxed_shapes(made))
    return 3 * matmul_flops(lambda params, batch: made(params, None, batch, None), params, batch) / shape[0]


def their_row_flops(model: str, shape: tuple[int, int, int]) -> float:
    """Those of the other side, whose masked language models have logits at every position."""
    rows, length, predictions = shape
    ours = row_flops(model, shape)
    if model == LESSON:
        return ours
    return ours + (length - predictions) * (row_flops(model, (rows, length, predictions + 1)) - ours)


def compare(model: str, setting: Setting, shape: tuple[int, int, int], rounds: int, warmup: int) -> Row:
    """Take turns."""
    peaks = (sides.of_jax, sides.of_torch) if setting.gpu else (None, None)
    ours, theirs = pair = [
        Side(make, model, setting, shape, peak=peak) for make, peak in zip((our_step, their_step), peaks, strict=True)
    ]
    take_turns(pair, [random_batch(*shape, seed=index) for index in range(warmup + rounds)])
    found = [(side.median(0, warmup), side.rounds[-1][3], side.rounds[-1][2]) for side in pair]
    wall, cpu = (ratio(ours, theirs, column, warmup) for column in (0, 1))
    each = sides.ratios(ours, theirs, 0, warmup)
    gflops = row_flops(model, shape) / 1e9, their_row_flops(model, shape) / 1e9
    return Row(model, shape, found[0], found[1], wall, cpu, (min(each), max(each)), gflops)


def printed(row: Row) -> str:
    """The line of a table in a terminal."""
    rows, length, _ = row.shape
    cells = [f"{row.model:19s}", f"{f'{rows}x{length}':>7s}"]
    for seconds, peak, loss in (row.ours, row.theirs):
        cells += [f"{seconds:8.3f}", f"{rows / seconds:8.2f}", f"{peak:8.0f}", f"{loss:7.2f}"]
    return " ".join([*cells, f"{row.wall:9.2f}", f"{row.cpu:9.2f}"])


def our_product(setting: Setting, rows: int, width: int) -> Step:
    """A product of two large matrices in XLA."""
    sides.keep_to(setting)
    import jax
    import jax.numpy as jnp

    left, right = (jax.random.normal(jax.random.key(0), (size, width), setting.dtype) for size in (rows, width))
    product = jax.jit(jnp.dot)
    return lambda _: float(product(left, right)[0, 0])


def their_product(setting: Setting, rows: int, width: int) -> Step:
    """The same in PyTorch."""
    import torch

    torch.set_num_threads(setting.threads)
    place, kind = torch.device(setting.place), getattr(torch, setting.dtype)
    left, right = (torch.randn(size, width, device=place, dtype=kind) for size in (rows, width))
    return lambda _: float((left @ right)[0, 0])


def fastest(setting: Setting, times: int = 20) -> tuple[float, float]:
    """Operations a second of the fastest of some large products, which is what a machine reaches at the most: XLA's,
    and PyTorch's.
    """
    sizes = (8192, 8192) if setting.gpu else (1024, 3072)
    pair = [Side(make, setting, *sizes) for make in (our_product, their_product)]
    take_turns(pair, range(times))
    ours, theirs = (2 * sizes[0] * sizes[1] ** 2 / min(round[0] for round in side.rounds) for side in pair)
    return ours, theirs


def device(setting: Setting) -> str:
    """What the GPU is called; nothing of a processor."""
    if not setting.gpu:
        return ""
    import torch

    return torch.cuda.get_device_name()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="", help=f"some of {', '.join(MODELS)}; without --all all are printed")
    parser.add_argument("--all", action="store_true", help="every model, and docs/performance.md")
    parser.add_argument("--gpu", action="store_true", help="bfloat16, torch.compile, and the shapes for a GPU")
    parser.add_argument("--keep", type=Path, help="a file of rows: those in it are not measured again")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2, help="rounds not counted, the first of which compiles")
    for name, usual in zip(("batch", "length", "predictions"), USUAL, strict=True):
        parser.add_argument(f"--{name}", type=int, help=f"{usual} where not given; not with --all or --gpu")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    models = options.models.split(",") if options.models else list(MODELS)
    given = [getattr(options, name) for name in ("batch", "length", "predictions")]
    if unknown := set(models) - set(MODELS):
        parser.error(f"unknown models {sorted(unknown)}; there are {', '.join(MODELS)}")
    if options.all and options.models:
        parser.error("--all is all models: leave --models out")
    if (options.all or options.gpu) and given != [None] * 3:
        parser.error("--all and --gpu have shapes of their own: leave --batch, --length and --predictions out")
    os.environ["JAX_PLATFORMS"] = "cpu"  # of this process, which only counts operations
    if options.keep and "+" in machine.commit():  # files differ from it
        parser.error("--keep is of one code: commit what has changed, or leave it out")
    setting = Setting(options.threads, options.gpu)
    if options.gpu and (lacking := without_gpu()):
        parser.error(f"--gpu: {lacking}")
    shape = (given[0] or USUAL[0], given[1] or USUAL[1], given[2] or USUAL[2])
    packages = train_step_page.versions()  # now, as a checkout may change while it is measured
    rows, lost = measure(models, ON_GPU if options.gpu else (shape,), setting, options, packages)
    if options.all:
        given = f"--all{' --gpu' * options.gpu} --rounds={options.rounds}"
        given += f" --warmup={options.warmup}" * (options.warmup != parser.get_default("warmup"))
        write(rows, lost, setting, given, packages)
    elif lost:
        sys.exit("\n".join(lost))


def without_gpu() -> str:
    """What of the two libraries sees no GPU here; empty where both do."""
    import torch

    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no GPU; install a build of it for CUDA"
    asked = [sys.executable, "-c", "import jax; jax.devices()"]
    done = subprocess.run(asked, env=os.environ | {"JAX_PLATFORMS": "cuda"}, capture_output=True, text=True)
    return f"jax sees no GPU ({done.stderr.strip().splitlines()[-1]}); install jax[cuda12]" if done.returncode else ""


def measure(
    models: Sequence[str],
    shapes: Sequence[tuple[int, int, int]],
    setting: Setting,
    options: argparse.Namespace,
    packages: Sequence[str],
) -> tuple[list[Row], list[str]]:
    """The rows, printed and kept one by one, and in words those that could not be measured."""
    print(f"{options.threads} threads, {setting.dtype}")
    print(f"{'':27s} {'ours':^34s} {'Hugging Face PyTorch':^34s} {'theirs / ours':^19s}")
    columns = 2 * [f"{'s/step':>8s}", f"{'ex/s':>8s}", f"{'peak MB':>8s}", f"{'loss':>7s}"]
    print(" ".join([f"{'model':19s} {'rows':>7s}", *columns, f"{'wall':>9s} {'CPU time':>9s}"]))
    under = [*setting, options.rounds, options.warmup, *packages]
    rows, lost = kept(options.keep, under), []
    for model, shape in itertools.product(models, shapes):
        if not any((row.model, row.shape) == (model, shape) for row in rows):
            try:
                rows.append(compare(model, setting, shape, options.rounds, options.warmup))
            except sides.Lost as error:
                lost.append(f"{model}, {shape[0]}x{shape[1]}: {error}")
                continue
            if options.keep:
                told = {"under": under, "rows": [dataclasses.asdict(row) for row in rows]}
                options.keep.write_text(json.dumps(told))
        print(printed(next(row for row in rows if (row.model, row.shape) == (model, shape))), flush=True)
    return rows, lost


def kept(file: Path | None, under: list[int | str]) -> list[Row]:
    """The rows in a file, where there is one: of as many threads and rounds, of a GPU or none, and of the same code."""
    if file is None or not file.exists():
        return []
    found, tuples = json.loads(file.read_text()), ("shape", "ours", "theirs", "spread", "gflops")
    if found["under"] != under:
        sys.exit(
            f"{file} has rows of other threads, rounds, packages or code ({found['under']}, not {under}): give another"
        )
    return [Row(**each | {name: tuple(each[name]) for name in tuples}) for each in found["rows"]]


def write(rows: Sequence[Row], lost: Sequence[str], setting: Setting, given: str, packages: Sequence[str]) -> None:
    """The section of docs/performance.md; fails where a row is missing or not as fast as is aimed at."""
    if not PAGE.exists():
        PAGE.write_text("# Performance\n", encoding="utf-8")
    name, speeds = device(setting), fastest(setting)
    text = train_step_page.page(rows, setting, name, speeds, given, packages)
    write_section(f"{Path(__file__).name}{' --gpu' if setting.gpu else ''}", text, PAGE)
    peak = train_step_page.peak_of(name, speeds)
    slow = [f"{row.model} {row.shape[0]}x{row.shape[1]}" for row in rows if not met(row, peak, setting.gpu)]
    if slow or lost:
        missed = [f"less than is aimed at: {', '.join(slow)}"] * bool(slow)
        sys.exit("\n".join([*missed, *lost]))


if __name__ == "__main__":
    main()
