"""Initialise and apply a Linen model that reads ids, segments and a mask, for the objectives."""

from typing import Any

import jax
import jax.numpy as jnp

from bertzoo.train.objective import Batch, Params


def init_model(model: Any, key: jax.Array, *more: Any) -> Params:
    """Return fresh float32 parameters of a model, boxed with logical axis names.

    more: inputs of the model after ids, segments and mask.
    """
    ids = jnp.zeros((1, 8), jnp.int32)
    return model.init(key, ids, ids, ids + 1, *more)["params"]


def apply_model(model: Any, params: Params, batch: Batch, key: jax.Array | None, *more: Any, **options: Any) -> Any:
    """Return a model's output for the ids, segments and mask of a batch; without a key there is no dropout.

    more, options: further arguments of `model.apply`.
    """
    return model.apply(
        {"params": params},
        batch["input_ids"],
        batch["token_type_ids"],
        batch["attention_mask"],
        *more,
        train=key is not None,
        rngs=None if key is None else {"dropout": key},
        **options,
    )
