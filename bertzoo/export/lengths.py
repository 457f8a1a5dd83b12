"""Which lengths a file is made for and proved at, in order; UserError where a model or a format cannot have them."""

from collections.abc import Sequence

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core.errors import UserError
from bertzoo.models.tasks import JointSpanExtraction

SHORTEST = 4  # tokens: [CLS], one of the text, [SEP], one of padding
USUAL = 128


def each(pretrained: Pretrained, asked: Sequence[int]) -> tuple[int, ...]:
    """Of a format that has a graph for each length: those asked for, or the usual one as far as the model reads."""
    longest = pretrained.model.max_positions
    for length in asked:
        if length < SHORTEST:
            raise UserError(f"--lengths: {length} tokens hold no text; give at least {SHORTEST}")
        if length > longest:
            raise UserError(f"--lengths: {length} is beyond the {longest} positions of the model")
    return tuple(sorted(set(asked))) or (min(USUAL, longest),)


def single(pretrained: Pretrained, asked: Sequence[int]) -> tuple[int]:
    """Of a format whose graph has one length."""
    first, *more = each(pretrained, asked)
    if more:
        raise UserError(
            f"--lengths: an ExecuTorch file reads one length, not {len(more) + 1}: name one, and write a file for each"
        )
    return (first,)


def free(pretrained: Pretrained, asked: Sequence[int]) -> tuple[int, ...]:
    """Of a format whose graph reads any length, which it is proved at: those asked for, or the shortest, the usual one
    and the longest.
    """
    shortest, longest = bounds(pretrained)
    found = each(pretrained, asked or (shortest, min(max(USUAL, shortest), longest), longest))
    if found[0] < shortest:
        raise UserError(f"--lengths: {found[0]} tokens are fewer than the {shortest} starts that the head looks at")
    return found


def fixed_or_free(pretrained: Pretrained, asked: Sequence[int]) -> tuple[int, ...]:
    """Of a format whose graph has one length, where one is asked for, or reads any."""
    return each(pretrained, asked) if len(set(asked)) == 1 else free(pretrained, asked)


def bounds(pretrained: Pretrained) -> tuple[int, int]:
    """The shortest and the longest row of a graph that reads any length."""
    head = pretrained.head
    starts = head.beam if isinstance(head, JointSpanExtraction) else 0
    return min(max(SHORTEST, starts), pretrained.model.max_positions), pretrained.model.max_positions
