"""Features that only ConvBERT has; test_golden.py compares it with Hugging Face's."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zoo
from arrays import flatten
from messages import mentioning
from test_models import build, loss
from tiers import quick
from zoo import batch_of

from bertzoo.core.errors import ConfigError
from bertzoo.models import Compute, ConvBert
from bertzoo.objectives import Masked
from bertzoo.train.state import boxed_shapes

CONVOLUTIONS = ["span", "dynamic", "fixed", "none"]
SMALL = zoo.CONVOLVED | {"layers": 1, "feed_forward_groups": 2}


def shapes(model: ConvBert) -> dict[str, Any]:
    """The parameters of the model under its masked head, by path."""
    return flatten(nn.unbox(boxed_shapes(Masked().build(model, Compute()))))


def config(**changes: Any) -> ConvBert:
    left_out = {"kernel_size"} if changes.get("convolution") == "none" else set()
    return ConvBert(**{name: size for name, size in SMALL.items() if name not in left_out} | changes)


def leak(model: ConvBert) -> tuple[float, float]:
    """Change of a real token's last state with the padding's ids, and with more padding."""
    batch = batch_of()
    ids, mask, where = batch["input_ids"], batch["attention_mask"], batch["masked_positions"]
    objective, params = build(model, "none")

    @jax.jit
    def last(ids: Any, mask: Any) -> jax.Array:
        return objective.model.apply({"params": params}, ids, mask * 0, mask, where).hidden_states[-1]

    def change(other: Any) -> float:
        return float(np.abs((np.asarray(other)[:, : ids.shape[1]] - plain) * mask[:, :, None]).max())

    plain = np.asarray(last(ids, mask))
    more = [np.pad(x, ((0, 0), (0, 3))) for x in (ids, mask)]
    return change(last(np.where(mask > 0, ids, 7), mask)), change(last(*more))


@pytest.mark.parametrize("convolution", quick(CONVOLUTIONS, *CONVOLUTIONS[:2]))
def test_padding_leaks_only_where_it_is_let(convolution: Any) -> None:
    """One layer shows it; later layers spread a leak."""
    assert max(leak(config(convolution=convolution))) < 1e-5
    if convolution != "none":
        assert min(leak(config(convolution=convolution, mask_padding=False))) > 1e-3


def test_groups_and_convolution_learn_together() -> None:
    """SqueezeBERT's groups in ConvBERT's feed-forward: every leaf has a gradient."""
    objective, params = build(config(), "none")
    gradients = jax.jit(jax.grad(lambda p: loss(objective, p, batch_of())))(params)
    dead = {path for path, leaf in flatten(gradients).items() if not float(np.abs(leaf).max()) > 1e-6}
    assert dead <= {"encoder/layers_0/attention/key/bias"}  # a softmax over keys sees no constant
    assert flatten(gradients)["encoder/layers_0/feed_forward/intermediate/kernel"].shape == (1, 12, 20)


@pytest.mark.parametrize("change", [{"head_ratio": 4}, *({"convolution": kind} for kind in CONVOLUTIONS[1:])], ids=str)
def test_the_sorts_of_heads_change_the_parameters(change: dict[str, Any]) -> None:
    """test_golden.py has other kernel, group and embedding sizes than the defaults."""
    plain, changed = ({path: x.shape for path, x in shapes(model).items()} for model in (config(), config(**change)))
    assert plain != changed


def test_kernels_start_as_the_official_code_has_them() -> None:
    """A standard deviation of 1/W for the depthwise kernels, initializer_range for the rest, before a cut at 2σ."""
    model = config(hidden_size=240, kernel_size=9, initializer_range=0.02)
    init = Masked().build(model, Compute()).init
    convolution = jax.jit(lambda key: nn.unbox(init(key))["encoder"]["layers_0"]["attention"]["convolution"])(
        jax.random.key(1)
    )
    depthwise, pointwise = (convolution["span_key"][name]["kernel"] for name in ("depthwise", "pointwise"))
    assert depthwise.shape == (9, 240)
    for kernel, deviation in ((depthwise, 1 / 9), (pointwise, 0.02), (convolution["value"]["kernel"], 0.02)):
        assert float(kernel.std()) == pytest.approx(0.88 * deviation, rel=0.05)
        assert float(jnp.abs(kernel).max()) <= 2 * deviation


def test_a_narrow_generator_keeps_one_head_of_full_size() -> None:
    """Official: 1 head of 64 attends and 1 convolves, so that the output reads 128 of a width of 64."""
    found = shapes(dataclasses.replace(ConvBert().generator(0.25), layers=1))
    assert found["encoder/layers_0/attention/output/kernel"].shape == (2, 64, 64)


def test_a_generator_whose_heads_do_not_fit_raises() -> None:
    with pytest.raises(ConfigError, match=mentioning("0.3", 4, "hidden_size", 230)):
        ConvBert(hidden_size=768, heads=12).generator(0.3)
