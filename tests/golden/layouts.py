"""Hugging Face state dictionaries under our names and in our layouts, in plain numpy.

The map only transposes and reshapes, so that gradients and updated parameters go through it as well. It is written out
by hand and apart from the package: it is the other side of the comparison.
"""

import re
from collections.abc import Callable, Mapping

import numpy as np

Tensors = dict[str, np.ndarray]

_NORM = {"weight": "scale", "bias": "bias"}
_DENSE = {"weight": "kernel", "bias": "bias"}

_SHARED = [  # (their module, our module, leaf names)
    (r"embeddings\.word_embeddings", "embedding/word", {"weight": "embedding"}),
    (r"embeddings\.position_embeddings", "embedding/position", {"weight": "embedding"}),
    (r"embeddings\.token_type_embeddings", "embedding/token_type", {"weight": "embedding"}),
    (r"embeddings\.LayerNorm", "embedding/norm", _NORM),
    (r"pooler\.dense", "pooler", _DENSE),
    (r"cls\.predictions\.transform\.dense", "masked_head/dense", _DENSE),
    (r"cls\.predictions\.transform\.LayerNorm", "masked_head/norm", _NORM),
    (r"cls\.predictions", "masked_head", {"bias": "bias"}),
    (r"cls\.seq_relationship", "sentence_head", _DENSE),
]
_BERT = [
    (r"encoder\.layer\.(\d+)\.attention\.self\.(query|key|value)", r"encoder/layers_\1/attention/\2", _DENSE),
    (r"encoder\.layer\.(\d+)\.attention\.output\.dense", r"encoder/layers_\1/attention/output", _DENSE),
    (r"encoder\.layer\.(\d+)\.attention\.output\.LayerNorm", r"encoder/layers_\1/attention_norm", _NORM),
    (r"encoder\.layer\.(\d+)\.intermediate\.dense", r"encoder/layers_\1/feed_forward/intermediate", _DENSE),
    (r"encoder\.layer\.(\d+)\.output\.dense", r"encoder/layers_\1/feed_forward/output", _DENSE),
    (r"encoder\.layer\.(\d+)\.output\.LayerNorm", r"encoder/layers_\1/feed_forward_norm", _NORM),
]
_SQUEEZEBERT = [
    (r"encoder\.layers\.(\d+)\.attention\.(query|key|value)", r"encoder/layers_\1/attention/\2", _DENSE),
    (r"encoder\.layers\.(\d+)\.post_attention\.conv1d", r"encoder/layers_\1/attention/output", _DENSE),
    (r"encoder\.layers\.(\d+)\.post_attention\.layernorm", r"encoder/layers_\1/attention_norm", _NORM),
    (r"encoder\.layers\.(\d+)\.intermediate\.conv1d", r"encoder/layers_\1/feed_forward/intermediate", _DENSE),
    (r"encoder\.layers\.(\d+)\.output\.conv1d", r"encoder/layers_\1/feed_forward/output", _DENSE),
    (r"encoder\.layers\.(\d+)\.output\.layernorm", r"encoder/layers_\1/feed_forward_norm", _NORM),
]
_ALBERT_LAYER = r"encoder\.albert_layer_groups\.0\.albert_layers\.0\."
_ALBERT = [
    (r"encoder\.embedding_hidden_mapping_in", "encoder/projection", _DENSE),
    (_ALBERT_LAYER + r"attention\.(query|key|value)", r"encoder/layers_0/attention/\1", _DENSE),
    (_ALBERT_LAYER + r"attention\.dense", "encoder/layers_0/attention/output", _DENSE),
    (_ALBERT_LAYER + r"attention\.LayerNorm", "encoder/layers_0/attention_norm", _NORM),
    (_ALBERT_LAYER + r"ffn", "encoder/layers_0/feed_forward/intermediate", _DENSE),
    (_ALBERT_LAYER + r"ffn_output", "encoder/layers_0/feed_forward/output", _DENSE),
    (_ALBERT_LAYER + r"full_layer_layer_norm", "encoder/layers_0/feed_forward_norm", _NORM),
    (r"pooler", "pooler", _DENSE),
    (r"predictions\.dense", "masked_head/dense", _DENSE),
    (r"predictions\.LayerNorm", "masked_head/norm", _NORM),
    (r"predictions", "masked_head", {"bias": "bias"}),
    (r"sop_classifier\.classifier", "sentence_head", _DENSE),
]
_DISTILBERT = [
    (r"transformer\.layer\.(\d+)\.attention\.q_lin", r"encoder/layers_\1/attention/query", _DENSE),
    (r"transformer\.layer\.(\d+)\.attention\.k_lin", r"encoder/layers_\1/attention/key", _DENSE),
    (r"transformer\.layer\.(\d+)\.attention\.v_lin", r"encoder/layers_\1/attention/value", _DENSE),
    (r"transformer\.layer\.(\d+)\.attention\.out_lin", r"encoder/layers_\1/attention/output", _DENSE),
    (r"transformer\.layer\.(\d+)\.sa_layer_norm", r"encoder/layers_\1/attention_norm", _NORM),
    (r"transformer\.layer\.(\d+)\.ffn\.lin1", r"encoder/layers_\1/feed_forward/intermediate", _DENSE),
    (r"transformer\.layer\.(\d+)\.ffn\.lin2", r"encoder/layers_\1/feed_forward/output", _DENSE),
    (r"transformer\.layer\.(\d+)\.output_layer_norm", r"encoder/layers_\1/feed_forward_norm", _NORM),
    (r"vocab_transform", "masked_head/dense", _DENSE),
    (r"vocab_layer_norm", "masked_head/norm", _NORM),
    (r"vocab_projector", "masked_head", {"bias": "bias"}),
]
_MOBILEBERT = [
    (r"embeddings\.embedding_transformation", "embedding/transformation", _DENSE),
    (r"encoder\.layer\.(\d+)\.bottleneck\.input\.dense", r"encoder/layers_\1/bottleneck/dense", _DENSE),
    (r"encoder\.layer\.(\d+)\.bottleneck\.input\.LayerNorm", r"encoder/layers_\1/bottleneck/norm", _NORM),
    (r"encoder\.layer\.(\d+)\.bottleneck\.attention\.dense", r"encoder/layers_\1/attention_input/dense", _DENSE),
    (r"encoder\.layer\.(\d+)\.bottleneck\.attention\.LayerNorm", r"encoder/layers_\1/attention_input/norm", _NORM),
    (r"encoder\.layer\.(\d+)\.attention\.self\.(query|key|value)", r"encoder/layers_\1/attention/\2", _DENSE),
    (r"encoder\.layer\.(\d+)\.attention\.output\.dense", r"encoder/layers_\1/attention/output", _DENSE),
    (r"encoder\.layer\.(\d+)\.attention\.output\.LayerNorm", r"encoder/layers_\1/attention_norm", _NORM),
    (r"encoder\.layer\.(\d+)\.output\.bottleneck\.dense", r"encoder/layers_\1/output", _DENSE),
    (r"encoder\.layer\.(\d+)\.output\.bottleneck\.LayerNorm", r"encoder/layers_\1/output_norm", _NORM),
    (r"cls\.predictions\.dense", "masked_head/extra", {"weight": "kernel"}),
]
_CONVBERT = [
    (r"embeddings_project", "encoder/projection", _DENSE),
    (r"encoder\.layer\.(\d+)\.attention\.self\.(query|key|value)", r"encoder/layers_\1/attention/\2", _DENSE),
    (
        r"encoder\.layer\.(\d+)\.attention\.self\.key_conv_attn_layer\.(depthwise|pointwise)",
        r"encoder/layers_\1/attention/convolution/span_key/\2",
        {"weight": "kernel"},
    ),
    (
        r"encoder\.layer\.(\d+)\.attention\.self\.key_conv_attn_layer",
        r"encoder/layers_\1/attention/convolution/span_key/pointwise",
        {"bias": "bias"},
    ),
    (
        r"encoder\.layer\.(\d+)\.attention\.self\.conv_kernel_layer",
        r"encoder/layers_\1/attention/convolution/kernel_generator",
        _DENSE,
    ),
    (
        r"encoder\.layer\.(\d+)\.attention\.self\.conv_out_layer",
        r"encoder/layers_\1/attention/convolution/value",
        _DENSE,
    ),
    *_BERT[1:],
    (r"generator_predictions\.dense", "masked_head/dense", _DENSE),
    (r"generator_predictions\.LayerNorm", "masked_head/norm", _NORM),
    (r"generator_lm_head", "masked_head", {"bias": "bias"}),
]

