"""Report a run as tables and pictures: metrics, curves, recorded losses to compare, pruning cuts and attention maps."""
