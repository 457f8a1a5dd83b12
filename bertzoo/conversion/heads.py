"""Leaving heads out of a model."""

from dataclasses import replace

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.models.tasks import MaskedLanguageModel, NoHead, parameter_shapes


def keep(pretrained: Pretrained, kind: str) -> tuple[Pretrained, list[str]]:
    """The model with only the head of this kind (none, replaced, or masked without a sentence head), and the parameters
    that are left out.

    Raises UserError where it has no such head.
    """
    head = pretrained.head
    if kind in pretrained.others:
        other = pretrained.others[kind]
        return other, [name for name in sorted(pretrained.params) if not name.startswith("embedding/")]
    if kind == head.kind == "replaced":
        return replace(pretrained, others={}), []
    if kind == "none":
        kept = NoHead(pooler=head.pooler)
    elif head.kind == "masked" and kind == "masked":
        kept = MaskedLanguageModel(pooler=head.pooler)
    else:
        raise UserError(f"{pretrained.origin} has no {kind} head to keep: its head is {head.kind}")
    names = parameter_shapes(pretrained.model, kept)
    params = {name: array for name, array in pretrained.params.items() if name in names}
    return replace(pretrained, head=kept, params=params), sorted(pretrained.params.keys() - names)


def leak_padding(pretrained: Pretrained) -> Pretrained:
    """The model with windows that see padding, as Hugging Face's classes have them; raises UserError where it has none.

    Rows without padding are computed as before.
    """
    if not hasattr(pretrained.model, "mask_padding"):
        raise UserError(
            f"--leak_padding: a model of kind {pretrained.model.kind} has no windows that could see padding"
        )
    try:
        return replace(pretrained, model=replace(pretrained.model, mask_padding=False))
    except ConfigError as error:
        raise UserError(f"--leak_padding: {error}") from error
