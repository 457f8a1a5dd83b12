# pyright: reportMissingImports=false
"""Examples/s of one training step, ours beside Hugging Face PyTorch's: `python benchmarks/train_step.py --all`.

The same sizes, batch (every token real, `--predictions` masked a row), dropout 0.1, global-norm clip, AdamW, float32,
and the same number of threads. Each side is what its user would run: ours `bertzoo.train`'s compiled step, theirs
`BertForMaskedLM` with sdpa attention, `loss.backward()` and torch's fused AdamW. `electra_small` is a whole step of
replaced token detection: theirs is two of its classes on one embedding and the sampling between them. Each side lives
in a process of its own, so that the peak memory is its own; they take turns, step by step, and the ratio is the median
of the rounds' ratios. On a busy machine compare the CPU times of `--threads 1`: what other processes take away does not
count there. Needs torch and transformers: `make parity` makes an environment that has them.

`mobilebert_transfer` is a stage of its transfer (lesson.py). --all takes every model, writes its section of
docs/performance.md anew, and fails where a ratio is below 1.2.
"""

import argparse
import dataclasses
import os
import platform
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lesson
import numpy as np
import sides
from pages import write_section
from sides import Side, Step, ratio, take_turns

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
LESSON = "mobilebert_transfer"
MODELS = ("bert_base", "squeezebert", "mobilebert", LESSON, "convbert_base", "convbert_small", "electra_small")
REPLACED = ("electra_small",)  # the others are compared under the masked language model
FASTER = 1.2  # times as fast as theirs, that is aimed at
VOCABULARY, DROPOUT = 30522, 0.1
LEARNING_RATE, DECAY, CLIP, EPSILON = 1e-4, 0.01, 1.0, 1e-6


def random_batch(rows: int, length: int, predictions: int, seed: int) -> dict[str, np.ndarray]:
    """A batch by docs/architecture.md without padding."""
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


def our_step(model: str, threads: int, shape: tuple[int, int, int]) -> Step:
    """One step of bertzoo -> its loss; XLA's thread pool has as many threads as the process has cores."""
    if model == LESSON:
        return lesson.our_step(threads, adamw(), *shape)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    return sides.our_step(objective(model), adamw())


def adamw() -> Any:
    """The settings of the optimiser."""
    from bertzoo.train.optim import AdamW

    return AdamW(learning_rate=LEARNING_RATE, weight_decay=DECAY, clip_norm=CLIP, epsilon=EPSILON)


def objective(model: str, layers: int | None = None) -> Any:
    """Of a config's model, with Hugging Face's vocabulary; `layers` instead of its own."""
    from bertzoo import config
    from bertzoo.models import Compute
    from bertzoo.objectives import Masked
    from bertzoo.recipe import Pretrain

    recipe = config.load(Pretrain, [model])
    shape = dataclasses.replace(recipe.model, vocab_size=VOCABULARY, dropout=DROPOUT, attention_dropout=DROPOUT)
    if layers is not None:
        shape = dataclasses.replace(shape, layers=layers)
    settings = recipe.objective if model in REPLACED else Masked(sentence="none")
    return settings.build(shape, Compute())


def row_flops(model: str, shape: tuple[int, int, int]) -> float:
    """Model operations of one row's step: of the matrix products, three times those of the forward pass; of a stage of
    a transfer, those that it computes.
    """
    if model == LESSON:
        return lesson.flops(*shape)
    from flax import linen as nn

    from bertzoo.flops import matmul_flops
    from bertzoo.train.state import boxed_shapes

    made, batch = objective(model), random_batch(*shape, seed=0)
    params = nn.meta.unbox(boxed_shapes(made))
    return 3 * matmul_flops(lambda params, batch: made(params, None, batch, None), params, batch) / shape[0]


def their_step(model: str, threads: int, shape: tuple[int, int, int]) -> Step:
    """One step of Hugging Face's model under torch -> its loss."""
    import torch

    torch.manual_seed(0)
    step = sides.torch_step(their_network(model), CLIP, threads, lr=LEARNING_RATE, weight_decay=DECAY, eps=EPSILON)

    def run(batch: dict[str, np.ndarray]) -> float:
        if model == LESSON:
            return step(lesson.batch(batch))
        labels = np.full(batch["input_ids"].shape, -100, np.int64)
        np.put_along_axis(labels, batch["masked_positions"].astype(np.int64), batch["masked_ids"], axis=1)
        names = ("input_ids", "token_type_ids", "attention_mask")
        return step({"labels": labels} | {name: batch[name] for name in names})

    return run


