"""Worker processes end with the process that started them, and not before."""

import os
import subprocess
import sys
import time

import psutil

from bertzoo.data.corpus import workers


def test_a_worker_is_ended_by_its_parent_and_by_no_other():
    """A preempted machine signals every process of a command, and the parent ends its workers itself."""
    with workers.worker_pool(2) as submit:
        number = submit(os.getpid).result()
        worker = psutil.Process(number)
        subprocess.run([sys.executable, "-c", f"import os; os.kill({number}, 15)"], check=True)
        time.sleep(0.2)
        assert worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE
        os.kill(number, 15)
        _, alive = psutil.wait_procs([worker], timeout=20)
        assert not alive
