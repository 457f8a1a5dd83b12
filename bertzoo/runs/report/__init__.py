"""A finished run as tables and pictures: metrics, curves, pruning cuts, attention maps, the curve on record."""
