"""Basics for all of bertzoo: errors, config files, paths and URLs, atomic writing of files.

It imports no other subpackage of bertzoo and no jax.
"""
