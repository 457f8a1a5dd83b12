"""Forward, loss, gradients and one optimiser step equal Hugging Face's and torch's to 1e-5 of each tensor's maximum.

tests/golden/make_golden.py of commit e91f9b92 made the files, in float64 and with every tensor randomised.
"""

import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from arrays import assert_close, flatten
from tiers import quick

from bertzoo.models import Albert, Bert, Compute, ConvBert, DistilBert, MobileBert, SqueezeBert
from bertzoo.objectives import Masked
from bertzoo.train import optim
from bertzoo.train.optim import Schedule
from bertzoo.train.state import boxed_shapes

SENTENCE = {
    "albert": "sop", "bert": "nsp", "convbert": "none", "distilbert": "none", "mobilebert": "nsp", "squeezebert": "sop",
}  # fmt: skip
KINDS = list(SENTENCE)
CONSTANT = Schedule(kind="constant")


NAMES = {  # Hugging Face's: ours
    "vocab_size": "vocab_size",
    "embedding_size": "embedding_size",
    "max_position_embeddings": "max_positions",
    "type_vocab_size": "token_types",
    **dict.fromkeys(("hidden_size", "dim"), "hidden_size"),
    **dict.fromkeys(("num_hidden_layers", "n_layers"), "layers"),
    **dict.fromkeys(("num_attention_heads", "n_heads"), "heads"),
    **dict.fromkeys(("intermediate_size", "hidden_dim"), "feed_forward_size"),
    **{f"{short}_groups": f"{long}_groups" for short, long in (("q", "query"), ("k", "key"), ("v", "value"))},
    **{name: name for name in ("intermediate_groups", "output_groups", "head_ratio")},
    "post_attention_groups": "attention_output_groups",
    "num_groups": "feed_forward_groups",
    "conv_kernel_size": "kernel_size",
    "intra_bottleneck_size": "bottleneck_size",
    "num_feedforward_networks": "feed_forwards",
}
SEES_PADDING = {"mask_padding": False}  # as Hugging Face's windows and trigrams do
MODELS = {
    "albert": Albert,
    "bert": Bert,
    "convbert": partial(ConvBert, **SEES_PADDING),
    "distilbert": DistilBert,
    "mobilebert": partial(MobileBert, **SEES_PADDING, norm_epsilon=1e-5),
    "squeezebert": SqueezeBert,
}


def sizes(kind: str, settings: dict) -> dict[str, Any]:
    """Hugging Face's settings under our names; a SqueezeBERT's embedding is as wide as its layers."""
    names = NAMES | ({"embedding_size": None} if kind == "squeezebert" else {})
    return {names[name]: value for name, value in settings.items() if names.get(name)}


class Golden:
    """One golden file, and the objective that `build` returns for its settings."""

    def __init__(self, kind: str, build: Callable[[dict], Any]) -> None:
        with np.load(Path(__file__).parents[1] / "golden" / f"{kind}.npz", allow_pickle=False) as file:
            self.flat = dict(file)
        self.settings = json.loads(str(self.flat["settings"]))
        self.objective = build(self.settings)
        self.batch, self.params = self.tree("batch"), self.tree("params")

    def tree(self, name: str) -> dict[str, Any]:
        leaves = {path: jnp.asarray(array) for path, array in self.flat_tree(name).items()}
        return flax.traverse_util.unflatten_dict(leaves, sep="/")

    def flat_tree(self, name: str) -> dict[str, np.ndarray]:
        return {
            path.removeprefix(f"{name}/"): array for path, array in self.flat.items() if path.startswith(f"{name}/")
        }

    def loss(self, params: dict) -> tuple[jax.Array, dict]:
        sums, _ = self.objective(params, None, self.batch, None)
        terms = {name: sums[name] / weight for name, weight in self.objective.weights(self.batch).items()}
        return sum(terms.values(), jnp.zeros(())), terms


@cache
def golden(kind: str) -> Golden:
    def build(settings: dict) -> Any:
        return Masked(sentence=SENTENCE[kind]).build(MODELS[kind](**sizes(kind, settings["model"])), Compute())

    return Golden(kind, build)


