"""Leaving heads out of a model."""

from dataclasses import replace

from bertzoo.convert.pretrained import Pretrained
from bertzoo.errors import UserError
from bertzoo.models.tasks import MaskedLanguageModel, NoHead, parameter_shapes


def keep(pretrained: Pretrained, kind: str) -> tuple[Pretrained, list[str]]:
    """The model with only the head of this kind (none, or masked without a sentence head), and the dropped parameters.

    Raises UserError where it has no such head.
    """
    head = pretrained.head
    if kind == "none":
        kept = NoHead(pooler=head.pooler)
    elif head.kind == "masked" and kind == "masked":
        kept = MaskedLanguageModel(pooler=head.pooler)
    else:
        raise UserError(f"{pretrained.origin} has no {kind} head to keep: its head is {head.kind}")
    names = parameter_shapes(pretrained.model, kept)
    params = {name: array for name, array in pretrained.params.items() if name in names}
    return replace(pretrained, head=kept, params=params), sorted(pretrained.params.keys() - names)
