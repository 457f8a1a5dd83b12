"""A fake of Slurm's srun: it records its options in `srun`, then runs the task. As the real one it passes SIGUSR1 on to
all processes of the task, and kills them on SIGTERM.
"""

import os
import signal
import subprocess
import sys
from typing import Any


def main() -> int:
    start = sys.argv.index("sh")
    with open("srun", "a") as file:
        file.write(" ".join(sys.argv[1:start]) + "\n")
    task = subprocess.Popen(sys.argv[start:], start_new_session=True)

    def passed(number: int, _: Any) -> None:
        os.killpg(task.pid, number if number == signal.SIGUSR1 else signal.SIGKILL)

    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, passed)
    code = task.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
