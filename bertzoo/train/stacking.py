"""Run a per-tensor optimiser on stacks of equal-shaped leaves, so that there are fewer operations to compile.

`optim.build` stacks only on TPUs. On a CPU (jax 0.10.2), LAMB over a MobileBERT-like tree of 1108 leaves compiles in
142 s stacked and 24 s leaf by leaf. A stacked step also takes twice as long there: XLA makes a kernel of every slice
and fuses the whole update into each. A whole training step for a v5e compiles in 108 s stacked, 198 s leaf by leaf.
"""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import optax

# Stacking copies a leaf twice per step and saves compiling one more copy of the update. A leaf of 2^18 floats is 1 MiB,
# which is copied within the caches; a BERT has few larger leaves.
STACK_LIMIT = 2**18


def leaf_name(path: tuple) -> str:
    """Return the last name in a pytree path, e.g. "kernel"."""
    return jax.tree_util.keystr(path[-1:], simple=True)


def _groups(params: Any) -> list[tuple[str, list[int]]]:
    """Return (leaf name, leaf indices) for every group of small leaves of equal name, shape and dtype.

    A large leaf is a group of its own.
    """

    def kind(item):
        index, (path, leaf) = item
        name = leaf_name(path)
        return name, str(leaf.dtype), leaf.shape, index if leaf.size > STACK_LIMIT else -1

    leaves = sorted(enumerate(jax.tree.leaves_with_path(params)), key=kind)
    return [(key[0], [index for index, _ in group]) for key, group in itertools.groupby(leaves, kind)]


def stacked(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """Wrap a transformation of single tensors: stack small leaves of equal name, shape and dtype and vmap over them.

    Results and state are the same as with `inner` on every leaf; `inner` sees every tensor as {leaf name: tensor}.
    """

    def update(updates, state, params=None):
        if params is None:
            raise ValueError("update was called without params. Pass the parameters as its third argument.")
        treedef = jax.tree.structure(params)
        nodes, state_def = jax.tree.flatten(state, is_leaf=lambda node: jax.tree.structure(node) == treedef)
        moments = [i for i, node in enumerate(nodes) if jax.tree.structure(node) == treedef]
        table = [treedef.flatten_up_to(tree) for tree in (updates, params, *(nodes[i] for i in moments))]
        result: list[list[Any]] = [[None] * treedef.num_leaves for _ in range(1 + len(moments))]

        def one(name, tensors):  # tensors: update, parameter, moments
            part = dict(enumerate(nodes)) | {i: {name: t} for i, t in zip(moments, tensors[2:], strict=True)}
            out: Any
            out, new = inner.update({name: tensors[0]}, state_def.unflatten(part.values()), {name: tensors[1]})
            new = state_def.flatten_up_to(new)
            counts = {i: node for i, node in enumerate(new) if i not in moments}
            return [out[name], *(new[i][name] for i in moments)], counts

        for name, indices in _groups(params):
            if len(indices) == 1:
                values, counts = one(name, [row[indices[0]] for row in table])
                values = [[value] for value in values]
            else:
                several = jax.vmap(functools.partial(one, name), out_axes=(0, None))
                tensors = [jnp.stack([row[i] for i in indices]) for row in table]
                values, counts = several(tensors)
            for row, value in zip(result, values, strict=True):
                for k, index in enumerate(indices):
                    row[index] = value[k]

        out, *new_moments = map(treedef.unflatten, result)
        new = counts | dict(zip(moments, new_moments, strict=True))
        return out, state_def.unflatten(new[i] for i in range(len(nodes)))

    return optax.GradientTransformation(inner.init, update)
