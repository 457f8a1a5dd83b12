"""Run a model up to the last of some chosen layers, and return the outputs of these layers.

On GPUs and TPUs, the layers between two chosen layers run as one loop over stacked parameters, provided that these
layers are equal except for their parameters. A run up to layer 24 therefore compiles about as fast as one up to layer
3. On CPUs, the layers run one by one, because a loop would copy every layer's parameters, and XLA would convert stacked
bfloat16 parameters to float32 in every step.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.core import meta

from bertzoo.models.parts import OnBackbone
from bertzoo.nn.platform import current_platform

BELOW_LAYERS = ("embedding/", "encoder/projection/")  # beginnings of the paths of parameters below the first layer
STACKED = "layers"  # key that replaces layers_0, layers_1, …; its arrays have a layer axis in front


class LayerOutput(NamedTuple):
    """A layer's output (B,L,D) and attention probabilities (B,H,L,L). For the embedding, `attention` is None."""

    hidden: jax.Array
    attention: jax.Array | None


def layer_outputs(
    model: OnBackbone, params: Any, batch: Mapping[str, jax.Array], numbers: Collection[int], key: jax.Array | None
) -> dict[int, LayerOutput]:
    """Return {number: output} for the layers in `numbers`; 1 is the first layer, 0 the embedding.

    Later layers are not computed. params: the model's parameters, possibly stacked by `stack`. key: random key of
    dropout, or None for no dropout.
    """
    mask_BL, train = batch["attention_mask"], key is not None
    embedding_key, encoder_key = (None, None) if key is None else jax.random.split(key)
    encoder: Any = model.encoder
    x_BLD: Any = model.embedding.apply(
        {"params": params["embedding"]}, batch["input_ids"], batch["token_type_ids"], mask_BL, train,
        rngs=_streams(embedding_key),
    )  # fmt: skip
    if encoder.projection is not None:
        x_BLD = encoder.projection.apply({"params": params["encoder"]["projection"]}, x_BLD)
    trunk = _Trunk(encoder.layers, params["encoder"], mask_BL, train, encoder_key)
    outputs, applied = {}, 0
    for layer in sorted(numbers):
        if layer == 0:
            outputs[0] = LayerOutput(x_BLD, None)
            continue
        x_BLD = trunk.apply_layers(x_BLD, applied, layer - 1)
        x_BLD, attention_BHLM = trunk.apply_layer(x_BLD, layer - 1)
        outputs[layer], applied = LayerOutput(x_BLD, attention_BHLM), layer
    return outputs


def stack(params: Any, layers: Sequence[nn.Module]) -> Any:
    """Return `params` with the parameters of all layers stacked, or unchanged if `alike(layers)` is false.

    Leaves are arrays, ShapeDtypeStructs or Flax boxes of them.
    """
    if not alike(layers):
        return params
    encoder = params["encoder"]
    layer_params = [encoder[name] for name in names(layers)]
    joined = jax.tree.map(_joined, *layer_params, is_leaf=lambda leaf: isinstance(leaf, meta.AxisMetadata))
    rest = {name: value for name, value in encoder.items() if name not in names(layers)}
    return {**params, "encoder": {**rest, STACKED: joined}}


def _joined(*leaves: Any) -> Any:
    if isinstance(leaves[0], meta.AxisMetadata):
        first: Any = leaves[0]
        return first.replace(value=_joined(*(leaf.unbox() for leaf in leaves)), names=(STACKED, *first.names))
    if isinstance(leaves[0], jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct((len(leaves), *leaves[0].shape), leaves[0].dtype)
    return np.stack(leaves) if isinstance(leaves[0], np.ndarray) else jnp.stack(leaves)


def names(layers: Sequence[nn.Module]) -> list[str]:
    """Return each layer's parameter name, such as "layers_3"; a repeated layer is named after its first index."""
    return [f"layers_{next(i for i, first in enumerate(layers) if first is layer)}" for layer in layers]


def alike(layers: Sequence[nn.Module]) -> bool:
    """Return whether `layers` are two or more distinct modules that differ only in their parameters."""
    return len(set(names(layers))) == len(layers) > 1 and all(layer == layers[0] for layer in layers)


def _streams(key: jax.Array | None) -> dict[str, jax.Array] | None:
    return None if key is None else {"dropout": key}


class _Trunk:
    """Run an encoder's layers, one at a time or several in a loop."""

    def __init__(
        self, layers: Sequence[nn.Module], params: Any, mask_BL: jax.Array, train: bool, key: jax.Array | None
    ):
        self._layers, self._params, self._mask, self._train, self._key = layers, params, mask_BL, train, key
        self._names, self._stacked = names(layers), STACKED in params

    def apply_layer(self, x_BLD: jax.Array, index: int) -> tuple[jax.Array, jax.Array]:
        """Apply layer `index`, counted from 0, to its input; returns its output and attention probabilities."""
        params = self._at(index) if self._stacked else self._params[self._names[index]]
        return self._apply(index, params, x_BLD, index)

    def apply_layers(self, x_BLD: jax.Array, first: int, last: int) -> jax.Array:
        """Apply the layers with indices in [first, last) in turn; returns the last output."""
        segment = range(first, last)
        loops = self._stacked or alike([self._layers[index] for index in segment])
        if len(segment) < 2 or not loops or current_platform().name == "cpu":
            for index in segment:
                x_BLD, _ = self.apply_layer(x_BLD, index)
            return x_BLD
        if self._stacked:  # a teacher's parameters, large and without gradient: index them in place

            def step(index: Any, x_BLD: jax.Array) -> jax.Array:
                return self._apply(first, self._at(index), x_BLD, index)[0]

            return jax.lax.fori_loop(first, last, step, x_BLD)
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(self._params[self._names[i]] for i in segment))

        def body(x_BLD: jax.Array, layer: tuple[Any, jax.Array]) -> tuple[jax.Array, None]:
            return self._apply(first, layer[0], x_BLD, layer[1])[0], None

        return jax.lax.scan(body, x_BLD, (stacked, jnp.arange(first, last)))[0]

    def _at(self, index: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf[index], self._params[STACKED])

    def _apply(self, module: int, params: Any, x_BLD: jax.Array, index: Any) -> tuple[jax.Array, jax.Array]:
        key = None if self._key is None else jax.random.fold_in(self._key, index)
        layer: Any = self._layers[module]
        y_BLD, attention_BHLM = layer.apply({"params": params}, x_BLD, self._mask, self._train, rngs=_streams(key))
        return y_BLD.astype(x_BLD.dtype), attention_BHLM
