"""A toy that is no BERT: a two-layer perceptron with a norm and dropout, batches a pure function of (stage, row)."""

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bertzoo.train import sharding
from bertzoo.train.checkpoint import Checkpoints
from bertzoo.train.experiment import Experiment, Stage, StageSetup
from bertzoo.train.loop import Job, RunSettings
from bertzoo.train.optim import AdamW

ROWS, WIDTH = 16, 8


class Perceptron(nn.Module):
    rate: float

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        def dense(width: int, axes: tuple[str, str], name: str) -> nn.Dense:
            kernel = nn.with_logical_partitioning(nn.initializers.normal(0.3), axes)
            bias = nn.with_logical_partitioning(nn.initializers.normal(0.3), axes[1:])
            return nn.Dense(width, kernel_init=kernel, bias_init=bias, name=name)

        x = nn.LayerNorm(name="norm")(nn.gelu(dense(2 * WIDTH, ("model", "feed_forward"), "hidden")(x)))
        x = nn.Dropout(self.rate, deterministic=not train)(x)
        return dense(WIDTH, ("feed_forward", "model"), "output")(x)


@dataclasses.dataclass(frozen=True)
class Toy:
    """Two loss terms with denominators of their own: the fit of the rows that count, and the size of the output."""

    dropout: float = 0.1

    @property
    def model(self) -> Perceptron:
        return Perceptron(self.dropout)

    def init(self, key: jax.Array) -> Any:
        return self.model.init(key, jnp.zeros((1, WIDTH)), False)["params"]

    def weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return {"fit": jnp.sum(batch["weight"]), "size": jnp.float32(batch["x"].shape[0])}

    def __call__(self, params: Any, frozen: Any, batch: dict[str, jax.Array], key: jax.Array | None):
        rngs = None if key is None else {"dropout": key}
        y: Any = self.model.apply({"params": params}, batch["x"], key is not None, rngs=rngs)
        error = jnp.mean((y - batch["y"]) ** 2, axis=-1)
        close = jnp.sum((error < 1) * batch["weight"]), jnp.sum(batch["weight"])
        sums = {"fit": jnp.sum(error * batch["weight"]), "size": 0.1 * jnp.sum(jnp.mean(y**2, axis=-1))}
        return sums, {"close_accuracy": close}


def batch(stage: int, row: int, rows: int = ROWS) -> dict[str, np.ndarray]:
    draw = np.random.default_rng([stage, row])
    x = draw.normal(size=(rows, WIDTH)).astype(np.float32)
    weight = draw.integers(0, 2, rows).astype(np.float32)
    weight[0] = 1
    return {"x": x, "y": np.sin(2 * x[:, ::-1]), "weight": weight}


def batches(stage: int, row: int) -> Iterator[dict[str, np.ndarray]]:
    return (batch(stage, start) for start in itertools.count(row, ROWS))


def mesh(devices: int = 1, **sizes: int) -> jax.sharding.Mesh:
    return sharding.make_mesh(sharding.Mesh(**sizes), jax.devices()[:devices])


def stage(steps: int, **fields: Any) -> Stage:
    return Stage(**{"steps": steps, "batch_size": ROWS, "max_length": 8, "max_predictions": 2, **fields})


STAGES = stage(5), stage(4, carry="moments", learning_rate=0.01)


def job(directory: Path | None = None, **fields: Any) -> Job:
    """A job of nine steps in two stages that saves every second step."""
    stages = fields.pop("stages", STAGES)
    alike = {"objective": Toy(), "optimizer": AdamW(learning_rate=0.02)}
    alike |= {name: fields.pop(name) for name in alike if name in fields}
    built = Experiment(
        setups=fields.pop("setups", None) or [StageSetup(**alike)] * len(stages),
        stages=stages,
        mesh=fields.pop("mesh", None) or mesh(),
    )
    given = {
        "experiment": built,
        "config": RunSettings(log_every=1, evaluate_every=2, save_every=2, keep_last=3),
        "seed": 7,
        "batches": batches,
        "checkpoints": None if directory is None else Checkpoints(directory),
    }
    return Job(**{**given, **fields})


class Records(list[dict[str, Any]]):
    """A reporter that stores its records."""

    def __call__(self, record: dict[str, Any]) -> None:
        self.append(record)

    def close(self) -> None: ...

    def of(self, split: str) -> list[dict[str, Any]]:
        return [record for record in self if record.get("split") == split]

    def compilation(self) -> list[dict[str, Any]]:
        return [record for record in self if record.get("event") in ("compiling", "compiled")]

    def events(self) -> list[dict[str, Any]]:
        """The events, without those of compilation."""
        return [record for record in self if record.get("event", "compiled") not in ("compiling", "compiled")]


def same(a: Any, b: Any) -> bool:
    """Whether two trees are equal bit for bit in every leaf."""
    return jax.tree.structure(a) == jax.tree.structure(b) and all(
        np.asarray(x).tobytes() == np.asarray(y).tobytes()
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def copy(tree: Any) -> Any:
    """The tree on the host, safe from donation."""
    return jax.tree.map(np.array, tree)
