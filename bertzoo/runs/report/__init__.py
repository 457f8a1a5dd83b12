"""Report a run as tables and pictures: metrics, curves, differences from recorded losses, cuts, attention."""
