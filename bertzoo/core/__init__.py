"""Basics of every room: errors, config files, paths and URLs, files written whole.

It imports no other room and no jax.
"""
