"""Run jobs on a Slurm cluster: each is a job step in an allocation of its own, for which `srun` waits."""

import shutil
import signal
import sys
from collections.abc import Sequence

from bertzoo.core.errors import UserError
from bertzoo.jobs import local

QUEUED = 32  # jobs in the queue at once, unless --processes says otherwise
QUEUED_BY_STUDY = 4  # fewer, as a study chooses these points without their scores
STOP = signal.SIGUSR1  # srun passes this signal on to all processes, whereas SIGTERM would make it kill them at once
# Runs on the node: makes the command save and end on STOP, and exits with the command's code.
_TASK = """
(trap '' USR1; exec "$@") & pid=$!
trap 'kill -TERM $pid' USR1
while kill -0 $pid 2>/dev/null; do wait $pid; code=$?; done
exit $code
"""


def srun_command(name: str, options: Sequence[str]) -> list[str]:
    """Return the words, with options of srun, that run `bertzoo` with the arguments after them on one node.

    Raises UserError without srun.
    """
    if shutil.which("srun") is None:
        raise UserError(
            "--executor=slurm needs the program srun. Run this command on a node that submits jobs to Slurm."
        )
    usual = ["--nodes=1", "--ntasks=1", f"--job-name=bertzoo-{name}"]
    return ["srun", *usual, *options, "sh", "-c", _TASK, "sh", sys.executable, "-P", *local.COMMAND]
