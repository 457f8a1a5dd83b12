"""What every room needs: errors, config files, names of paths and URLs, files written whole.

It imports no other room and no jax.
"""
