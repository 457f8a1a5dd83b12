"""Settings without meaning, or that contradict each other, raise an error that names them and their values."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import pytest
from messages import mentioning

from bertzoo.core.errors import ConfigError
from bertzoo.data.mask import Masking
from bertzoo.data.settings import Data, MixtureSource
from bertzoo.models import ConvBert, MobileBert, ModernBert, SqueezeBert
from bertzoo.models.attention import GroupedHeads
from bertzoo.tasks.custom import CustomFiles
from bertzoo.train import sharding
from bertzoo.train.experiment import Stage
from bertzoo.train.hosts import Cluster
from bertzoo.train.loop import RunSettings
from bertzoo.train.optim import AdamW, Lamb, Muon, Schedule

NARROW = {"hidden_size": 24, "heads": 4}
SQUEEZEBERT = partial(SqueezeBert, **NARROW, feed_forward_size=48)
CONVBERT = partial(ConvBert, **NARROW, feed_forward_size=48, feed_forward_groups=2)
MOBILEBERT = partial(MobileBert, **NARROW, embedding_size=10, bottleneck_size=16, feed_forward_size=20, feed_forwards=2)
MOBILEBERT_OF_STREAM = partial(MOBILEBERT, attention_input="stream")
ADAMW, LAMB, MUON = (partial(kind, learning_rate=0.1) for kind in (AdamW, Lamb, Muon))
STAGE = partial(Stage, steps=1, batch_size=4, max_length=32)
EXPLICIT = {"coordinator": "10.0.0.1:1234", "processes": 4, "process": 3}


def mixed_data(mixture: tuple[dict[str, Any], ...] = (), **changes: Any) -> Data:
    """Settings of a mixture, whose parts are built here, as a part may be what is wrong."""
    return Data(mixture=tuple(MixtureSource(**part) for part in mixture), **changes)


def mesh_of_eight(**sizes: int) -> jax.sharding.Mesh:
    return sharding.make_mesh(sharding.Mesh(**sizes), jax.devices()[:8])


REFUSED: list[tuple[Callable[..., Any], dict[str, Any], tuple[Any, ...]]] = [
    (Masking, {"share": 0.0}, ("share", 0.0)),
    (Masking, {"mask_share": 0.9, "random_share": 0.2}, ("mask_share", 0.9, "random_share", 0.2)),
    (Masking, {"random_share": -0.1}, ("random_share", -0.1)),
    (Masking, {"max_span": 3}, ("max_span", 3, "'token'")),
    (Masking, {"kind": "span", "max_span": -1}, ("max_span", -1)),
    (Masking, {"kind": "span", "max_span": 1001}, ("max_span", 1001, 1000)),
    (Data, {"heldout": 0.0}, ("heldout", 0.0)),
    (Data, {"heldout": 1.0}, ("heldout", 1.0)),
    (Data, {"language": "English"}, ("language", "'English'")),
    (Data, {"minimum_tokens": 0}, ("minimum_tokens", "0")),
    (Data, {"piece_bytes": 0}, ("piece_bytes", "0")),
    (mixed_data, {"source": "mixture"}, ("mixture", "sources")),
    (mixed_data, {"mixture": ({"source": "a"}, {"source": "a"})}, ("'a'", "twice")),
    (mixed_data, {"mixture": ({"source": "a", "weight": 0.0},)}, ("weight", 0.0, "'a'")),
    (mixed_data, {"mixture": ({"source": "a", "weight": float("inf")},)}, ("weight", "inf", "'a'")),
    (mixed_data, {"mixture": ({"source": "mixture"},)}, ("'mixture'", "a source of")),
    (Cluster, {"processes": 2, "process": 0}, ("--distributed.coordinator",)),
    (Cluster, {"coordinator": "a:1"}, ("--distributed.processes", "--distributed.process")),
    (Cluster, {**EXPLICIT, "process": 4}, ("--distributed.process=4", 4)),
    (Cluster, {**EXPLICIT, "process": -1}, ("--distributed.process=-1", 0, 3)),
    (Cluster, {**EXPLICIT, "coordinator": "host"}, ("--distributed.coordinator=host",)),
    (Cluster, {**EXPLICIT, "coordinator": "host:99999"}, ("--distributed.coordinator=host:99999", "port", 1, 65535)),
    (Cluster, {**EXPLICIT, "coordinator": "host:0"}, ("--distributed.coordinator=host:0", "port", 1, 65535)),
    (Cluster, {"heartbeat_timeout": 0}, ("--distributed.heartbeat_timeout=0",)),
    (Cluster, {"start_timeout": -3}, ("--distributed.start_timeout=-3",)),
    (CONVBERT, {"kernel_size": 4}, ("kernel_size = 4",)),
    (CONVBERT, {"heads": 5}, ("heads = 5", "hidden_size = 24")),
    (CONVBERT, {"feed_forward_groups": 5}, ("feed_forward_groups = 5", "hidden_size = 24")),
    (
        CONVBERT,
        {"feed_forward_groups": 3, "feed_forward_size": 40},
        ("feed_forward_groups = 3", "feed_forward_size = 40"),
    ),
    (CONVBERT, {"head_ratio": 0}, ("head_ratio = 0",)),
    (CONVBERT, {"convolution": "none", "kernel_size": 5}, ("kernel_size = 5", 'convolution = "none"', 9)),
    (
        CONVBERT,
        {"convolution": "none", "mask_padding": False},
        ("mask_padding = false", 'convolution = "none"', "true"),
    ),
    (MOBILEBERT, {"heads": 5}, ("heads = 5", "bottleneck_size = 16")),
    (MOBILEBERT, {"embedding_size": 25}, ("embedding_size = 25", "hidden_size = 24")),
    (MOBILEBERT, {"feed_forwards": 0}, ("feed_forwards = 0",)),
    (MOBILEBERT, {"bottleneck_size": 0}, ("bottleneck_size = 0",)),
    (MOBILEBERT, {"bottleneck_size": None}, ('attention_input = "shared"', 'bottleneck_size = "none"')),
    (
        MOBILEBERT,
        {"bottleneck_size": None, "attention_input": "stream"},
        ("feed_forwards = 2", 'bottleneck_size = "none"', "feed_forwards = 1"),
    ),
    (MOBILEBERT, {"bottleneck_size": None, "heads": 7}, ("heads = 7", "hidden_size = 24")),
    (MOBILEBERT, {"dropout": 1.0}, ("dropout = 1.0",)),
    (
        MOBILEBERT_OF_STREAM,
        {"attention": GroupedHeads(query_groups=3)},
        ("query_groups", 3, "bottleneck_size", 16, "1, 2, 4"),
    ),
    (MOBILEBERT_OF_STREAM, {"attention": GroupedHeads(key_groups=16), "hidden_size": 40}, ("key_groups", 16)),
    (MOBILEBERT_OF_STREAM, {"feed_forward_groups": 8}, ("feed_forward_groups", 8, "feed_forward_size", 20)),
    (SQUEEZEBERT, {"heads": 5}, (5, "hidden_size", 24)),
    (SQUEEZEBERT, {"query_groups": 7}, ("query_groups", 7, "hidden_size", 24)),
    (SQUEEZEBERT, {"intermediate_groups": 3, "feed_forward_size": 49}, ("feed_forward_size", 49)),
    (SQUEEZEBERT, {"dropout": 1.0}, ("dropout = 1.0", 0.99)),
    (SQUEEZEBERT, {"norm_epsilon": 0.0}, ("norm_epsilon", 0.0, 1e-30)),
    (SQUEEZEBERT, {"norm_epsilon": 1e300}, ("norm_epsilon", 1e300, 1.0)),
    (SQUEEZEBERT, {"norm_epsilon": float("inf")}, ("norm_epsilon", "inf", 1.0)),
    (SQUEEZEBERT, {"initializer_range": 1e300}, ("initializer_range", 1e300, 1.0)),
    (SQUEEZEBERT, {"layers": 0}, ("layers = 0",)),
    (SQUEEZEBERT, {"kernel_size": 4}, ("kernel_size = 4",)),
    (SQUEEZEBERT, {"dilation": 2}, ("dilation = 2", "kernel_size = 1")),
    (SQUEEZEBERT, {"stride": 0}, ("stride = 0",)),
    (ModernBert, {"hidden_size": 6, "heads": 2}, ("heads = 2 of hidden_size = 6",)),
    (ModernBert, {"bottleneck_size": 9, "heads": 3}, ("heads = 3 of bottleneck_size = 9",)),
    (ModernBert, {"attention": GroupedHeads(kernel_size=3)}, ("attention.kernel_size = 3",)),
    (ModernBert, {"attention": GroupedHeads(stride=2)}, ("attention.stride = 2",)),
    (ModernBert, {"feed_forward_groups": 5}, ("feed_forward_groups = 5",)),
    (ModernBert, {"feed_forward_size": (8, 8)}, ("lists 2 sizes",)),
    (ModernBert, {"hidden_size": 0}, ("hidden_size = 0",)),
    (CustomFiles, {"kind": "multi_label"}, ("'multi_label'", "labels", "separator", "'label'")),
    (CustomFiles, {"separator": ";"}, ("separator", "';'", "'classification'")),
    (CustomFiles, {"kind": "multi_label", "labels": ("x", "y"), "label": "z"}, ("label", "'z'", "separator")),
    (CustomFiles, {"kind": "multi_label", "labels": ("x", "text")}, ("'text'",)),
    (CustomFiles, {"kind": "tokens", "text_b": "b"}, ("text_b", "'b'", "'tokens'")),
    (CustomFiles, {"kind": "regression", "labels": ("x", "y")}, ("labels", "['x', 'y']", "'regression'")),
    (CustomFiles, {"labels": ("x", "x")}, ("labels", "['x', 'x']")),
    (CustomFiles, {"text_b": "label"}, ("text_b", "label", "'label'")),
    (CustomFiles, {"kind": "span", "answer": "context"}, ("context", "answer", "'context'")),
    (CustomFiles, {"header": False, "dev": "a.parquet"}, ("header", ".tsv", ".csv", "a.parquet")),
    (CustomFiles, {"labels": ("x",)}, ("labels", "['x']")),
    (CustomFiles, {"metrics": ("pearson",)}, ("metrics", "['pearson']", "'classification'", "accuracy")),
    (CustomFiles, {"kind": "entities", "label": "x"}, ("label", "'x'", "'entities'")),
    (CustomFiles, {"kind": "entities", "text_b": "x"}, ("text_b", "'entities'")),
    (CustomFiles, {"kind": "entities", "spans": "text"}, ("text_a", "spans", "'text'")),
    (CustomFiles, {"kind": "tokens", "scheme": "BIOES"}, ("scheme", "'BIOES'", "'tokens'")),
    (CustomFiles, {"aggregation": "max"}, ("aggregation", "'max'", "'classification'")),
    (CustomFiles, {"kind": "entities", "metrics": ("word_f1",)}, ("word_f1", "entity_recall")),
    (CustomFiles, {"kind": "span", "text_a": "x"}, ("text_a", "'x'", "'span'")),
    (CustomFiles, {"kind": "regression", "unanswerable": True}, ("unanswerable", True, "'regression'")),
    (sharding.Mesh, {"data": -1, "fsdp": -1}, ("'data': -1", "'fsdp': -1")),
    (sharding.Mesh, {"tensor": 0}, ("tensor=0", "-1")),
    (MUON, {"momentum": 1.0}, ("momentum = 1.0",)),
    (MUON, {"iterations": 0}, ("iterations = 0",)),
    (MUON, {"update_rms": 0.0}, ("update_rms = 0.0",)),
    (MUON, {"beta1": 1.0}, ("beta1 = 1.0",)),
    (ADAMW, {"beta1": 1.0}, ("beta1 = 1.0",)),
    (ADAMW, {"learning_rate": -1.0}, ("learning_rate = -1.0",)),
    (ADAMW, {"clip_norm": float("inf")}, ("clip_norm = inf",)),
    (Schedule, {"warmup_steps": 5, "warmup_share": 0.1}, ("warmup_steps=5", "warmup_share=0.1")),
    (Schedule, {"power": 0.5}, ("kind", "power=0.5")),
    (Schedule, {"kind": "constant", "end_factor": 0.1}, ("constant", "end_factor")),
    (Schedule, {"warmup_share": 1.5}, ("warmup_share = 1.5",)),
    (Schedule, {"warmup_steps": -1}, ("warmup_steps = -1",)),
    (Schedule, {"end_factor": 2.0}, ("end_factor = 2.0",)),
    (Schedule, {"decay_share": 0.2}, ("decay_share=0.2", "wsd", "linear")),
    (Schedule, {"kind": "wsd", "decay_share": 0.0}, ("decay_share=0.0",)),
    (Schedule, {"kind": "wsd", "decay_share": 0.5, "warmup_share": 0.6}, ("decay_share=0.5", "warmup_share=0.6")),
    (Schedule, {"kind": "wsd", "decay_from": "warmup"}, ("wsd", "decay_from")),
    (Schedule, {"kind": "wsd", "warmup": "least"}, ("wsd", 'warmup="least"')),
    (Schedule, {"kind": "polynomial", "power": 0.0}, ("power = 0.0",)),
    (STAGE, {"batch_size": 10, "accumulate": 3}, ("batch_size=10", "accumulate=3")),
    (STAGE, {"max_predictions": 8, "max_length": 8}, ("max_predictions=8", "max_length=8")),
    (STAGE, {"steps": 0}, ("steps = 0",)),
    (STAGE, {"learning_rate": -1.0}, ("learning_rate = -1.0",)),
    (STAGE, {"masking_share": 1.0}, ("masking_share=1.0",)),
    (STAGE, {"masking_share": (0.3, 0.0)}, ("masking_share=[0.3, 0.0]",)),
    (STAGE, {"masking_share": (0.3, 0.2, 0.1)}, ("masking_share=[0.3, 0.2, 0.1]", "[first, last]")),
    (STAGE, {"masking_share": (0.15, 0.7)}, ("masking_share=[0.15, 0.7]", "max_predictions=20", "max_predictions=22")),
    (STAGE, {"masking_share": 0.99}, ("masking_share=0.99", "max_length=32", "Lower masking_share")),
    (STAGE, {"steps": 2**20, "batch_size": 2**11}, ("steps=1048576", "batch_size=2048")),
    (RunSettings, {"log_every": 0}, ("log_every = 0",)),
    (RunSettings, {"save_every": -1}, ("save_every = -1",)),
    (RunSettings, {"save_every": 30, "evaluate_every": 20}, ("save_every=30", "evaluate_every=20", "keep_best=1")),
    (RunSettings, {"profile_start": 3}, ("profile_start", "profile_steps", 3)),
    (RunSettings, {"profile_steps": 3}, ("profile_start", "profile_steps", 3)),
    (mesh_of_eight, {"data": 4}, (8, "data=4")),
    (mesh_of_eight, {"data": 16}, (8, "data=16")),
    (mesh_of_eight, {"tensor": 3}, (8, "tensor=3")),
    (mesh_of_eight, {"data": -1, "fsdp": 16}, (8, "data=-1", "fsdp=16")),
    # Without decay, its code has no trust ratio at all, which is Adam.
    (LAMB, {"variant": "nvidia", "weight_decay": 0.0}, ("nvidia", "weight_decay", 0.0, "google")),
]


@pytest.mark.parametrize(("build", "changes", "words"), REFUSED)
def test_settings_are_refused(build: Callable[..., Any], changes: dict[str, Any], words: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigError, match=mentioning(*words)):
        build(**changes)
