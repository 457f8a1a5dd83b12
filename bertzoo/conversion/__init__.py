"""Other people's checkpoints under our names and back: one table per architecture, used in both directions."""
