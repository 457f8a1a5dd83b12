"""Compile the training step, which minimises an `Objective`, and the evaluation step; keep programs between runs."""

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental.compilation_cache import compilation_cache

from bertzoo.core.machine import processor
from bertzoo.core.paths import cache_folder, is_url
from bertzoo.nn.platform import traced_for
from bertzoo.train import hosts, sharding
from bertzoo.train.memory import check_fits
from bertzoo.train.state import State

Params = Any
Batch = dict[str, jax.Array]
Sums = dict[str, jax.Array]
Metrics = dict[str, tuple[jax.Array, jax.Array]]


class Objective(Protocol):
    """A loss: Σ sums[term] / weights[term] over the loss terms.

    The weights depend on the batch alone, so sums add up over microbatches and devices. Splitting a batch is therefore
    exact, except for random draws (dropout, replaced tokens), which depend on the microbatch.
    """

    def init(self, key: jax.Array) -> Params:
        """Return fresh float32 parameters, boxed with their logical axis names."""
        ...

    def weights(self, batch: Batch) -> Sums:
        """Return the denominator of every loss term for a batch."""
        ...

    def __call__(self, params: Params, frozen: Params, batch: Batch, key: jax.Array | None) -> tuple[Sums, Metrics]:
        """Return the numerator of every loss term, summed over the batch, and metrics as (sum, weight).

        key: random key for dropout and for replacing tokens. If None, there is no dropout, and the tokens that replace
        others in a row depend on the row alone.
        """
        ...


HostBatch = Mapping[str, np.ndarray]


def _same_terms(sums: Sums, weights: Sums) -> None:
    if sums.keys() != weights.keys():
        raise ValueError(
            f"the objective has the terms {sorted(sums)} but weights for {sorted(weights)}. Return the same "
            "names from `weights` as from the objective's call."
        )


def gradients(
    objective: Objective,
    params: Any,
    frozen: Any,
    batch: Batch,
    weights: Sums,
    key: jax.Array,
    accumulate: int = 1,
    shardings: Any = None,
    frozen_shardings: Any = None,
) -> tuple[Any, Sums, Metrics]:
    """Return (gradient of the loss Σ sums/weights, sums, metrics) of a batch, computed in `accumulate` microbatches.

    weights: weight of each loss term in the whole batch, so that microbatches change only rounding and random draws.
    key: random key; microbatch i uses fold_in(key, i).
    shardings, frozen_shardings: those of `params` and of `frozen`, or None.
    """

    def loss(params, microbatch, microbatch_key):
        whole = params if shardings is None else sharding.as_used(params, shardings)
        fixed = frozen if frozen_shardings is None else sharding.as_used(frozen, frozen_shardings)
        sums, metrics = objective(whole, fixed, microbatch, microbatch_key)
        _same_terms(sums, weights)
        return sum(sums[term] / weights[term] for term in sums), (sums, metrics)

    def microbatch_gradient(microbatch, index):
        grads, (sums, metrics) = jax.grad(loss, has_aux=True)(params, microbatch, jax.random.fold_in(key, index))
        return grads, sums, metrics

    if accumulate == 1:
        return microbatch_gradient(batch, 0)

    # (accumulate, B/accumulate, …): microbatch i has rows i, i + accumulate, …, so each device keeps its own rows.
    cut = jax.tree.map(lambda x: jnp.swapaxes(x.reshape(-1, accumulate, *x.shape[1:]), 0, 1), batch)
    microbatches = cut, jnp.arange(accumulate)
    zeros = jax.eval_shape(microbatch_gradient, *jax.tree.map(lambda x: x[0], microbatches))
    total, _ = jax.lax.scan(
        lambda total, microbatch: (jax.tree.map(jnp.add, total, microbatch_gradient(*microbatch)), None),
        jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), zeros),
        microbatches,
    )
    return total


