# pyright: reportMissingImports=false
"""ELECTRA's two models beside Hugging Face's, live, at random sizes, with the replacements fixed."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparing import assert_close, assert_gradients_close, needs, tree

needs("torch", "transformers")

import layouts
import reference
from test_huggingface import NAMES, random_settings

from bertzoo.models import Compute, Electra
from bertzoo.objectives import Replaced
from bertzoo.objectives.replaced import corrupt


def sizes_of_both(random: np.random.Generator, seed: int) -> tuple[dict[str, Any], dict[str, Any], float]:
    """Hugging Face's settings of the two, and the generator's share of the width."""
    settings = random_settings(random, "electra") | {"embedding_size": int(random.integers(5, 40))}
    if seed == 0:  # a generator of two heads, and an embedding as wide as both models
        settings |= {"hidden_size": 128, "num_attention_heads": 4, "embedding_size": 128}
    settings |= {"hidden_act": "gelu"}  # Hugging Face's generator has gelu before its head whatever the config says
    width = 1.0 if seed == 0 else float(random.choice([0.25, 0.5, 1.0]))
    hidden = round(width * settings["hidden_size"])
    smaller = {"hidden_size": hidden, "num_attention_heads": max(1, hidden // 64), "intermediate_size": 4 * hidden}
    return settings, settings | smaller, width


@pytest.mark.parametrize("seed", range(4))
def test_forward_losses_and_gradients(seed: int) -> None:
    random = np.random.default_rng([seed, 7])
    settings, smaller, width = sizes_of_both(random, seed)
    weight = float(random.integers(1, 60))
    theirs = reference.Electra(settings, smaller, weight)
    reference.randomise(theirs, random)
    batch = reference.random_batch(random, settings["vocab_size"], lengths=(7, 13, 1 + int(random.integers(4, 12))))
    batch["drawn"] = reference.drawn(random, batch, settings["vocab_size"])
    expected = theirs(batch)
    expected["loss"].backward()
    heads, named = (settings["num_attention_heads"], smaller["num_attention_heads"]), dict(theirs.named_parameters())
    params = layouts.electra({name: tensor.detach().numpy() for name, tensor in named.items()}, *heads)
    gradients = layouts.electra({name: tensor.grad.numpy() for name, tensor in named.items()}, *heads)

    sizes = {NAMES[name]: value for name, value in settings.items() if name in NAMES}
    config = Electra(**sizes, embedding_size=settings["embedding_size"])
    objective = Replaced(generator_width=width, weight=weight).build(config, Compute())

    @jax.jit
    def ours(params):
        names = ("input_ids", "token_type_ids", "attention_mask")
        made = corrupt(batch, batch["drawn"])
        masked, generator = objective.model.apply(
            {"params": params}, *(batch[name] for name in names), batch["masked_positions"], method="generate"
        )
        replaced, output = objective.model.apply(
            {"params": params}, *(made[name] for name in names), method="discriminate"
        )
        sums, metrics = objective.loss(made, masked, replaced)
        loss = sum(sums[term] / total for term, total in objective.weights(batch).items())
        found = {
            "masked_logits": masked,
            "replaced_logits": replaced,
            "generator_hidden_states": jnp.stack(generator.hidden_states),
            "generator_attentions": jnp.stack(generator.attentions),
            "hidden_states": jnp.stack(output.hidden_states),
            "attentions": jnp.stack(output.attentions),
            "masked_loss": metrics["mlm_loss"][0] / metrics["mlm_loss"][1],
            "replaced_loss": metrics["rtd_loss"][0] / metrics["rtd_loss"][1],
        }
        return loss, found

    (loss, found), grads = jax.value_and_grad(ours, has_aux=True)(tree(params))
    assert_close(loss, expected["loss"].detach(), "loss")
    assert found.keys() == expected.keys() - {"loss"}
    for name, value in found.items():
        assert_close(value, expected[name].detach(), name)
    assert_gradients_close(grads, gradients)
