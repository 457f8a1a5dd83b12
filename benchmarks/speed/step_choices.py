"""What each choice in the training step is worth: the step as it is beside one in which that choice differs.

    python -m benchmarks speed.step_choices [--cpu] [--choices=NAME,…]

SqueezeBERT, or BERT-base with --cpu, 8 rows of 128 tokens, dropout 0.1, AdamW, two cores if there are two. Each pair
takes turns in processes of their own. The ratio is the median of the rounds' ratios, beside what was predicted before
the first measurement. Nothing else should run at the same time; the ratio of CPU times suffers less if something does.
"""

import dataclasses
import os
import sys
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from benchmarks.lib import processes, results
from benchmarks.lib.processes import Format, Setting, Step, StepProcess, take_turns
from benchmarks.speed import train_step
from bertzoo.core.memory import KEEP_VARIABLE

SHAPE = (8, 128, 20)
RETURNS, ALL_TOKENS = "freed memory returns to the system", "all tokens in the last layer"
ENVIRONMENTS = {  # variables of choices
    "huge pages (GLIBC_TUNABLES)": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
    RETURNS: {KEEP_VARIABLE: "0"},
}


class Choice(NamedTuple):
    """name: what differs; usual: what the step does; predicted: its time as a multiple of the usual step's, and why;
    base: the choice that it is compared with, if not the usual step; dtype: the format of both steps.
    """

    name: str
    usual: str
    predicted: float
    why: str
    base: str = ""
    dtype: Format = "float32"


CHOICES = (
    Choice("logits of every token", "of the masked ones", 1.46, "62 % more products, and their softmax", ALL_TOKENS),
    Choice("threefry for dropout", "a hash of two rounds", 1.15, "39 M draws a step at ten times the operations"),
    Choice("the hardware's generator (rbg)", "a hash of two rounds", 1.05, "a call that fuses with nothing"),
    Choice("no dropout", "0.1", 0.93, "no draws, no products with them"),
    Choice("grouped convolution", "grouped einsum", 1.6, "a feed-forward takes 197 ms against 112"),
    Choice("grouped convolution", "grouped einsum", 1.3, "as float32's measured 1.31", dtype="bfloat16"),
    Choice("LAMB", "AdamW", 1.03, "two norms of each parameter: one more pass over 51 M"),
    Choice("a batch that stays on the device", "one from the host each step", 1.0, "it is 30 kB"),
    Choice("jax.nn.dot_product_attention", "our own, no dropout in either", 1.0, "the same products", "no dropout"),
    Choice("layers computed again (remat)", "kept", 1.3, "one more forward pass of three"),
    Choice("huge pages (GLIBC_TUNABLES)", "ordinary ones", 0.85, "what other models had gained", RETURNS),
)
ON_CPU = (  # choices of BERT-base's step that matter on CPUs
    Choice(RETURNS, "it stays", 1.1, "88,000 new pages for three layers"),
    Choice(ALL_TOKENS, "those that heads read", 1.06, "5.6 % of the products"),
    Choice("optax's clipping", "one factor", 1.02, "one more pass over the gradients, of five"),
    Choice("biases' gradients as sums", "as products with ones", 1.08, "75 of 1,006 ms", dtype="bfloat16"),
)