def make_train_step(
    objective: Objective,
    optimizer: optax.GradientTransformation,
    *,
    accumulate: int = 1,
    shardings: Any = None,
    frozen_shardings: Any = None,
) -> Callable[[State, Any, Batch], tuple[State, dict[str, Any]]]:
    """Return the jitted function (state, frozen, batch) -> (state, report); the old state is donated.

    shardings: shardings of the state, by default chosen by jax. frozen_shardings: shardings of `frozen`.

    The report has these keys:
    terms, metrics: {name: (sum, weight)}; the loss is the sum of the terms' quotients sum / weight.
    gradient_norm: global norm of the gradient before clipping.
    finite: whether loss, gradient and update are finite.
    """
    param_shardings = None if shardings is None else shardings.params
    meshes = [getattr(leaf, "mesh", None) for leaf in jax.tree.leaves(shardings)]
    platform = sharding.platform_of(meshes[0]) if meshes and isinstance(meshes[0], jax.sharding.Mesh) else None

    def train_step(state: State, frozen: Any, batch: Batch):
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.step)
        weights = objective.weights(batch)
        with traced_for(platform):
            grads, sums, metrics = gradients(
                objective, state.params, frozen, batch, weights, key, accumulate, param_shardings, frozen_shardings
            )
        with jax.named_scope("optimizer"):
            updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
            params = optax.apply_updates(state.params, updates)
        norm = optax.tree.norm(grads)
        loss = sum(sums[term] / weights[term] for term in sums)
        rows = jax.tree.leaves(batch)[0].shape[0]
        state = dataclasses.replace(
            state,
            step=state.step + 1,
            params=params,
            opt_state=opt_state,
            position={"stage": state.position["stage"], "row": state.position["row"] + rows},
        )

        def of_parameters(_: Any, new: Any) -> jax.Array:
            return optax.tree.norm(new)

        def size() -> jax.Array:
            # A norm that is finite only if the update is. One more pass over the update, for its own norm, would take a
            # fifth of AdamW's time for BERT-base on a CPU, and 30 % of the bytes that the optimiser moves on a TPU.
            return jax.lax.platform_dependent(
                updates, params, cpu=of_parameters, tpu=of_parameters, default=lambda change, _: optax.tree.norm(change)
            )

        report = {
            "terms": {term: (sums[term], weights[term]) for term in sums},
            "metrics": metrics,
            "gradient_norm": norm,
            "finite": jnp.isfinite(loss) & jnp.isfinite(norm) & jnp.isfinite(size()),
        }
        return state, report

    return jax.jit(train_step, donate_argnums=0, out_shardings=(shardings, None))


def make_eval_step(objective: Objective) -> Callable[[Any, Any, Batch], dict[str, Any]]:
    """Return the jitted (params, frozen, batch) -> {"terms", "metrics"}, both {name: (sum, weight)}; no dropout."""

    def eval_step(params: Any, frozen: Any, batch: Batch):
        sums, metrics = objective(params, frozen, batch, None)
        weights = objective.weights(batch)
        _same_terms(sums, weights)
        return {"terms": {term: (sums[term], weights[term]) for term in sums}, "metrics": metrics}

    return jax.jit(eval_step)