def their_network(model: str) -> Any:
    """A Hugging Face module that gives a loss as its masked language models do."""
    import torch
    import transformers

    if model == LESSON:
        return lesson.their_network()
    more = {"hidden_dropout_prob": DROPOUT, "attention_probs_dropout_prob": DROPOUT, "vocab_size": VOCABULARY}
    if model == "bert_base":
        return transformers.BertForMaskedLM(transformers.BertConfig(**more))
    if model == "squeezebert":
        return transformers.SqueezeBertForMaskedLM(transformers.SqueezeBertConfig(**more))
    if model == "mobilebert":
        config = transformers.MobileBertConfig(classifier_activation=False, **more)
        return transformers.MobileBertForMaskedLM(config)
    if model == "convbert_base":
        return transformers.ConvBertForMaskedLM(transformers.ConvBertConfig(embedding_size=768, **more))
    if model == "convbert_small":
        sizes = {"embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
        return transformers.ConvBertForMaskedLM(transformers.ConvBertConfig(**sizes, **more))

    class Electra(torch.nn.Module):
        """The generator and the discriminator of ELECTRA-small on one embedding, with the sampling between them."""

        def __init__(self) -> None:
            super().__init__()
            small: dict[str, Any] = {"embedding_size": 128, "num_hidden_layers": 12, **more}
            self.generator = transformers.ElectraForMaskedLM(
                transformers.ElectraConfig(hidden_size=64, num_attention_heads=1, intermediate_size=256, **small)
            )
            self.discriminator = transformers.ElectraForPreTraining(
                transformers.ElectraConfig(hidden_size=256, num_attention_heads=4, intermediate_size=1024, **small)
            )
            self.generator.electra.embeddings = self.discriminator.electra.embeddings
            self.generator.generator_lm_head.weight = self.discriminator.electra.embeddings.word_embeddings.weight

        def forward(self, input_ids: Any, labels: Any, **rest: Any) -> Any:
            made = self.generator(input_ids, labels=labels, **rest)
            masked = labels >= 0
            with torch.no_grad():
                sampled = torch.distributions.Categorical(logits=made.logits[masked]).sample()
            mixed = input_ids.clone()
            mixed[masked] = sampled
            original = torch.where(masked, labels, input_ids)
            told = self.discriminator(mixed, labels=(mixed != original).long(), **rest)
            return SimpleNamespace(loss=made.loss + 50 * told.loss)

    return Electra()


@dataclasses.dataclass(frozen=True)
class Row:
    """A model: of both sides seconds of a step, the peak in MB and the last loss; how many times theirs takes as long,
    by the clock and by the CPU; GFLOPs of a row.
    """

    model: str
    ours: tuple[float, float, float]
    theirs: tuple[float, float, float]
    wall: float
    cpu: float
    gflops: float


def compare(model: str, options: argparse.Namespace) -> Row:
    """Take turns."""
    shape = options.batch, options.length, options.predictions
    ours, theirs = pair = [Side(make, model, options.threads, shape) for make in (our_step, their_step)]
    take_turns(pair, [random_batch(*shape, seed=index) for index in range(options.warmup + options.rounds)])
    found = [(side.median(0, options.warmup), side.rounds[-1][3], side.rounds[-1][2]) for side in pair]
    ratios = [ratio(ours, theirs, column, options.warmup) for column in (0, 1)]
    return Row(model, found[0], found[1], ratios[0], ratios[1], row_flops(model, shape) / 1e9)


def printed(row: Row, batch: int) -> str:
    """The line of a table in a terminal."""
    cells = [f"{row.model:19s}"]
    for seconds, peak, loss in (row.ours, row.theirs):
        cells += [f"{seconds:8.2f}", f"{batch / seconds:8.2f}", f"{peak:8.0f}", f"{loss:7.2f}"]
    return " ".join([*cells, f"{row.wall:9.2f}", f"{row.cpu:9.2f}"])


def fastest(threads: int) -> float:
    """Operations a second of the fastest of some large float32 products under as many threads in torch, which is what
    this machine reaches at the most.
    """
    import torch

    torch.set_num_threads(threads)
    left, right, found = torch.randn(1024, 3072), torch.randn(3072, 3072), []
    for _ in range(20):
        began = time.perf_counter()
        left @ right
        found.append(time.perf_counter() - began)
    return 2 * 1024 * 3072 * 3072 / min(found)


def page(rows: Sequence[Row], peak: float, options: argparse.Namespace) -> str:
    """Markdown."""
    names = ", ".join(f"{name} {version(name)}" for name in ("jax", "jaxlib", "torch", "transformers"))
    lines = []
    for row in rows:
        speeds = [options.batch / seconds for seconds, _, _ in (row.ours, row.theirs)]
        used = [f"{speed * row.gflops * 1e9 / peak:.2f}" for speed in speeds]
        cells = (
            *(f"{speed:.2f}" for speed in speeds), f"{row.wall:.2f}", f"{row.gflops:.1f}", *used,
            *(f"{mb:,.0f}" for _, mb, _ in (row.ours, row.theirs)), "yes" if row.wall >= FASTER else "NO",
        )  # fmt: skip
        lines.append(f"| {row.model} | {' | '.join(cells)} |")
    table = "\n".join(lines)
    return f"""## A training step on a CPU

`python benchmarks/train_step.py --all`: whole steps of {options.batch} rows of {options.length} tokens, all real,
{options.predictions} of them masked, float32, dropout {DROPOUT}, AdamW, {options.threads} threads, beside Hugging
Face's models in PyTorch with scaled-dot-product attention and fused AdamW; medians of {options.rounds} rounds in turns.
`{LESSON}` is the stage of layer {lesson.LAYER}, without dropout, ours with all layers of teacher and student in
memory, theirs with those that the stage runs; `electra_small` generator, sampling and discriminator. {names};
{platform.machine()}, {os.cpu_count()} cores.

Utilisation is rows a second times the model's operations of a row (three times the products of the forward pass; of the
stage what it computes) over {peak / 1e9:.0f} GFLOP/s, which the largest of a few products reaches here. At least
{FASTER} times theirs is aimed at.

| model | ours, rows/s | theirs | times | GFLOPs a row | ours, utilisation | theirs | ours, peak MB | theirs | met |
|---|---|---|---|---|---|---|---|---|---|
{table}"""


def main() -> None:
    parser = argparse.ArgumentParser(description="One training step, ours beside Hugging Face PyTorch's.")
    parser.add_argument("--models", default="", help=f"some of {', '.join(MODELS)}; without --all all are printed")
    parser.add_argument("--all", action="store_true", help="every model, and docs/performance.md")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2, help="rounds not counted, the first of which compiles")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--predictions", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    models = options.models.split(",") if options.models else list(MODELS)
    if unknown := set(models) - set(MODELS):
        parser.error(f"unknown models {sorted(unknown)}; there are {', '.join(MODELS)}")
    if options.all and options.models:
        parser.error("--all is all models: leave --models out")
    print(
        f"batch {options.batch}x{options.length}, {options.predictions} masked a row, {options.threads} threads, fp32"
    )
    print(f"{'':19s} {'ours':^34s} {'Hugging Face PyTorch':^34s} {'theirs / ours':^19s}")
    columns = 2 * [f"{'s/step':>8s}", f"{'ex/s':>8s}", f"{'peak MB':>8s}", f"{'loss':>7s}"]
    print(" ".join([f"{'model':19s}", *columns, f"{'wall':>9s} {'CPU time':>9s}"]))
    rows = []
    for model in models:
        rows.append(compare(model, options))
        print(printed(rows[-1], options.batch), flush=True)
    if options.all:
        if not PAGE.exists():
            PAGE.write_text("# Performance\n", encoding="utf-8")
        write_section(Path(__file__).name, page(rows, fastest(options.threads), options), PAGE)
        if slow := [row.model for row in rows if row.wall < FASTER]:
            sys.exit(f"less than {FASTER} times as fast: {', '.join(slow)}")


if __name__ == "__main__":
    main()
