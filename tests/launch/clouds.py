"""A folder of fake programs in front of the PATH, and a way to run a launcher with them."""

import ast
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
LAUNCH = HERE.parent.parent / "launch"
PROGRAMS = ("gcloud", "curl", "kubectl", "sbatch", "srun", "squeue", "scontrol", "scancel", "uv", "adb", "bertzoo")


def page_commands(*names: str) -> list[list[str]]:
    """The commands in the fenced blocks of pages of docs/."""
    pages = [(LAUNCH.parent / f"docs/{name}.md").read_text() for name in names]
    blocks = [block for page in pages for block in re.findall(r"```bash\n(.*?)```", page, re.DOTALL)]
    return [shlex.split(line) for block in blocks for line in block.replace("\\\n", " ").splitlines()]


class Cloud:
    """Runs launchers, with every program that they may call faked in `folder`."""

    def __init__(self, folder: Path):
        self.folder, self.bin = folder / "cloud", folder / "bin"
        self.folder.mkdir()
        self.bin.mkdir()
        for program in PROGRAMS:
            wrapper, fake = self.bin / program, HERE / ("fake_phone.py" if program == "adb" else "fake.py")
            wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{fake}" {program} "$@"\n')
            wrapper.chmod(0o755)
        # What waits for minutes in the launchers takes a moment here.
        sleep = self.bin / "sleep"
        sleep.write_text('#!/bin/sh\ncase $1 in 0.*) exec /bin/sleep "$1" ;; *) exec /bin/sleep 0.2 ;; esac\n')
        sleep.chmod(0o755)
        self.environment = {"HOME": str(folder), "PATH": f"{self.bin}:/usr/bin:/bin", "FAKE_CLOUD": str(self.folder)}

    def set(self, **state) -> None:
        """Write the behaviour of the fakes, such as states=["ACTIVE"]."""
        for name, value in state.items():
            (self.folder / f"{name}.new").write_text(repr(value))
            (self.folder / f"{name}.new").rename(self.folder / name)  # whole or not at all, as fakes may read it now

    def start(self, script: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        command, variables = [str(LAUNCH / script), *arguments], {**self.environment, **environment}
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, env=variables, cwd=self.folder, text=True, **pipes)

    def run(self, script: str, *arguments: str, code: int | None = 0, **environment: str) -> str:
        """Run a launcher, which must exit with `code`; return its output, errors last."""
        process = self.start(script, *arguments, **environment)
        out, err = process.communicate(timeout=60)
        assert code is None or process.returncode == code, f"exit code {process.returncode}\n{out}\n{err}"
        self.code, self.errors = process.returncode, err
        return out + err

    def calls(self, *begin: str, file: str = "calls") -> list[list[str]]:
        """The recorded command lines that begin with these words, without them; file: "checks" for `bertzoo config`."""
        path = self.folder / file
        lines = path.read_text().splitlines() if path.exists() else []
        recorded = [ast.literal_eval(line)["argv"] for line in lines]
        return [argv[len(begin) :] for argv in recorded if argv[: len(begin)] == list(begin)]

    def records(self, program: str) -> list[dict]:
        lines = (self.folder / "calls").read_text().splitlines()
        return [record for line in lines if (record := ast.literal_eval(line))["argv"][0] == program]

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition is true."""
        for _ in range(1200):
            if condition():
                return
            time.sleep(0.05)
        raise AssertionError("the condition never became true")

    def wait_for_runs(self, count: int) -> None:
        """Wait until this many processes of runs have started."""
        self.wait_for(lambda: len(self.calls("bertzoo")) == count)

    def forget(self) -> None:
        (self.folder / "calls").unlink(missing_ok=True)
