"""Feed-forwards of one size in all layers, or of a size of its own in each, as a pruned model has them."""

from bertzoo.core.errors import ConfigError
from bertzoo.models.parts import check_divides

FeedForwardSize = int | tuple[int, ...]  # of a config: of all layers, or of each


def per_layer(size: FeedForwardSize, layers: int) -> tuple[int, ...]:
    """The size in every layer."""
    return size if isinstance(size, tuple) else (size,) * layers


def check_feed_forward_size(size: FeedForwardSize, layers: int, **groups: int) -> None:
    """Raise ConfigError unless there is one size, or one for each layer, and the groups divide all of them."""
    if isinstance(size, tuple) and len(size) != layers:
        raise ConfigError(
            f"feed_forward_size lists {len(size)}, but layers = {layers}: give one size for each, or one for all"
        )
    for each in dict.fromkeys(per_layer(size, layers)):
        check_divides("feed_forward_size", each, **groups)
