"""Optimisers equal a few lines of numpy, and optax where optax has them."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bertzoo.train import optim
from bertzoo.train.optim import AdamW, BertAdam, Lamb, Schedule

SHAPES = {
    "first": {"kernel": (4, 6), "bias": (6,)},
    "second": {"kernel": (4, 6), "bias": (6,)},
    "norm": {"scale": (6,), "bias": (6,)},
    "word": {"embedding": (11, 4)},
    "empty": {"kernel": (3, 3)},  # stays zero at first: its trust ratio is 1
}
SCHEDULE = Schedule(warmup_steps=2)
STEPS = 10
# Nothing at its default, so that an option that is not looked at shows.
ODD = {"learning_rate": 0.1, "beta1": 0.8, "beta2": 0.97, "epsilon": 1e-3, "weight_decay": 0.03, "schedule": SCHEDULE}
CONFIGS = {
    "google": Lamb(**ODD),
    "nvidia": Lamb(**ODD, variant="nvidia"),
    "optax": Lamb(**ODD, variant="optax"),
    "adamw": AdamW(**ODD),
    "bert_adam": BertAdam(**ODD),
}


def draw(seed: int, scale: float = 1.0):
    key = iter(jax.random.split(jax.random.key(seed), 20))
    tree = {
        part: {name: scale * jax.random.normal(next(key), shape) for name, shape in leaves.items()}
        for part, leaves in SHAPES.items()
    }
    if seed == 0:
        tree["empty"]["kernel"] = jnp.zeros((3, 3))
    return tree


def steps(optimizer, count: int):
    """(parameters, state) after each of `count` steps."""
    params = draw(0)
    state = optimizer.init(params)
    update = jax.jit(optimizer.update)
    for k in range(count):
        updates, state = update(draw(k + 1, 0.3), state, params)
        params = optax.apply_updates(params, updates)
        yield params, state


def by_numpy(config: optim.Optimizer, count: int):
    """The same steps in float64 from the equations."""
    flat = {(a, b): np.asarray(x, np.float64) for a, part in draw(0).items() for b, x in part.items()}
    m = {key: np.zeros_like(x) for key, x in flat.items()}
    v = {key: np.zeros_like(x) for key, x in flat.items()}
    for k in range(count):
        grads = {(a, b): np.asarray(x, np.float64) for a, part in draw(k + 1, 0.3).items() for b, x in part.items()}
        norm = np.sqrt(sum(np.sum(g**2) for g in grads.values()))
        assert norm > 1  # or the test would not see the clip
        rate = 0.1 * (k / 2 if k < 2 else 1 - k / STEPS)
        for key, w in flat.items():
            g = grads[key] * (min(1, config.clip_norm / norm) if config.clip_norm else 1)
            m[key] = 0.8 * m[key] + 0.2 * g
            v[key] = 0.97 * v[key] + 0.03 * g**2
            corrected = isinstance(config, AdamW) or (isinstance(config, Lamb) and config.variant != "google")
            c1, c2 = (1 - 0.8 ** (k + 1), 1 - 0.97 ** (k + 1)) if corrected else (1, 1)
            u = m[key] / c1 / (np.sqrt(v[key] / c2) + 1e-3)
            decay = 0 if key[1] in ("bias", "scale") else 0.03
            u = u + decay * w
            # NVIDIA's second kernel: `if (use_nvlamb || decay != 0)`, without use_nvlamb; Google has a list of names.
            if isinstance(config, Lamb) and (decay != 0 or config.variant == "optax"):
                a, b = np.linalg.norm(w), np.linalg.norm(u)
                u = u * (a / b if a and b else 1)
            flat[key] = w - rate * u
        yield {a: {b: flat[a, b] for b in part} for a, part in SHAPES.items()}


@pytest.mark.parametrize("clip_norm", [1.0, 0.0])
@pytest.mark.parametrize("name", CONFIGS)
def test_every_step_equals_numpy(name: str, clip_norm: float):
    config = dataclasses.replace(CONFIGS[name], clip_norm=clip_norm)
    ours = [params for params, _ in steps(optim.build(config, STEPS), 4)]
    theirs = list(by_numpy(config, 4))
    chex.assert_trees_all_close(ours, theirs, rtol=2e-5, atol=2e-5)


def test_lamb_takes_each_norm_once():
    """optax takes each twice, and a TPU then reads parameters and updates once more."""
    params = {"kernel": jnp.ones((3, 4))}
    sums = {}
    for name, lamb in {"ours": optim.per_tensor(CONFIGS["optax"]), "theirs": optax.scale_by_trust_ratio()}.items():
        program = jax.jit(lamb.update).lower(params, lamb.init(params), params).compile().as_text()
        sums[name] = program.count(" reduce(")
    assert sums == {"ours": 2, "theirs": 4}


@pytest.mark.parametrize("update", [[3.0, 4.0], [0.0, 0.0], [np.nan, 1.0]])
@pytest.mark.parametrize("param", [[60.0, 80.0], [0.0, 0.0]])
def test_the_trust_ratio_is_optaxs(update, param):
    """The ratio is 1 where a norm is 0. A NaN in an update makes the whole update NaN."""
    trees = {"kernel": jnp.array(update)}, optax.EmptyState(), {"kernel": jnp.array(param)}
    ours, theirs = (one.update(*trees)[0] for one in (optim.scale_by_trust_ratio(), optax.scale_by_trust_ratio()))
    np.testing.assert_array_equal(ours["kernel"], theirs["kernel"])


def test_decay_depends_on_the_leaf_name_alone():
    tree = {"bias": {"kernel": 0}, "norm": {"scale": 0, "bias": 0}, "scale": {"embedding": 0}}
    assert optim.decayed(tree) == {
        "bias": {"kernel": True},
        "norm": {"scale": False, "bias": False},
        "scale": {"embedding": True},
    }
    assert jax.tree.leaves(optim.decayed(draw(0))).count(False) == 4


@pytest.mark.parametrize("name", CONFIGS)
def test_carry(name: str):
    optimizer = optim.build(CONFIGS[name], STEPS)
    *_, (_, old) = steps(optimizer, 3)
    new = optimizer.init(draw(0))
    get = optax.tree_utils.tree_get

    assert optim.carry(old, new, "all") is old
    assert optim.carry(old, new, "params") is new

    kept = optim.carry(old, new, "moments")
    for moment in ("mu", "nu"):
        chex.assert_trees_all_equal(get(kept, moment), get(old, moment))
        assert float(optax.tree.norm(get(kept, moment))) > 0
    counts = optax.tree_utils.tree_get_all_with_path(kept, "count")
    found = {path[-1].tuple_name: int(count) for path, count in counts}
    corrected = {"ScaleByAdamState": 3} if name in ("nvidia", "optax", "adamw") else {}
    assert found == {"ScaleByScheduleState": 0, **corrected}


@pytest.mark.parametrize("limit", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("broken", [1.0, float("nan"), float("inf")])
def test_clipping_equals_optaxs(limit: float, broken: float):
    updates = draw(1)
    updates["empty"]["kernel"] = updates["empty"]["kernel"].at[0, 0].mul(broken)
    ours, theirs = (
        clip.update(updates, clip.init(updates))[0]
        for clip in (optim.clip_by_global_norm(limit), optax.clip_by_global_norm(limit))
    )
    chex.assert_trees_all_close(ours, theirs, rtol=1e-6)
