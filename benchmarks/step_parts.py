# pyright: reportMissingImports=false
"""Where train_step.py's figures come from: the parts of BERT-base's step, in XLA beside PyTorch.

    python benchmarks/step_parts.py

Each part at the sizes of 8 rows of 128 tokens, float32, forward and backward where both are marked, in processes of
their own that take turns. Its section of docs/performance.md says how long each takes, and how often a step has it.
Needs torch: `make test-all` makes an environment that has it.
"""

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import machine
import numpy as np
import sides
from pages import write_section
from sides import Setting, Side, Step, ratio, take_turns

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
ROWS, LENGTH, HEADS, WIDTH, WIDE = 8, 128, 12, 768, 3072
MASKED, VOCABULARY = 8 * 20, 30522
TOKENS, MAPS, VECTORS = ROWS * LENGTH, (ROWS, HEADS, LENGTH, LENGTH), (ROWS, HEADS, LENGTH, WIDTH // HEADS)


class Part(NamedTuple):
    """A name, the shapes that go in, how often a step of 12 layers has it, and whether it is differentiated."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    times: int
    back: bool


PARTS = (
    Part("x w, of projections", ((TOKENS, WIDTH), (WIDTH, WIDTH)), 48, True),
    Part("logits of the masked tokens", ((MASKED, WIDTH), (WIDTH, VOCABULARY)), 1, True),
    Part("x w, of the feed-forward", ((TOKENS, WIDTH), (WIDTH, WIDE)), 24, False),
    Part("xᵀ g, of its gradient", ((TOKENS, WIDTH), (TOKENS, WIDE)), 24, False),
    Part("g wᵀ, of its gradient", ((TOKENS, WIDE), (WIDTH, WIDE)), 24, False),
    Part("attention's scores", (VECTORS, VECTORS), 12, True),
    Part("attention's values", (MAPS, VECTORS), 12, True),
    Part("softmax", (MAPS,), 12, True),
    Part("GELU", ((TOKENS, WIDE),), 12, True),
    Part("layer norm", ((TOKENS, WIDTH),), 25, True),
)


def arrays(part: Part) -> list[np.ndarray]:
    """What goes in."""
    random = np.random.default_rng(0)
    return [random.normal(size=shape).astype(np.float32) for shape in part.shapes]


def cotangent(shape: tuple[int, ...]) -> np.ndarray:
    """What the backward pass begins with."""
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def functions(library: Any, gelu: Any, softmax: Any, norm: Any) -> list[Callable[..., Any]]:
    """The parts in their order, of a library's arrays."""
    return [
        lambda x, w: x @ w,
        lambda x, w: x @ w,
        lambda x, w: x @ w,
        lambda x, g: x.T @ g,
        lambda g, w: g @ w.T,
        lambda q, k: library.einsum("bhld,bhmd->bhlm", q, k),
        lambda p, v: library.einsum("bhlm,bhmd->bhld", p, v),
        softmax,
        gelu,
        norm,
    ]


def ours(part: Part) -> Callable[[], Sequence[Any]]:
    """The part in XLA: () -> its output, or its gradients."""
    import jax
    import jax.numpy as jnp

    from bertzoo.models.compute import ACTIVATIONS
    from bertzoo.nn import LayerNorm

    norm = LayerNorm(epsilon=1e-12, axis="embed", dtype=jnp.dtype("float32"))
    params = {"params": {"scale": jnp.ones(WIDTH), "bias": jnp.zeros(WIDTH)}}
    made = functions(jnp, ACTIVATIONS["gelu"], jax.nn.softmax, lambda x: norm.apply(params, x))
    function, given = made[PARTS.index(part)], tuple(map(jnp.asarray, arrays(part)))
    pulled = jnp.asarray(cotangent(jax.eval_shape(function, *given).shape))

    def both(pulled: jax.Array, *given: Any) -> Sequence[Any]:
        if not part.back:
            return [function(*given)]
        out, pull = jax.vjp(function, *given)
        return [out, *pull(pulled)]

    compiled = jax.jit(both)
    return lambda: jax.block_until_ready(compiled(pulled, *given))


def theirs(part: Part) -> Callable[[], Sequence[Any]]:
    """The same in PyTorch."""
    import torch
    from torch.nn import functional

    scale, bias = torch.ones(WIDTH), torch.zeros(WIDTH)
    made = functions(
        torch,
        functional.gelu,
        lambda x: torch.softmax(x, -1),
        lambda x: functional.layer_norm(x, (WIDTH,), scale, bias, 1e-12),
    )
    function, given = made[PARTS.index(part)], [torch.from_numpy(each) for each in arrays(part)]
    pulled = torch.from_numpy(cotangent(tuple(function(*given).shape)))

    def run() -> Sequence[Any]:
        if not part.back:
            with torch.no_grad():
                return [function(*given)]
        leaves = [each.detach().requires_grad_() for each in given]
        out = function(*leaves)
        return [out.detach(), *torch.autograd.grad(out, leaves, pulled)]

    return run


def our_part(index: int, setting: Setting) -> Step:
    """In a process of its own."""
    sides.keep_to(setting)
    run = ours(PARTS[index])
    return lambda _: float(run()[0].shape[0])


def their_part(index: int, setting: Setting) -> Step:
    """In a process of its own."""
    import torch

    torch.set_num_threads(setting.threads)
    run = theirs(PARTS[index])
    return lambda _: float(run()[0].shape[0])


def page(found: Sequence[tuple[Part, float, float, float]], rounds: int) -> str:
    """Markdown, of each part the seconds of either side and the ratio."""
    head = ["part", "times a step", "XLA, ms", "PyTorch, ms", "PyTorch / XLA", "XLA, s a step", "PyTorch"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for part, mine, other, times in found:
        name = f"{part.name}, forward and backward" if part.back else part.name
        cells = f"{part.times} | {1e3 * mine:.2f} | {1e3 * other:.2f} | {times:.2f}"
        lines.append(f"| {name} | {cells} | {part.times * mine:.2f} | {part.times * other:.2f} |")
    table = "\n".join(lines)
    return f"""## The parts of BERT-base's step

`python benchmarks/step_parts.py --rounds={rounds}`: {ROWS} rows of {LENGTH} tokens, float32, medians of rounds in
turns, of PyTorch / XLA that of the rounds' ratios. {machine.processor()}, {os.cpu_count()} cores.

{table}"""


def main(words: Sequence[str] | None = None) -> None:
    """Measure and write the section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args(words)
    found = []
    for index, part in enumerate(PARTS):
        pair = [Side(make, index, Setting(args.threads)) for make in (our_part, their_part)]
        take_turns(pair, range(args.rounds + 3))
        mine, other = (side.median(0, 3) for side in pair)
        found.append((part, mine, other, ratio(pair[0], pair[1], 0, 3)))
        print(f"{part.name}: {1e3 * mine:.2f} and {1e3 * other:.2f} ms", flush=True)
    write_section(Path(__file__).name, page(found, args.rounds), PAGE)


if __name__ == "__main__":
    main()
