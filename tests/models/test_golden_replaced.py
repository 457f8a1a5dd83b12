"""Generator and discriminator equal Hugging Face's on one embedding, with the replacements fixed (electra.npz)."""

import json

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import assert_close
from test_golden import GOLDEN, assert_trees_close, sizes

from bertzoo.models import Compute, Electra
from bertzoo.objectives import Replaced
from bertzoo.objectives.replaced import corrupt


@pytest.fixture(scope="module")
def golden():
    """(objective, params, batch, outputs, gradients) of the file."""
    with np.load(GOLDEN / "electra.npz", allow_pickle=False) as file:
        flat = dict(file)
    settings = json.loads(str(flat["settings"]))
    config = Electra(**sizes("electra", settings["model"]))
    objective = Replaced(generator_width=0.5, weight=settings["weight"]).build(config, Compute())

    def tree(name):
        return {key.removeprefix(f"{name}/"): value for key, value in flat.items() if key.startswith(f"{name}/")}

    leaves = {path: jnp.asarray(array) for path, array in tree("params").items()}
    params = flax.traverse_util.unflatten_dict(leaves, sep="/")
    return objective, params, tree("batch"), tree("outputs"), tree("gradients")


def test_forward(golden):
    objective, params, batch, theirs, _ = golden

    @jax.jit
    def ours(params, batch):
        made = corrupt(batch, batch["drawn"])
        names = ("input_ids", "token_type_ids", "attention_mask")
        inputs = [batch[name] for name in names], [made[name] for name in names]
        apply, variables = objective.model.apply, {"params": params}
        return (
            apply(variables, *inputs[0], batch["masked_positions"], method="generate"),
            apply(variables, *inputs[1], method="discriminate"),
        )

    for (logits, output), name, prefix in zip(
        ours(params, batch), ("masked_logits", "replaced_logits"), ("generator_", ""), strict=True
    ):
        assert_close(logits, theirs[name], name)
        for index, reference in enumerate(theirs[f"{prefix}hidden_states"]):
            assert_close(output.hidden_states[index], reference, f"{prefix}hidden state {index}")
        for index, reference in enumerate(theirs[f"{prefix}attentions"]):
            assert_close(output.attentions[index], reference, f"{prefix}attention {index}")


def test_losses_and_gradients(golden):
    objective, params, batch, theirs, gradients = golden

    @jax.jit
    @jax.value_and_grad
    def ours(params):
        made = corrupt(batch, batch["drawn"])
        logits = objective.masked_logits(params, batch), objective.replaced_logits(params, made)
        sums, _ = objective.loss(made, *logits)
        weights = objective.weights(batch)
        return sum(sums[term] / weights[term] for term in sums)

    loss, found = ours(params)
    assert_close(loss, theirs["loss"], "loss")
    zero = [path for path in gradients if path.endswith("key/bias")]
    scale = {path: float(np.abs(gradients[path.replace("key", "query")]).max()) for path in zero}
    assert_trees_close(found, gradients, scale)
    made = corrupt(batch, batch["drawn"])
    _, metrics = objective.loss(made, theirs["masked_logits"], theirs["replaced_logits"])
    for name, reference in (("mlm_loss", "masked_loss"), ("rtd_loss", "replaced_loss")):
        assert_close(metrics[name][0] / metrics[name][1], theirs[reference], name)