def step_of(name: str, model: str, dtype: Format) -> Step:
    """A model's training step with the named choice; for an empty name the step as it is."""
    processes.limit_jax(Setting(2))
    import jax
    import jax.numpy as jnp
    import optax

    from bertzoo.models import Compute, parts
    from bertzoo.nn import attention, dense, dropout
    from bertzoo.train import optim
    from bertzoo.train import step as steps

    settings, compute = train_step.adamw(), Compute(dtype=dtype)
    if name == "threefry for dropout":
        dropout.random_bits = lambda key, shape: jax.random.bits(key, shape)
    elif name == "the hardware's generator (rbg)":

        def hardware_bits(key: Any, shape: tuple[int, ...]) -> Any:
            words = jnp.tile(jax.random.key_data(key).ravel()[:2], 2)
            return jax.random.bits(jax.random.wrap_key_data(words, impl="rbg"), shape)

        dropout.random_bits = hardware_bits
    elif name == "no dropout":
        train_step.DROPOUT = 0.0
    elif name == "grouped convolution":
        compute = dataclasses.replace(compute, grouped="convolution")
    elif name == "LAMB":
        shared = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
        settings = optim.Lamb(**{key: value for key, value in shared.items() if key != "kind"})
    elif name == "jax.nn.dot_product_attention":

        def attend(q: Any, k: Any, v: Any, mask_BM: Any, rng: Any, train: bool) -> tuple[Any, Any]:
            return jax.nn.dot_product_attention(q, k, v, mask=mask_BM[:, None, None, :] > 0), None

        attention.attend, train_step.DROPOUT = attend, 0.0
    elif name == "layers computed again (remat)":
        compute = dataclasses.replace(compute, remat=True)
    elif name == ALL_TOKENS:
        parts.tokens_read = lambda masked_BP, length: None
    elif name == "optax's clipping":
        optim.clip_by_global_norm = optax.clip_by_global_norm
    elif name == "biases' gradients as sums":
        dense.add_bias = lambda x, bias: x + bias.astype(x.dtype)
    objective = train_step.objective(model, compute=compute)
    if name == "a batch that stays on the device":
        kept = []

        def put_once(batch: Any, mesh: Any, put: Any = steps.put_batch) -> Any:
            kept.extend([] if kept else [put(batch, mesh)])
            return kept[0]

        steps.put_batch = put_once
    step = processes.our_step(objective, settings)
    return (lambda batch: step(everywhere(batch))) if name == "logits of every token" else step


def everywhere(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The batch with every token predicted except the first."""
    rows, length = batch["input_ids"].shape
    positions = np.broadcast_to(np.arange(1, length, dtype=np.int32), (rows, length - 1))
    ids = np.take_along_axis(batch["input_ids"], positions, axis=1)
    return batch | {"masked_positions": positions, "masked_ids": ids, "masked_weights": np.ones_like(ids, np.float32)}


def measure(choice: Choice, model: str, rounds: int, warmup: int) -> tuple[dict[str, float], dict[str, float]]:
    """The choice's wall and CPU time divided by the usual step's: median, least and greatest of the rounds' ratios."""

    def start(name: str) -> StepProcess:
        with mock.patch.dict(os.environ, ENVIRONMENTS.get(name, {})):
            return StepProcess(step_of, name, model, choice.dtype)

    usual, changed = start(choice.base), start(choice.name)
    take_turns([usual, changed], [train_step.random_batch(*SHAPE, seed=seed) for seed in range(warmup + rounds)])
    return processes.ratio(usual, changed, warmup), processes.ratio(usual, changed, warmup, processes.CPU)


def main() -> None:
    """Measure every choice and write the result."""
    on_cpu = "--cpu" in sys.argv
    parser = results.parser("step_choices_cpu" if on_cpu else "step_choices", __doc__)
    results.add_numbers(parser, rounds=7, warmup=2)
    parser.add_argument("--cpu", action="store_true", help="BERT-base, and choices that matter on CPUs")
    parser.add_argument("--choices", default="", help="names of choices, joined by commas (default: all)")
    args = parser.parse_args()
    rows, model = [], "bert_base" if on_cpu else "squeezebert"
    for choice in ON_CPU if on_cpu else CHOICES:
        if args.choices and choice.name not in args.choices.split(","):
            continue
        ratio, cpu = measure(choice, model, args.rounds, args.warmup)
        print(f"{choice.name}: {ratio['median']:.2f}, predicted {choice.predicted:.2f}", flush=True)
        row = {"changed": choice.name, "usual": choice.usual, "format": choice.dtype, "predicted": choice.predicted}
        rows.append(row | {"measured": ratio, "measured, CPU time": cpu, "why predicted": choice.why})
    results.write(args.out, [results.packages("jax"), f"commit {results.commit()}"], {"choices": rows})
