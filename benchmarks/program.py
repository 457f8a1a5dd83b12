"""The program itself, run by a script."""

import subprocess
import sys


def bertzoo(*words: str) -> str:
    """Run it and return what it prints; its messages go on."""
    command = [sys.executable, "-m", "bertzoo", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