_ELECTRA = [
    (r"embeddings_project", "encoder/projection", _DENSE),
    *_BERT,
    (r"discriminator_predictions\.dense", "replaced_head/dense", _DENSE),
    (r"discriminator_predictions\.dense_prediction", "replaced_head/output", _DENSE),
    (r"generator_predictions\.dense", "masked_head/dense", _DENSE),
    (r"generator_predictions\.LayerNorm", "masked_head/norm", _NORM),
    (r"generator_lm_head", "masked_head", {"bias": "bias"}),
]


def _layout(path: str, tensor: np.ndarray, heads: int) -> np.ndarray:
    if path.endswith("/kernel"):
        if tensor.ndim == 3:  # Conv1d: (O, I/G, W) -> (W, I/G, O)
            return tensor.transpose(2, 1, 0)
        kernel = tensor.T  # Linear: (out, in) -> (in, out)
        if re.search(r"attention/(query|key|value)/", path):  # (D, H*K) -> (D, H, K)
            return kernel.reshape(kernel.shape[0], heads, -1)
        if "attention/output/" in path:  # (H*K, D) -> (H, K, D)
            return kernel.reshape(heads, -1, kernel.shape[1])
        return kernel
    return tensor


def _convert(state: Mapping[str, np.ndarray], rules: list, layout: Callable[[str, np.ndarray], np.ndarray]) -> Tensors:
    ours: Tensors = {}
    for name, tensor in state.items():
        prefix = r"^(bert|transformer(?!\.layer)|albert|convbert|distilbert|electra|mobilebert)\."
        module, leaf = re.sub(prefix, "", name).rsplit(".", 1)
        paths = [
            f"{re.sub(theirs, our, module)}/{leaves[leaf]}"
            for theirs, our, leaves in rules
            if re.fullmatch(theirs, module) and leaf in leaves
        ]
        if len(paths) != 1 or paths[0] in ours:
            raise KeyError(f"{name}: {len(paths)} rules, or its path is taken twice ({paths})")
        ours[paths[0]] = np.ascontiguousarray(layout(paths[0], tensor))
    return ours


