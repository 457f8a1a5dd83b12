"""Heads, one module per kind of output: config, Linen module, loss, export graph and what apps do with the outputs.

`kind` in the [head] table of model.toml selects a class of the union `Head`.
"""

from typing import Any, get_args

from bertzoo.heads.base import HeadConfig, NoHead, parameter_axes, parameter_shapes
from bertzoo.heads.embedding import SentenceEmbedding
from bertzoo.heads.labels import SequenceClassification, TokenClassification
from bertzoo.heads.multi_task import MultiTaskHead
from bertzoo.heads.pretraining import MaskedLanguageModel, ReplacedTokens
from bertzoo.heads.span import JointSpanExtraction, SpanExtraction, align_starts, drop_excluded

Head = (
    NoHead
    | MaskedLanguageModel
    | ReplacedTokens
    | SequenceClassification
    | TokenClassification
    | SpanExtraction
    | JointSpanExtraction
    | SentenceEmbedding
    | MultiTaskHead
)
KINDS: dict[str, type[HeadConfig]] = {head.kind: head for head in get_args(Head)}


def head_class(module: Any) -> type[HeadConfig]:
    """Return the config class of the head that a Linen module has; raises TypeError if no config names its class."""
    for head in KINDS.values():
        if head.module is type(module):
            return head
    raise TypeError(
        f"{type(module).__name__} is the module of no head in the union Head (bertzoo/heads/__init__.py), which has "
        f"{', '.join(KINDS)}. Add its config to the union, and set `module` there."
    )
