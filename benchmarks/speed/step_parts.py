# pyright: reportMissingImports=false
"""The parts of BERT-base's training step, in XLA beside PyTorch: where train_step.py's figures come from.

    python -m benchmarks speed.step_parts

Each part has the sizes of 8 rows of 128 tokens in float32, and runs forward and backward where `back` is set. Sides
have processes of their own and take turns. Needs torch: `make .venv-parity/stamp` installs it.
"""

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from benchmarks.lib import processes, results
from benchmarks.lib.processes import WALL, Setting, Step, StepProcess, take_turns

WARMUP = 3  # rounds
ROWS, LENGTH, HEADS, WIDTH, WIDE = 8, 128, 12, 768, 3072
MASKED, VOCABULARY = 8 * 20, 30522
TOKENS, MAPS, VECTORS = ROWS * LENGTH, (ROWS, HEADS, LENGTH, LENGTH), (ROWS, HEADS, LENGTH, WIDTH // HEADS)


class Part(NamedTuple):
    """A part of the step: (operations of a library, inputs of the shapes) -> output; a step of 12 layers runs it
    `times` times, backward too if `back`.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    times: int
    back: bool
    function: Callable[..., Any]


def multiply(_: Any, x: Any, w: Any) -> Any:
    return x @ w


PARTS = (
    Part("x w, of projections", ((TOKENS, WIDTH), (WIDTH, WIDTH)), 48, True, multiply),
    Part("logits of the masked tokens", ((MASKED, WIDTH), (WIDTH, VOCABULARY)), 1, True, multiply),
    Part("x w, of the feed-forward", ((TOKENS, WIDTH), (WIDTH, WIDE)), 24, False, multiply),
    Part("xᵀ g, of its gradient", ((TOKENS, WIDTH), (TOKENS, WIDE)), 24, False, lambda _, x, g: x.T @ g),
    Part("g wᵀ, of its gradient", ((TOKENS, WIDE), (WIDTH, WIDE)), 24, False, lambda _, g, w: g @ w.T),
    Part("attention's scores", (VECTORS, VECTORS), 12, True, lambda op, q, k: op.einsum("bhld,bhmd->bhlm", q, k)),
    Part("attention's values", (MAPS, VECTORS), 12, True, lambda op, p, v: op.einsum("bhlm,bhmd->bhld", p, v)),
    Part("softmax", (MAPS,), 12, True, lambda op, x: op.softmax(x, -1)),
    Part("GELU", ((TOKENS, WIDE),), 12, True, lambda op, x: op.gelu(x)),
    Part("layer norm", ((TOKENS, WIDTH),), 25, True, lambda op, x: op.norm(x)),
)


def arrays(part: Part) -> list[np.ndarray]:
    """The inputs."""
    random = np.random.default_rng(0)
    return [random.normal(size=shape).astype(np.float32) for shape in part.shapes]


def cotangent(shape: tuple[int, ...]) -> np.ndarray:
    """The gradient that the backward pass starts from."""
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def ours(part: Part) -> Callable[[], Sequence[Any]]:
    """The part in XLA: () -> its output, and its gradients if it runs backward."""
    import jax
    import jax.numpy as jnp

    from bertzoo.models.compute import ACTIVATIONS
    from bertzoo.nn import LayerNorm

    norm = LayerNorm(epsilon=1e-12, axis="embed", dtype=jnp.dtype("float32"))
    params = {"params": {"scale": jnp.ones(WIDTH), "bias": jnp.zeros(WIDTH)}}
    operations = {"einsum": jnp.einsum, "softmax": jax.nn.softmax, "norm": functools.partial(norm.apply, params)}
    function = functools.partial(part.function, SimpleNamespace(gelu=ACTIVATIONS["gelu"], **operations))
    inputs = tuple(map(jnp.asarray, arrays(part)))
    gradient = jnp.asarray(cotangent(jax.eval_shape(function, *inputs).shape))

    def both(gradient: jax.Array, *inputs: Any) -> Sequence[Any]:
        if not part.back:
            return [function(*inputs)]
        out, pull = jax.vjp(function, *inputs)
        return [out, *pull(gradient)]

    compiled = jax.jit(both)
    return lambda: jax.block_until_ready(compiled(gradient, *inputs))


def theirs(part: Part) -> Callable[[], Sequence[Any]]:
    """The part in PyTorch: () -> its output, and its gradients if it runs backward."""
    import torch
    from torch.nn import functional

    def norm(x: Any) -> Any:
        return functional.layer_norm(x, (WIDTH,), scale, bias, 1e-12)

    scale, bias = torch.ones(WIDTH), torch.zeros(WIDTH)
    operations = {"einsum": torch.einsum, "softmax": torch.softmax, "gelu": functional.gelu, "norm": norm}
    function = functools.partial(part.function, SimpleNamespace(**operations))
    inputs = [torch.from_numpy(array) for array in arrays(part)]
    gradient = torch.from_numpy(cotangent(tuple(function(*inputs).shape)))

    def run() -> Sequence[Any]:
        if not part.back:
            with torch.no_grad():
                return [function(*inputs)]
        leaves = [array.detach().requires_grad_() for array in inputs]
        out = function(*leaves)
        return [out.detach(), *torch.autograd.grad(out, leaves, gradient)]

    return run


def our_part(index: int, setting: Setting) -> Step:
    """A part in XLA as a step."""
    processes.limit_jax(setting)
    run = ours(PARTS[index])
    return lambda _: float(run()[0].shape[0])


def their_part(index: int, setting: Setting) -> Step:
    """A part in PyTorch as a step."""
    import torch

    torch.set_num_threads(setting.threads)
    run = theirs(PARTS[index])
    return lambda _: float(run()[0].shape[0])


def row(part: Part, xla: float, pytorch: float, ratio: float) -> dict[str, Any]:
    """A part's figures; xla, pytorch: seconds of one run."""
    return {
        "part": part.name + ", forward and backward" * part.back,
        "times a step": part.times,
        "XLA, ms": round(1e3 * xla, 2),
        "PyTorch, ms": round(1e3 * pytorch, 2),
        "PyTorch / XLA": ratio,
        "XLA, s a step": round(part.times * xla, 2),
        "PyTorch, s a step": round(part.times * pytorch, 2),
    }


def main() -> None:
    """Measure every part and write the result."""
    parser = results.parser("step_parts", __doc__)
    results.add_numbers(parser, rounds=15, threads=2)
    args = parser.parse_args()
    rows = []
    for index, part in enumerate(PARTS):
        sides = [StepProcess(make, index, Setting(args.threads)) for make in (our_part, their_part)]
        take_turns(sides, range(args.rounds + WARMUP))
        seconds = [side.median(WALL, WARMUP) for side in sides]
        rows.append(row(part, *seconds, processes.ratio(*sides, WARMUP)["median"]))
        print(f"{part.name}: {1e3 * seconds[0]:.2f} and {1e3 * seconds[1]:.2f} ms", flush=True)
    results.write(args.out, [], {"parts": rows})
