"""Feed-forward sizes per layer, in models that usually have one for all layers."""

from dataclasses import replace

import pytest
from messages import mentioning
from zoo import CASES

from benchmarks.lib.electra_flops import _elementwise_flops
from bertzoo.core import config
from bertzoo.core.errors import ConfigError
from bertzoo.heads import NoHead, parameter_shapes
from bertzoo.models import ConvBert, MobileBert, SqueezeBert
from bertzoo.runs.configs import Pretrain

KINDS = ["squeezebert", "convbert-span", "mobilebert"]


def small(case: str) -> SqueezeBert | ConvBert | MobileBert:
    return CASES[case][0]


@pytest.mark.parametrize("case", KINDS)
def test_every_layer_has_its_own(case: str) -> None:
    even, wide = small(case), replace(small(case), feed_forward_size=28)
    uneven = replace(even, feed_forward_size=(20, 28))
    found, shapes, wider = (parameter_shapes(model, NoHead()) for model in (uneven, even, wide))
    assert found != shapes and found == {
        path: (wider if path.startswith("encoder/layers_1/") else shapes)[path] for path in shapes
    }
    assert parameter_shapes(replace(even, feed_forward_size=(20, 20)), NoHead()) == shapes
    least, between, most = (_elementwise_flops(model, even.hidden_size, 16) for model in (even, uneven, wide))
    assert between == (least + most) / 2


@pytest.mark.parametrize("case", KINDS)
def test_there_is_one_size_per_layer(case: str) -> None:
    with pytest.raises(ConfigError, match=mentioning("feed_forward_size", "lists 1", 2)):
        replace(small(case), feed_forward_size=(20,))
    with pytest.raises(ConfigError, match=mentioning("feed_forward_size = (20, 0)")):
        replace(small(case), feed_forward_size=(20, 0))
    if case != "mobilebert":
        with pytest.raises(ConfigError, match=mentioning("feed_forward_size", 21)):
            replace(small(case), feed_forward_size=(20, 21))


def test_a_config_has_one_size_or_a_list() -> None:
    def loaded(**options: str) -> SqueezeBert:
        return config.load(Pretrain, ["squeezebert"], [(f"model.{key}", text) for key, text in options.items()]).model

    assert loaded(feed_forward_size="1024").feed_forward_size == 1024
    assert loaded(feed_forward_size="[1024, 512]", layers="2").feed_forward_size == (1024, 512)
    with pytest.raises(ConfigError, match=mentioning("feed_forward_size", "'wide'")):
        loaded(feed_forward_size="wide")
    with pytest.raises(ConfigError, match=mentioning("model.feed_forward_size.0", "model.feed_forward_size")):
        loaded(**{"feed_forward_size.0": "1024"})
