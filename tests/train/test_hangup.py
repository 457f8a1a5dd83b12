"""A run saves and stops when its terminal closes, as after a dropped SSH session."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

# Run a command on a terminal of its own, and close the terminal once a file holds a text.
PROGRAM = """
import os, pty, select, signal, sys, time
file, text, *command = sys.argv[1:]
process, terminal = pty.fork()
if not process:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup may have ignored
    os.execv(sys.executable, [sys.executable, *command])
until = time.monotonic() + 200
while time.monotonic() < until and not (os.path.exists(file) and text in open(file).read()):
    if select.select([terminal], [], [], 0.002)[0]:
        os.read(terminal, 65536)
os.close(terminal)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"""


@pytest.mark.slow
def test_a_closed_terminal_saves_and_stops_the_run(tiny_config: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = ["-m", "bertzoo", "pretrain", tiny_config, f"--run_dir={run}", "--stages.0.steps=3000"]
    metrics = run / "metrics.jsonl"
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(metrics), '"step": 3,', *command], timeout=300)
    assert done.returncode == 3
    (stopped,) = [row for row in map(json.loads, metrics.read_text().splitlines()) if row.get("event") == "stopped"]
    assert stopped["signal"] == "SIGHUP" and (run / "checkpoints" / str(stopped["step"])).is_dir()
