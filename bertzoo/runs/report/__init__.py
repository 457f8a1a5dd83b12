"""Report a run as tables and pictures: metrics, curves, pruning cuts, attention maps and comparison with a record."""
