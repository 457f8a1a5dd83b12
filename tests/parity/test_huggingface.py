# pyright: reportMissingImports=false
"""BERT and SqueezeBERT beside Hugging Face's, live, at random odd sizes; run by `make parity`, which installs torch."""

import sys
from pathlib import Path
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("torch", reason="the live comparison needs torch and transformers: run `make parity`")
pytest.importorskip("transformers", reason="the live comparison needs torch and transformers: run `make parity`")

sys.path.append(str(Path(__file__).parents[1] / "golden"))
import layouts
import reference

from bertzoo.models import Bert, Compute, SqueezeBert
from bertzoo.objectives import Masked

TOLERANCE = 1e-5
NAMES = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "feed_forward_size",
    "max_position_embeddings": "max_positions",
    "type_vocab_size": "token_types",
    "hidden_act": "activation",
    "q_groups": "query_groups",
    "k_groups": "key_groups",
    "v_groups": "value_groups",
    "post_attention_groups": "attention_output_groups",
    "intermediate_groups": "intermediate_groups",
    "output_groups": "output_groups",
}


def random_settings(random: np.random.Generator, kind: str) -> dict[str, Any]:
    """Sizes that share few factors, so that a swapped pair of axes cannot fit."""
    heads = int(random.choice([1, 2, 3, 5]))
    width, feed_forward = 4 * heads * int(random.integers(1, 6)), 4 * int(random.integers(3, 30))
    settings: dict[str, Any] = {
        "vocab_size": int(random.integers(30, 200)),
        "hidden_size": width,
        "num_hidden_layers": int(random.integers(1, 4)),
        "num_attention_heads": heads,
        "intermediate_size": feed_forward,
        "max_position_embeddings": int(random.integers(16, 40)),
        "type_vocab_size": int(random.integers(2, 4)),
        "hidden_act": str(random.choice(["gelu", "relu"])),
    }
    if kind == "squeezebert":
        groups = [name for name in NAMES if name.endswith("_groups")]
        settings |= {name: int(random.choice([1, 2, 4])) for name in groups} | {"embedding_size": width}
    return settings


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["bert", "squeezebert"])
def test_forward_loss_and_gradients(kind: str, seed: int) -> None:
    compare(kind, seed, {}, TOLERANCE)


def compare(kind: str, seed: int, more: dict[str, Any], tolerance: float) -> None:
    """All outputs, the loss and the gradients, to `tolerance` of the largest value of each."""

    def assert_close(ours: Any, theirs: Any, what: str, scale: float | None = None) -> None:
        theirs = np.asarray(theirs)
        scale = float(np.abs(theirs).max()) if scale is None else scale
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=0, atol=tolerance * scale, err_msg=what)

    random = np.random.default_rng([seed, len(kind)])
    settings = random_settings(random, kind) | more
    theirs = reference.MODELS[kind](settings)
    reference.randomise(theirs, random)
    batch = reference.random_batch(random, settings["vocab_size"], lengths=(7, 13, 1 + int(random.integers(4, 12))))
    expected = theirs(batch)
    expected["loss"].backward()
    convert, heads = getattr(layouts, kind), settings["num_attention_heads"]
    named = dict(theirs.model.named_parameters())
    params = convert({name: tensor.detach().numpy() for name, tensor in named.items()}, heads)
    gradients = convert({name: tensor.grad.numpy() for name, tensor in named.items()}, heads)

    sizes = {NAMES[name]: value for name, value in settings.items() if name in NAMES}
    config = Bert(**sizes) if kind == "bert" else SqueezeBert(**sizes)
    objective = Masked(sentence="sop").build(config, Compute())
    tree = flax.traverse_util.unflatten_dict(
        {path: jnp.asarray(value, jnp.float32) for path, value in params.items()}, sep="/"
    )

    @jax.jit
    def ours(params):
        inputs = [batch[name] for name in ("input_ids", "token_type_ids", "attention_mask", "masked_positions")]
        output = objective.model.apply({"params": params}, *inputs)
        sums, _ = objective(params, None, batch, None)
        return sum(sums[term] / weight for term, weight in objective.weights(batch).items()), output

    (loss, output), grads = jax.value_and_grad(ours, has_aux=True)(tree)
    assert_close(loss, expected["loss"].detach(), "loss")
    for name in ("hidden_states", "attentions", "pooled", "masked_logits", "sentence_logits"):
        assert_close(np.array(getattr(output, name)), expected[name].detach(), name)
    found = {"/".join(path): leaf for path, leaf in flax.traverse_util.flatten_dict(grads).items()}
    assert found.keys() == gradients.keys()
    for path, gradient in gradients.items():
        # The gradient of a key bias is zero on paper, a softmax does not see it: it is measured by the query bias's.
        scale = np.abs(gradients[path.replace("key/bias", "query/bias")]).max()
        assert_close(found[path], gradient, path, float(scale))
