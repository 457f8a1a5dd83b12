"""Feed-forward sizes: one for all layers, or one per layer, as in pruned models."""

from bertzoo.core.errors import ConfigError
from bertzoo.models.parts import check_divides

FeedForwardSize = int | tuple[int, ...]  # one for all layers, or one per layer


def per_layer(size: FeedForwardSize, layers: int) -> tuple[int, ...]:
    """Return the feed-forward size of each layer. size: one for all layers, or a tuple with one per layer."""
    return size if isinstance(size, tuple) else (size,) * layers


def check_feed_forward_size(size: FeedForwardSize, layers: int, **groups: int) -> None:
    """Raise ConfigError unless `size` is an int or one int per layer, and every number in `groups` divides each int."""
    if isinstance(size, tuple) and len(size) != layers:
        raise ConfigError(
            f"feed_forward_size lists {len(size)} sizes, but layers = {layers}. Give one size per layer, or one size "
            "for all layers."
        )
    for width in dict.fromkeys(per_layer(size, layers)):
        check_divides("feed_forward_size", width, **groups)
