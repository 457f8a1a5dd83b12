"""`python -m bertzoo` is the `bertzoo` command."""

from bertzoo.cli import entry

entry()