def put_batch(batch: HostBatch, mesh: jax.sharding.Mesh) -> Batch:
    """Build global arrays, split over the mesh, from this process's rows of a batch (`sharding.local_rows`)."""
    row_sharding, shards = sharding.batch_sharding(mesh), sharding.local_shards(mesh)

    def put(local: np.ndarray) -> jax.Array:
        rows = len(local) // len(shards)  # rows of one shard
        shape = (rows * sharding.row_shards(mesh), *local.shape[1:])

        def shard(index: Any) -> np.ndarray:
            position = shards.index((index[0].start or 0) // rows)
            return local[position * rows : (position + 1) * rows]

        return jax.make_array_from_callback(shape, row_sharding, shard)

    return {name: put(value) for name, value in batch.items()}


def evaluate(
    eval_step: Callable[[Any, Any, Batch], dict[str, Any]],
    params: Any,
    frozen: Any,
    batches: Iterable[HostBatch],
    mesh: jax.sharding.Mesh,
) -> dict[str, float]:
    """Return the loss and metrics over all batches, each as total sum / total weight (`Totals.means`)."""
    totals = Totals()
    for batch in batches:
        totals.add(eval_step(params, frozen, put_batch(batch, mesh)))
    return totals.means()


class StepProgram:
    """The jitted training step of a stage, compiled once for each shape of batch, and its evaluation step.

    shared: whether other programs are compiled from `step`; if not, its traces are dropped after compiling.

    Compiling raises OutOfMemory if the program needs more memory than the device has.
    """

    def __init__(self, step: Any, eval_step: Any = None, shared: bool = True):
        self._step, self.eval_step, self._shared = step, eval_step, shared
        self._programs: dict[tuple, Any] = {}

    def is_compiled(self, batch: Batch) -> bool:
        return _shapes(batch) in self._programs

    def compile(self, state: Any, frozen: Any, batch: Batch) -> int:
        """Compile the step for a batch's shapes and return the bytes that it needs on one device, 0 if unknown."""
        program = self._step.lower(state, frozen, batch).compile()
        if not self._shared:
            self._step.clear_cache()  # a fifth of a transfer's memory beside the arrays of its step
        needed = check_fits(program.memory_analysis())
        self._programs[_shapes(batch)] = program
        return needed

    def __call__(self, state: Any, frozen: Any, batch: Batch) -> tuple[Any, dict[str, Any]]:
        if not self.is_compiled(batch):
            self.compile(state, frozen, batch)
        return self._programs[_shapes(batch)](state, frozen, batch)


def _shapes(batch: Batch) -> tuple:
    return tuple((name, array.shape) for name, array in batch.items())


_LARGEST_CACHE = 2**31  # bytes; the least recently used programs are dropped first
_QUICKEST = 0.2  # seconds; programs that compile faster are not cached
_cache: str | None = None  # the folder that keep_programs chose last


def keep_programs(shared: Path | None = None) -> None:
    """Cache compiled programs, so that a later command does not compile them again.

    shared: folder, on disk or in a bucket, that all processes of a run read and process 0 writes. None selects the
    user's cache folder, but not in a run of several processes, because all must have the same programs.

    Does nothing if JAX already has another cache directory (JAX_COMPILATION_CACHE_DIR), or if the folder cannot be
    written or is another user's, who could change the programs. JAX_ENABLE_COMPILATION_CACHE=false turns the cache off.
    """
    global _cache
    chosen = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if (chosen and chosen != _cache) or (shared is None and not hosts.alone()):
        return
    with suppress(OSError, RuntimeError):  # no home, or one that cannot be written: compile every time
        # Programs that are compiled for another type of processor may not run here.
        name, extensions = processor()
        kind = hashlib.sha256("\n".join([name, *sorted(extensions)]).encode()).hexdigest()[:12]
        folder = shared or cache_folder("programs") / kind
        if shared is None:
            if not folder.parent.exists():
                folder.parent.mkdir(parents=True, mode=0o700)
            folder.mkdir(exist_ok=True)
        if not is_url(str(folder)):
            existing = [path for path in (folder.parent, folder) if path.exists()]
            if any(path.stat().st_uid != os.geteuid() or not os.access(path, os.W_OK) for path in existing):
                return
        # XLA's own cache writes no bucket, and its path would make the keys of processes differ. A limit needs a lock.
        xla = "xla_gpu_per_fusion_autotune_cache_dir" if shared is None else "none"
        jax.config.update("jax_persistent_cache_enable_xla_caches", xla)
        jax.config.update("jax_compilation_cache_max_size", _LARGEST_CACHE if shared is None else -1)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _QUICKEST)
        jax.config.update("jax_compilation_cache_dir", str(folder))
        if chosen != str(folder):
            compilation_cache.reset_cache()  # JAX opens a cache once
        _cache = str(folder)


@contextmanager
def count_saved_seconds() -> Iterator[list[float]]:
    """Yield a list, to which the block's reads of the cache append the seconds that they saved."""
    saved: list[float] = []

    def listen(event: str, duration_secs: float, **kwargs: Any) -> None:
        if event == "/jax/compilation_cache/compile_time_saved_sec":
            saved.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield saved
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


class Totals:
    """Sums and weights of the loss terms and metrics over several batches."""

    def __init__(self):
        self.terms: dict[str, np.ndarray] = {}
        self.metrics: dict[str, np.ndarray] = {}

    def add(self, report: dict[str, Any]) -> None:
        """Add `terms` and `metrics`, {name: (sum, weight)}, of a step's report; waits for the device."""
        for totals, pairs in ((self.terms, report["terms"]), (self.metrics, report["metrics"])):
            for name, pair in jax.device_get(pairs).items():
                totals[name] = totals.get(name, np.zeros(2)) + np.array(pair, np.float64)

    def means(self) -> dict[str, float]:
        """Return the means of all terms (`<term>_loss`), their sum (`loss`) and metrics, but none of weight 0."""
        losses = {f"{name}_loss": total / weight for name, (total, weight) in self.terms.items() if weight}
        metrics = {name: total / weight for name, (total, weight) in self.metrics.items() if weight}
        return {name: float(x) for name, x in {"loss": sum(losses.values()), **losses, **metrics}.items()}