def _heads_apart(heads: int) -> Callable[[str, np.ndarray], np.ndarray]:
    def layout(path: str, tensor: np.ndarray) -> np.ndarray:
        if re.search(r"attention/(query|key|value)/bias", path):
            return tensor.reshape(heads, -1)
        return _layout(path, tensor, heads)

    return layout


def bert(state: Mapping[str, np.ndarray], heads: int) -> Tensors:
    """`BertForPreTraining`'s tensors, tied duplicates left out, as `{our path: array in our layout}`."""
    return _convert(state, _SHARED + _BERT, _heads_apart(heads))


def albert(state: Mapping[str, np.ndarray], heads: int) -> Tensors:
    """`AlbertForPreTraining`'s tensors, tied duplicates left out, as `{our path: array in our layout}`."""
    return _convert(state, _SHARED[:4] + _ALBERT, _heads_apart(heads))


def distilbert(state: Mapping[str, np.ndarray], heads: int) -> Tensors:
    """`DistilBertForMaskedLM`'s tensors, tied duplicates left out, as `{our path: array in our layout}`."""
    return _convert(state, _SHARED[:4] + _DISTILBERT, _heads_apart(heads))


def electra(state: Mapping[str, np.ndarray], heads: int, generator_heads: int) -> Tensors:
    """The tensors of `ElectraForPreTraining` under `discriminator.` and of `ElectraForMaskedLM` under `generator.`, the
    embeddings, which they share, under the first, as `{our path: array in our layout}`.
    """

    def tower(name: str, heads: int) -> Tensors:
        own = {key.removeprefix(f"{name}."): tensor for key, tensor in state.items() if key.startswith(f"{name}.")}
        return _convert(own, _SHARED[:4] + _ELECTRA, _heads_apart(heads))

    generator = {f"generator/{path}": tensor for path, tensor in tower("generator", generator_heads).items()}
    return tower("discriminator", heads) | generator


