"""The graph that a phone runs, built from a Linen model."""
