"""The command line: one module per command, which declares flags and prints; `main` imports only the one requested.

`bertzoo.api` offers the commands to Python; `support` holds what several commands share.
"""
