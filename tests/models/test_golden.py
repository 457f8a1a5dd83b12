"""Forward, loss, gradients and one optimiser step equal Hugging Face's and torch's to 1e-5 of each tensor's maximum.

tests/golden/make_golden.py makes the files, in float64 and with every tensor randomised.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bertzoo.models import Bert, Compute, SqueezeBert
from bertzoo.objectives import Masked

GOLDEN = Path(__file__).parents[1] / "golden"
TOLERANCE = 1e-5
KINDS = ["bert", "squeezebert"]


def bert(settings: dict) -> Bert:
    return Bert(
        vocab_size=settings["vocab_size"],
        hidden_size=settings["hidden_size"],
        layers=settings["num_hidden_layers"],
        heads=settings["num_attention_heads"],
        feed_forward_size=settings["intermediate_size"],
        max_positions=settings["max_position_embeddings"],
        token_types=settings["type_vocab_size"],
    )


def squeezebert(settings: dict) -> SqueezeBert:
    return SqueezeBert(
        vocab_size=settings["vocab_size"],
        hidden_size=settings["hidden_size"],
        layers=settings["num_hidden_layers"],
        heads=settings["num_attention_heads"],
        feed_forward_size=settings["intermediate_size"],
        max_positions=settings["max_position_embeddings"],
        token_types=settings["type_vocab_size"],
        query_groups=settings["q_groups"],
        key_groups=settings["k_groups"],
        value_groups=settings["v_groups"],
        attention_output_groups=settings["post_attention_groups"],
        intermediate_groups=settings["intermediate_groups"],
        output_groups=settings["output_groups"],
    )


class Golden:
    """One golden file, and our objective at its size."""

    def __init__(self, kind: str, compute: Compute) -> None:
        with np.load(GOLDEN / f"{kind}.npz", allow_pickle=False) as file:
            self.flat = dict(file)
        self.settings = json.loads(str(self.flat["settings"]))
        model = {"bert": bert, "squeezebert": squeezebert}[kind](self.settings["model"])
        self.objective = Masked(sentence={"bert": "nsp", "squeezebert": "sop"}[kind]).build(model, compute)
        self.batch = self.tree("batch")
        self.params = self.tree("params")

    def tree(self, name: str) -> dict[str, Any]:
        leaves = {tuple(path.split("/")[1:]): array for path, array in self.flat.items() if path.startswith(f"{name}/")}
        return flax.traverse_util.unflatten_dict({path: jnp.asarray(array) for path, array in leaves.items()})

    def loss(self, params: dict) -> tuple[jax.Array, dict]:
        sums, _ = self.objective(params, None, self.batch, None)
        terms = {name: sums[name] / weight for name, weight in self.objective.weights(self.batch).items()}
        return sum(terms.values(), jnp.zeros(())), terms

    @cache  # noqa: B019
    def gradients(self) -> tuple[tuple[jax.Array, dict], dict]:
        return jax.jit(jax.value_and_grad(self.loss, has_aux=True))(self.params)


@cache
def golden(kind: str, lowering: Any = "einsum", remat: bool = False) -> Golden:
    return Golden(kind, Compute(grouped=lowering, remat=remat))


VARIANTS = [("bert", "einsum", False), ("bert", "einsum", True)]
VARIANTS += [("squeezebert", "einsum", False), ("squeezebert", "convolution", False), ("squeezebert", "einsum", True)]
variants = pytest.mark.parametrize(("kind", "lowering", "remat"), VARIANTS)


def assert_close(ours: Any, theirs: Any, what: str, scale: float | None = None) -> None:
    """Equal to TOLERANCE of the reference's largest value, or of `scale`."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape, f"{what}: ours {ours.shape}, theirs {theirs.shape}"
    scale = float(np.abs(theirs).max()) if scale is None else scale
    error = float(np.abs(ours - theirs).max())
    assert error <= TOLERANCE * scale, f"{what}: off by {error:.2e}, largest value {scale:.2e}"


