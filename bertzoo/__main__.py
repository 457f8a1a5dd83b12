"""`python -m bertzoo` is the `bertzoo` command."""

from bertzoo.cli.start import entry

if __name__ == "__main__":
    entry()
