"""Reduce a model to one head or none, add pooling, and let its convolutions read padding, as Hugging Face's do."""

import hashlib
import json
from dataclasses import replace
from typing import Any

from bertzoo.conversion import tensors
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core.config import plain
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.heads import NoHead, SentenceEmbedding, parameter_shapes
from bertzoo.models import Compute


def keep_head(pretrained: Pretrained, kind: str) -> tuple[Pretrained, list[str]]:
    """Return the model with only the head `kind`, without a sentence head, and the names of the dropped parameters.

    kind: that of a head, or "none". Raises UserError if the model has no such head.
    """
    head = pretrained.head
    if pretrained.generator is not None and kind == pretrained.generator.head.kind:
        return pretrained.generator, [name for name in sorted(pretrained.params) if not name.startswith("embedding/")]
    if kind == "none":
        new_head = NoHead(pooler=head.pooler or any(name.startswith("pooler/") for name in pretrained.unused))
    elif kind == head.kind:
        new_head = replace(head, sentence=False) if getattr(head, "sentence", False) else head
    else:
        raise UserError(
            f"{pretrained.origin} has the head {head.kind}, not {kind}. Use --head=none, or leave --head out."
        )
    return _with_head(pretrained, new_head)


def add_pooling(pretrained: Pretrained, pooling: str | None) -> Pretrained:
    """Return a model without a head as one that pools the states of its tokens, by default by "mean".

    With "first", it keeps its pooler. A model with a head is returned as it is; a pooling for it raises UserError.
    """
    if pretrained.head.kind != "none":
        if pooling is not None:
            raise UserError(
                f"--pooling applies only to models without a head; this model has head {pretrained.head.kind}. "
                "Add --head=none, or leave --pooling out."
            )
        return pretrained
    pooler = pooling == "first" and pretrained.head.pooler
    fields: dict[str, Any] = {"pooling": pooling or "mean", "pooler": pooler}
    return _with_head(pretrained, SentenceEmbedding(**fields, normalise=False))[0]


def shape_vectors(pretrained: Pretrained, size: int | None, output: str | None) -> Pretrained:
    """Return the model with vectors of the first `size` dimensions, which a file outputs in the form `output`.

    None keeps the model's value. Raises UserError if the model has no vectors, or none of that size or form.
    """
    if size is None and output is None:
        return pretrained
    head, name = pretrained.head, "--size" if output is None else "--output"
    if not isinstance(head, SentenceEmbedding):
        raise UserError(
            f"{name} applies to vectors of texts, but {pretrained.origin} has the head {head.kind}. Leave {name} out."
        )
    if size is not None and size > (width := head.width(pretrained.model)):
        raise UserError(f"--size={size} is above the {width} dimensions of the vectors. Use a smaller one.")
    head = replace(head, output=output or head.output)
    if size is not None:
        head = replace(head, size=size, sizes=tuple(other for other in head.sizes if other < size))
    try:
        head.build(pretrained.model, Compute())
    except ConfigError as error:
        raise UserError(f"{name}: {error}") from error
    return replace(pretrained, head=head)


def vectors_digest(pretrained: Pretrained) -> str:
    """Return the SHA-256 of all that determines texts' vectors, except size, form in a file, and greatest length."""
    head = {name: value for name, value in plain(pretrained.head).items() if name not in ("size", "sizes", "output")}
    tokenizer, vocabulary = pretrained.tokenizer, None
    if tokenizer is not None:
        contents = hashlib.sha256(tokenizer.contents).hexdigest()
        vocabulary = [tokenizer.config.kind, tokenizer.config.normalization, contents]
    facts = [tensors.digest(pretrained.params), plain(pretrained.model), head, vocabulary]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _with_head(pretrained: Pretrained, head: Any) -> tuple[Pretrained, list[str]]:
    names = parameter_shapes(pretrained.model, head)
    params = {name: array for name, array in (pretrained.params | pretrained.unused).items() if name in names}
    return replace(pretrained, head=head, params=params, generator=None), sorted(pretrained.params.keys() - names)


def leak_padding(pretrained: Pretrained) -> Pretrained:
    """Return the model with mask_padding = false, as at Hugging Face; raises UserError if it has no mask_padding."""
    if not hasattr(pretrained.model, "mask_padding"):
        raise UserError(
            f"--leak_padding does not apply to a model of kind {pretrained.model.kind}, which has no mask_padding. "
            "Leave the option out."
        )
    try:
        return replace(pretrained, model=replace(pretrained.model, mask_padding=False))
    except ConfigError as error:
        raise UserError(f"--leak_padding: {error}") from error