def assert_trees_close(ours: dict, theirs: dict, scale: dict[str, float] | None = None) -> None:
    ours, theirs = (flax.traverse_util.flatten_dict(tree, sep="/") for tree in (ours, theirs))
    assert ours.keys() == theirs.keys()
    for path, reference in theirs.items():
        assert_close(ours[path], reference, path, (scale or {}).get(path))


@pytest.mark.parametrize("kind", KINDS)
def test_parameter_tree(kind: str) -> None:
    """Our model has exactly the reference's parameters, each in the documented layout."""
    ours = nn.unbox(jax.eval_shape(golden(kind).objective.init, jax.random.key(0)))
    shapes = {path: leaf.shape for path, leaf in flax.traverse_util.flatten_dict(ours, sep="/").items()}
    theirs = flax.traverse_util.flatten_dict(golden(kind).params, sep="/")
    assert shapes == {path: leaf.shape for path, leaf in theirs.items()}


@variants
def test_forward(kind: str, lowering: str, remat: bool) -> None:
    g = golden(kind, lowering, remat)
    inputs = [g.batch[name] for name in ("input_ids", "token_type_ids", "attention_mask", "masked_positions")]
    output = jax.jit(g.objective.model.apply)({"params": g.params}, *inputs)
    theirs = g.tree("outputs")
    assert len(output.hidden_states) == len(theirs["hidden_states"])
    assert len(output.attentions) == len(theirs["attentions"])
    for index, reference in enumerate(theirs["hidden_states"]):
        assert_close(output.hidden_states[index], reference, f"hidden state {index}")
    for index, reference in enumerate(theirs["attentions"]):
        assert_close(output.attentions[index], reference, f"attention {index}")
    for name in ("pooled", "masked_logits", "sentence_logits"):
        assert_close(getattr(output, name), theirs[name], name)


@variants
def test_loss(kind: str, lowering: str, remat: bool) -> None:
    g = golden(kind, lowering, remat)
    (loss, terms), _ = g.gradients()
    theirs = g.tree("outputs")
    assert_close(loss, theirs["loss"], "loss")
    assert_close(terms.pop("mlm"), theirs["masked_loss"], "masked loss")
    assert_close(*terms.values(), theirs["sentence_loss"], "sentence loss")


@variants
def test_gradients(kind: str, lowering: str, remat: bool) -> None:
    """A key bias shifts a row of scores by a constant: its gradient is zero on paper, and is measured by the query bias's."""
    g = golden(kind, lowering, remat)
    theirs = g.tree("gradients")
    flat = flax.traverse_util.flatten_dict(theirs, sep="/")
    zero = [path for path in flat if path.endswith("key/bias")]
    assert (
        all(np.abs(flat[path]).max() < 1e-12 for path in zero) and len(zero) == g.settings["model"]["num_hidden_layers"]
    )
    scale = {path: float(np.abs(flat[path.replace("key", "query")]).max()) for path in zero}
    assert_trees_close(g.gradients()[1], theirs, scale)


def decayed(params: dict) -> dict:
    flat = flax.traverse_util.flatten_dict(params)
    return flax.traverse_util.unflatten_dict({path: path[-1] not in ("bias", "scale") for path in flat})


@pytest.mark.parametrize("kind", KINDS)
def test_adamw_step(kind: str) -> None:
    g = golden(kind)
    hyper = g.settings["adamw"]
    optimizer = optax.adamw(
        hyper["learning_rate"],
        hyper["beta1"],
        hyper["beta2"],
        hyper["epsilon"],
        weight_decay=hyper["weight_decay"],
        mask=decayed,
    )
    updates, _ = optimizer.update(g.gradients()[1], optimizer.init(g.params), g.params)
    assert_trees_close(optax.apply_updates(g.params, updates), g.tree("adamw"))
