# pyright: reportMissingImports=false
"""ConvBERT beside Hugging Face's, live, at random odd sizes, windows and groups; run by `make parity`."""

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

from bertzoo.models import Compute, ConvBert
from bertzoo.objectives import Masked

TOLERANCE = 1e-5
NAMES = {
    "vocab_size": "vocab_size",
    "embedding_size": "embedding_size",
    "hidden_size": "hidden_size",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "head_ratio": "head_ratio",
    "conv_kernel_size": "kernel_size",
    "intermediate_size": "feed_forward_size",
    "num_groups": "feed_forward_groups",
    "max_position_embeddings": "max_positions",
    "type_vocab_size": "token_types",
    "layer_norm_eps": "norm_epsilon",
}


def random_settings(random: np.random.Generator, groups: int) -> dict[str, Any]:
    """Sizes that share few factors; a head_ratio of 2, since for others Hugging Face's head size is not the original's.

    The activation is gelu: Hugging Face's head has it whatever its config says.
    """
    heads = 2 * int(random.choice([1, 2, 3]))
    width = groups * heads * int(random.integers(2, 6))
    return {
        "vocab_size": int(random.integers(30, 200)),
        "embedding_size": int(random.choice([width, random.integers(5, 40)])),
        "hidden_size": width,
        "num_hidden_layers": int(random.integers(1, 4)),
        "num_attention_heads": heads,
        "head_ratio": 2,
        "conv_kernel_size": int(random.choice([1, 3, 5, 7, 9])),
        "intermediate_size": groups * int(random.integers(5, 30)),
        "num_groups": groups,
        "max_position_embeddings": int(random.integers(16, 40)),
        "type_vocab_size": int(random.integers(2, 4)),
        "layer_norm_eps": float(random.choice([1e-12, 1e-3])),
    }


def assert_close(ours: Any, theirs: Any, what: str, scale: float | None = None) -> None:
    """Equal to TOLERANCE of the reference's largest value, or of `scale`."""
    theirs = np.asarray(theirs)
    scale = float(np.abs(theirs).max()) if scale is None else scale
    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=0, atol=TOLERANCE * scale, err_msg=what)


@pytest.mark.parametrize(("seed", "groups"), [(0, 1), (2, 2), (3, 2), (5, 5)])
def test_forward_loss_and_gradients(seed: int, groups: int) -> None:
    random = np.random.default_rng([seed, groups])
    settings = random_settings(random, groups)
    theirs = reference.MODELS["convbert"](settings)
    reference.randomise(theirs, random)
    batch = reference.random_batch(random, settings["vocab_size"], lengths=(7, 13, 1 + int(random.integers(4, 12))))
    expected = theirs(batch)
    expected["loss"].backward()
    named, heads = dict(theirs.model.named_parameters()), settings["num_attention_heads"]
    params = layouts.convbert({name: tensor.detach().numpy() for name, tensor in named.items()}, heads)
    gradients = layouts.convbert({name: tensor.grad.numpy() for name, tensor in named.items()}, heads)

    config = ConvBert(mask_padding=False, **{NAMES[name]: value for name, value in settings.items()})
    objective = Masked().build(config, Compute())
    leaves = {path: jnp.asarray(value, jnp.float32) for path, value in params.items()}

    @jax.jit
    def ours(params):
        inputs = [batch[name] for name in ("input_ids", "token_type_ids", "attention_mask", "masked_positions")]
        output = objective.model.apply({"params": params}, *inputs)
        sums, _ = objective(params, None, batch, None)
        return sums["mlm"] / objective.weights(batch)["mlm"], output

    tree = flax.traverse_util.unflatten_dict(leaves, sep="/")
    (loss, output), grads = jax.value_and_grad(ours, has_aux=True)(tree)
    assert_close(loss, expected["loss"].detach(), "loss")
    for name in ("hidden_states", "attentions", "masked_logits"):
        assert_close(np.array(getattr(output, name)), expected[name].detach(), name)
    found = {"/".join(path): leaf for path, leaf in flax.traverse_util.flatten_dict(grads).items()}
    assert found.keys() == gradients.keys()
    for path, gradient in gradients.items():
        # The gradient of a key bias is zero on paper, a softmax does not see it: it is measured by the query bias's.
        scale = np.abs(gradients[path.replace("attention/key/bias", "attention/query/bias")]).max()
        assert_close(found[path], gradient, path, float(scale))