def assert_trees_close(ours: Any, theirs: dict[str, np.ndarray], scale: dict[str, float] | None = None) -> None:
    assert flatten(ours).keys() == theirs.keys()
    for path, value in flatten(ours).items():
        assert_close(value, theirs[path], path, (scale or {}).get(path))


@pytest.mark.parametrize("kind", KINDS)
def test_parameter_tree(kind: str) -> None:
    """Our model has exactly the reference's parameters, each in the documented layout."""
    ours = flatten(nn.unbox(boxed_shapes(golden(kind).objective)))
    theirs = golden(kind).flat_tree("params")
    assert {path: leaf.shape for path, leaf in ours.items()} == {path: leaf.shape for path, leaf in theirs.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_forward(kind: str) -> None:
    g = golden(kind)
    inputs = [g.batch[name] for name in ("input_ids", "token_type_ids", "attention_mask", "masked_positions")]
    output = jax.jit(g.objective.model.apply)({"params": g.params}, *inputs)
    theirs = g.tree("outputs")
    assert len(output.hidden_states) == len(theirs["hidden_states"])
    assert len(output.attentions) == len(theirs["attentions"])
    for index, reference in enumerate(theirs["hidden_states"]):
        assert_close(output.hidden_states[index], reference, f"hidden state {index}")
    for index, reference in enumerate(theirs["attentions"]):
        assert_close(output.attentions[index], reference, f"attention {index}")
    assert (output.sentence_logits is None) == (SENTENCE[kind] == "none") == ("sentence_logits" not in theirs)
    for name in {"pooled", "masked_logits", "sentence_logits"} & theirs.keys():
        assert_close(getattr(output, name), theirs[name], name)


@pytest.mark.parametrize("kind", KINDS)
def test_training_step(kind: str) -> None:
    """Loss and terms, and gradients: one test, so that the gradient is compiled once."""
    g = golden(kind)
    (loss, terms), gradients = jax.jit(jax.value_and_grad(g.loss, has_aux=True))(g.params)
    check_gradients(g, gradients)
    theirs = g.flat_tree("outputs")
    assert_close(loss, theirs["loss"], "loss")
    assert_close(terms.pop("mlm"), theirs["masked_loss"], "masked loss")
    assert len(terms) == ("sentence_loss" in theirs)
    for term in terms.values():
        assert_close(term, theirs["sentence_loss"], "sentence loss")


def check_gradients(g: Golden, gradients: Any) -> None:
    """A key bias adds a constant to a row of scores: its gradient, zero on paper, is measured by the query bias's."""
    theirs = g.flat_tree("gradients")
    zero = [path for path in theirs if path.endswith("key/bias")]
    assert len(zero) == sum(path.endswith("query/bias") for path in theirs) > 0
    assert max(np.abs(theirs[path]).max() for path in zero) < 1e-12
    scale = {path: float(np.abs(theirs[path.replace("key", "query")]).max()) for path in zero}
    assert_trees_close(gradients, theirs, scale)


@pytest.mark.parametrize("kind", quick(KINDS, "bert"))  # the step knows no more of a model than its names
def test_a_step_of_the_optimizers(kind: str) -> None:
    """One step of torch's AdamW, and Google's LAMB as released, from the reference's gradients."""
    g = golden(kind)
    adamw = optim.AdamW(clip_norm=0.0, schedule=CONSTANT, **g.settings["adamw"])
    lamb = optim.Lamb(variant="google", schedule=CONSTANT, **g.settings["lamb"])
    for name, config in {"adamw": adamw, "lamb": lamb}.items():
        optimizer = optim.build(config, steps=10)

        @jax.jit
        def step(gradients, params, optimizer=optimizer):
            updates, _ = optimizer.update(gradients, optimizer.init(params), params)
            return optax.apply_updates(params, updates)

        assert_trees_close(step(g.tree("gradients"), g.params), g.flat_tree(name))