def squeezebert(state: Mapping[str, np.ndarray], heads: int) -> Tensors:
    """`SqueezeBertForMaskedLM`'s tensors and a `cls.seq_relationship` Linear, as `{our path: array in our layout}`."""
    return _convert(state, _SHARED + _SQUEEZEBERT, lambda path, tensor: _layout(path, tensor, heads))


def _feed_forwards(count: int, plain: bool) -> list:
    """Rules for the stacked feed-forwards: the last one has BERT's names; a plain layer has just that one."""
    rules = []
    for index in range(count):
        module = rf"encoder\.layer\.(\d+)\.ffn\.{index}\." if index < count - 1 else r"encoder\.layer\.(\d+)\."
        number = "" if plain else f"_{index}"
        rules += [
            (module + r"(intermediate|output)\.dense", rf"encoder/layers_\1/feed_forward{number}/\2", _DENSE),
            (module + r"output\.LayerNorm", rf"encoder/layers_\1/feed_forward_norm{number}", _NORM),
        ]
    return rules


def mobilebert(state: Mapping[str, np.ndarray], heads: int) -> Tensors:
    """`MobileBertForPreTraining`'s tensors, tied duplicates left out, as `{our path: array in our layout}`."""

    def layout(path: str, tensor: np.ndarray) -> np.ndarray:
        if path == "masked_head/extra/kernel":  # used as it is stored, (D - E, V)
            return tensor
        if path == "embedding/transformation/kernel":  # (D, 3*E) -> (3, E, D): next, current, previous token
            return tensor.T.reshape(3, -1, len(tensor))
        if re.search(r"attention/(query|key|value)/bias", path):
            return tensor.reshape(heads, -1)
        return _layout(path, tensor, heads)

    stacked = {match[1] for name in state if (match := re.search(r"\.ffn\.(\d+)\.", name))}
    plain = not any(".bottleneck." in name for name in state)
    return _convert(state, _SHARED + _MOBILEBERT + _feed_forwards(len(stacked) + 1, plain), layout)


def convbert(state: Mapping[str, np.ndarray], heads: int) -> Tensors:
    """`ConvBertForMaskedLM`'s tensors as `{our path: array in our layout}`; half of its `heads` attend."""
    half = heads // 2

    def layout(path: str, tensor: np.ndarray) -> np.ndarray:
        if path.endswith("depthwise/kernel"):  # (D, 1, W) -> (W, D)
            return tensor[:, 0].T
        if "feed_forward/" in path and tensor.ndim == 3:  # groups: (G, in/G, out/G) -> (1, in/G, out)
            return tensor.transpose(1, 0, 2).reshape(1, tensor.shape[1], -1)
        if re.search(r"attention/(query|key|value|convolution/.*)/kernel", path):  # (H*K, D) -> (D, H, K)
            return tensor.reshape(*tensor.shape[:2]).T.reshape(tensor.shape[1], half, -1)
        if re.search(r"attention/(query|key|value|convolution/.*)/bias", path):
            return tensor.reshape(half, -1)
        return _layout(path, tensor, heads)

    return _convert(state, _SHARED + _CONVBERT, layout)
