"""Generator and discriminator equal Hugging Face's on one embedding, with the replacements fixed (electra.npz)."""

import jax
import pytest
from arrays import assert_close
from test_golden import Golden, check_gradients, sizes

from bertzoo.models import Compute, Electra
from bertzoo.objectives import Replaced
from bertzoo.objectives.replaced import corrupt


@pytest.fixture(scope="module")
def golden():
    def build(settings):
        model = Electra(**sizes("electra", settings["model"]))
        return Replaced(generator_width=0.5, weight=settings["weight"]).build(model, Compute())

    return Golden("electra", build)


def test_forward(golden):
    objective, params, batch, theirs = golden.objective, golden.params, golden.batch, golden.flat_tree("outputs")

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
    objective, params, batch, theirs = golden.objective, golden.params, golden.batch, golden.flat_tree("outputs")

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
    check_gradients(golden, found)
    made = corrupt(batch, batch["drawn"])
    _, metrics = objective.loss(made, theirs["masked_logits"], theirs["replaced_logits"])
    for name, reference in (("mlm_loss", "masked_loss"), ("rtd_loss", "replaced_loss")):
        assert_close(metrics[name][0] / metrics[name][1], theirs[reference], name)
