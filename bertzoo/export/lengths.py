"""Choose the row lengths that a file is made for and verified at; raises UserError for unsupported ones."""

from collections.abc import Iterable, Sequence
from typing import Any

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core.errors import UserError

SHORTEST = 4  # tokens: [CLS], one of the text, [SEP], one of padding
USUAL = 128


def resolve_lengths(pretrained: Pretrained, lengths: Sequence[int]) -> tuple[int, ...]:
    """Return the lengths, in tokens, checked and sorted, or if there are none USUAL or max_positions."""
    check_lengths(lengths, pretrained.model.max_positions)
    return tuple(sorted(set(lengths))) or (min(USUAL, pretrained.model.max_positions),)


def check_lengths(lengths: Iterable[int], longest: int) -> None:
    """Raise UserError if a length leaves no room for text or exceeds `longest`, the model's max_positions."""
    for length in lengths:
        if length < SHORTEST:
            raise UserError(f"--lengths={length} leaves no room for text. Give at least {SHORTEST}.")
        if length > longest:
            raise UserError(f"--lengths={length} is more than the model's {longest} positions. Use at most {longest}.")


def fixed_or_variable_lengths(pretrained: Pretrained, lengths: Sequence[int]) -> tuple[int, ...]:
    """Return the lengths at which to verify a file; if none is requested, the shortest, USUAL and the longest.

    The file accepts only one length if exactly one is requested, and otherwise every length within `length_bounds`.
    Raises UserError for a variable length if the model's keys have a stride, for which torch.export needs one length.
    """
    if len(set(lengths)) == 1:
        return resolve_lengths(pretrained, lengths)
    model: Any = pretrained.model
    if (stride := getattr(getattr(model, "attention", model), "stride", 1)) > 1:
        raise UserError(
            f"this model's keys have stride = {stride}, so an ONNX file needs rows of one length. Add a length, "
            f"such as --lengths={USUAL}."
        )
    shortest, longest = length_bounds(pretrained)
    resolved = resolve_lengths(pretrained, lengths or (shortest, min(max(USUAL, shortest), longest), longest))
    if resolved[0] < shortest:
        raise UserError(
            f"--lengths={resolved[0]} is less than the {shortest} tokens that the head {pretrained.head.kind} needs. "
            f"Use {shortest} or more."
        )
    return resolved


def text_lengths(pretrained: Pretrained, lengths: Sequence[int]) -> tuple[int, ...]:
    """Return the lengths at which to verify a file that takes texts, as `fixed_or_variable_lengths` does.

    Raises UserError also if the model's outputs depend on padding, and `lengths` do not name exactly one length. A file
    of several lengths pads the row of a text only to the shortest length. The model's outputs for this row would differ
    from those for a row with more padding.
    """
    if pretrained.model.padding_seen and len(set(lengths)) != 1:
        raise UserError(
            f"--to=onnx-text: this {pretrained.model.kind} model reads padding (mask_padding = false), so every row "
            f"needs the same length, but --lengths names {len(set(lengths))} lengths. Use one, such as "
            f"--lengths={USUAL}."
        )
    return fixed_or_variable_lengths(pretrained, lengths)


def length_bounds(pretrained: Pretrained) -> tuple[int, int]:
    """Return the shortest and the longest row, in tokens, that a file of variable length accepts."""
    longest = pretrained.model.max_positions
    return min(max(SHORTEST, pretrained.head.shortest), longest), longest
