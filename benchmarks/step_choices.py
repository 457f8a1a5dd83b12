"""What each choice in the training step is worth: the step as it is beside one in which that choice is another.

    python benchmarks/step_choices.py

SqueezeBERT, 8 rows of 128 tokens, float32, dropout 0.1, AdamW, 2 threads, each pair in turns in processes of their own;
the ratio is the median of the rounds' ratios, and beside it stands what had been predicted before the first
measurement. Writes its section of docs/performance.md anew. Nothing else should run beside it.
"""

import argparse
import dataclasses
import functools
import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import machine
import numpy as np
import sides
import train_step
from pages import write_section
from sides import Setting, Side, Step, ratio, take_turns

MODEL, SHAPE = "squeezebert", (8, 128, 20)
PAGES = "glibc.malloc.hugetlb=1"


class Choice(NamedTuple):
    """What is otherwise, what the step as it is does, how many times the time that was predicted to take, and why; and
    which other step it is compared with, where not with that as it is.
    """

    name: str
    instead: str
    predicted: float
    why: str
    beside: str = ""


CHOICES = (
    Choice("logits of every position", "of the masked ones", 1.46, "62 % more products, and their softmax"),
    Choice("threefry for dropout", "a hash of two rounds", 1.15, "39 M draws a step at ten times the operations"),
    Choice("the hardware's generator (rbg)", "a hash of two rounds", 1.05, "a call that fuses with nothing"),
    Choice("no dropout", "0.1", 0.93, "no draws, no products with them"),
    Choice(
        "grouped convolution", "grouped einsum", 1.6, "benchmarks/grouped.py: 197 against 112 ms for a feed-forward"
    ),
    Choice("LAMB", "AdamW", 1.03, "two norms of each parameter: one more pass over 51 M"),
    Choice("a batch that stays on the device", "one from the host each step", 1.0, "it is 30 kB"),
    Choice("jax.nn.dot_product_attention", "our own, no dropout in either", 1.0, "the same products", "no dropout"),
    Choice("layers computed again (remat)", "kept", 1.3, "one more forward pass of three"),
    Choice("huge pages (GLIBC_TUNABLES)", "ordinary ones", 0.85, "what other models had gained"),
)


def step_of(name: str) -> Step:
    """A training step in which the choice of that name is the other one; the step as it is for no such name."""
    sides.keep_to(Setting(2))
    import jax
    import jax.numpy as jnp

    from bertzoo.models import Compute
    from bertzoo.nn import attention, dropout
    from bertzoo.train import optim
    from bertzoo.train import step as steps

    settings, compute = train_step.adamw(), Compute()
    if name == "threefry for dropout":
        dropout.random_bits = lambda key, shape: jax.random.bits(key, shape)
    elif name == "the hardware's generator (rbg)":

        def drawn(key: Any, shape: tuple[int, ...]) -> Any:
            words = jnp.tile(jax.random.key_data(key).ravel()[:2], 2)
            return jax.random.bits(jax.random.wrap_key_data(words, impl="rbg"), shape)

        dropout.random_bits = drawn
    elif name == "no dropout":
        train_step.DROPOUT = 0.0
    elif name == "grouped convolution":
        compute = Compute(grouped="convolution")
    elif name == "LAMB":
        shared = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
        settings = optim.Lamb(**{key: value for key, value in shared.items() if key != "kind"})
    elif name == "jax.nn.dot_product_attention":

        def attend(q: Any, k: Any, v: Any, mask_BM: Any, given: Any, train: bool) -> tuple[Any, Any]:
            return jax.nn.dot_product_attention(q, k, v, mask=mask_BM[:, None, None, :] > 0), None

        attention.attend, train_step.DROPOUT = attend, 0.0
    elif name == "layers computed again (remat)":
        compute = Compute(remat=True)
    objective = train_step.objective(MODEL, compute=compute)
    if name == "a batch that stays on the device":
        steps.put_batch = functools.cache(lambda batch, mesh, put=steps.put_batch: put(batch.arrays, mesh))
        step = sides.our_step(objective, settings)
        return lambda batch: step(_Same(batch))
    step = sides.our_step(objective, settings)
    return (lambda batch: step(everywhere(batch))) if name == "logits of every position" else step


class _Same:
    """A batch that equals any other."""

    def __init__(self, arrays: Any) -> None:
        self.arrays = arrays

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same)

    def __hash__(self) -> int:
        return 0


def everywhere(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The batch with every token predicted, but the first."""
    rows, length = batch["input_ids"].shape
    positions = np.broadcast_to(np.arange(1, length, dtype=np.int32), (rows, length - 1))
    ids = np.take_along_axis(batch["input_ids"], positions, axis=1)
    return batch | {"masked_positions": positions, "masked_ids": ids, "masked_weights": np.ones_like(ids, np.float32)}


def measured(choice: Choice, rounds: int, warmup: int) -> float:
    """The time of the choice in that of the step as it is."""
    before = os.environ.get("GLIBC_TUNABLES")
    plain = Side(step_of, choice.beside)
    if choice.name.startswith("huge pages"):
        os.environ["GLIBC_TUNABLES"] = PAGES  # for the process that starts next
    other = Side(step_of, choice.name)
    os.environ.pop("GLIBC_TUNABLES", None)
    if before is not None:
        os.environ["GLIBC_TUNABLES"] = before
    pair = [plain, other]
    take_turns(pair, [train_step.random_batch(*SHAPE, seed=seed) for seed in range(warmup + rounds)])
    return ratio(plain, other, 0, warmup)


def page(found: Sequence[tuple[Choice, float]], rounds: int) -> str:
    """Markdown."""
    lines = ["| otherwise | as it is | predicted | measured | why that was predicted |", "|---|---|---|---|---|"]
    for choice, times in found:
        lines.append(f"| {choice.name} | {choice.instead} | {choice.predicted:.2f} | {times:.2f} | {choice.why} |")
    table = "\n".join(lines)
    return f"""## What the choices in a training step are worth

`python benchmarks/step_choices.py --rounds={rounds}`: a step of SqueezeBERT, {SHAPE[0]} rows of {SHAPE[1]} tokens,
float32, dropout 0.1, AdamW, 2 threads, in which one thing is otherwise, in the time of the step as it is; medians of
rounds in turns. The predictions were written down before the first measurement. jax {version("jax")},
{machine.processor()}, {os.cpu_count()} cores.

{table}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warmup", type=int, default=2, help="rounds not counted, the first of which compiles")
    args = parser.parse_args()
    found = []
    for choice in CHOICES:
        found.append((choice, measured(choice, args.rounds, args.warmup)))
        print(f"{choice.name}: {found[-1][1]:.3f}, predicted {choice.predicted:.2f}", flush=True)
    write_section(Path(__file__).name, page(found, args.rounds), train_step.PAGE)


if __name__ == "__main__":
    main()
