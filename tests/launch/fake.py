"""Stands in for gcloud, kubectl, Slurm, uv and bertzoo: `python fake.py PROGRAM ARGUMENTS…`, called by a wrapper on the PATH.

Refuses what is not documented, appends every call to `calls.jsonl` in the folder FAKE_CLOUD, fails where `failures.json`
there says so, and otherwise does in that folder what the real one would do: TPU workers are home directories there.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from documented import STATES, refusal

CLOUD = Path(os.environ["FAKE_CLOUD"])


def read(name: str, default):
    path = CLOUD / name
    return json.loads(path.read_text()) if path.exists() else default


def write(name: str, value) -> None:
    (CLOUD / name).write_text(json.dumps(value))


def flags(argv: list[str]) -> dict[str, str]:
    return {word.split("=")[0]: word.partition("=")[2] for word in argv if word.startswith("--")}


def stop(code: int, message: str) -> None:
    print(f"ERROR: {message}", file=sys.stderr)
    sys.exit(code)


def planned_failure(argv: list[str]) -> None:
    """Exit as `failures.json` ([text in the command line, exit code, how often] …) says."""
    plans, line = read("failures.json", []), " ".join(argv)
    for plan in plans:
        if plan[0] in line and plan[2] > 0:
            plan[2] -= 1
            write("failures.json", plans)
            stop(plan[1], f"{argv[0]} was told to fail")


def gcloud(argv: list[str]) -> None:
    given, action = flags(argv), " ".join(argv[3:5])
    states = read("states.json", [])
    if action == "queued-resources describe":
        if not states:
            stop(1, "(gcloud.compute.tpus.queued-resources.describe) NOT_FOUND: Resource was not found.")
        assert set(states) <= STATES
        print(states[0])
        gone = states[0] in {"DELETING"} and len(states) == 1
        write("states.json", [] if gone else states[1:] or states)
    elif action == "queued-resources create":
        if states:
            stop(1, "ALREADY_EXISTS: Resource already exists.")
        lives = read("lives.json", [])
        write("states.json", lives.pop(0) if lives else ["WAITING_FOR_RESOURCES", "ACTIVE"])
        write("lives.json", lives)
        for worker in range(read("workers.json", 2)):
            (CLOUD / f"worker{worker}").mkdir()
    elif action == "queued-resources delete":
        if not states:
            stop(1, "NOT_FOUND: Resource was not found.")
        if "--force" not in given:
            stop(1, "FAILED_PRECONDITION: The queued resource has nodes.")
        write("states.json", [])
        for home in CLOUD.glob("worker?"):
            shutil.rmtree(home)
    else:
        homes = sorted(CLOUD.glob("worker?"))
        if not homes or (states and states[0] != "ACTIVE"):
            stop(1, "the TPU VM is not there")
        chosen = homes if given.get("--worker") == "all" else [homes[int(given.get("--worker", "0"))]]
        if action == "tpu-vm scp":
            *sources, target = [word for word in argv[5:] if not word.startswith("--")]
            for home, source in ((h, s) for h in chosen for s in sources):
                there = home / (target.partition(":")[2] or ".")
                copy = shutil.copytree if Path(source).is_dir() else shutil.copy
                copy(source, there / Path(source).name) if there.is_dir() else copy(source, there)
        else:
            codes = [remote(home, given["--command"]) for home in chosen]
            sys.exit(next((code for code in codes if code), 0))  # as gcloud: the first worker's that failed


def remote(home: Path, command: str) -> int:
    """Run a command line as sshd would, in the worker's own home; gcloud splits it at spaces, and ssh joins it again."""
    sys.stdout.flush()
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "FAKE_CLOUD": str(CLOUD), "FAKE_HOST": home.name}
    return subprocess.run(["bash", "-c", " ".join(command.split(" "))], cwd=home, env=environment).returncode


def kubectl(argv: list[str]) -> None:
    action = next(word for word in argv[1:] if not word.startswith("-"))
    sets = read("jobsets.json", {})
    if action == "apply":
        (CLOUD / "applied.yaml").write_text(sys.stdin.read())
        write("jobsets.json", {**sets, "run": ""})
    elif action == "delete":
        sets.pop(argv[-3] if argv[-3] in sets else argv[3], None)
        write("jobsets.json", sets)
    elif action == "get" and any(word.startswith("jsonpath") for word in argv):
        wanted = flags(argv)["--field-selector"].partition("=")[2]
        print("".join(f"{name}={state}" for name, state in sets.items() if name == wanted), end="")


def sbatch(argv: list[str]) -> None:
    """Run the script at once from a spool directory, as Slurm does; once more each time that it is requeued."""
    place = next(i for i, word in enumerate(argv) if i and not word.startswith("-"))
    spool = CLOUD / "spool"
    spool.mkdir(exist_ok=True)
    script = shutil.copy(argv[place], spool / "slurm_script")
    if read("queue.json", []):
        return
    for restart in range(20):
        environment = {**os.environ, "SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": str(restart)}
        write("requeued.json", False)
        code = subprocess.run(["bash", script, *argv[place + 1 :]], env=environment).returncode
        if not read("requeued.json", False):
            sys.exit(code)
    stop(99, "requeued for ever")


def uv(argv: list[str]) -> None:
    if argv[1] == "venv":
        (Path(argv[-1]) / "bin").mkdir(parents=True, exist_ok=True)
    else:
        target = Path(flags(argv)["--python"]).parent / "bertzoo"
        if not target.exists():
            target.symlink_to(shutil.which("bertzoo"))


def bertzoo(argv: list[str]) -> None:
    """End with the next code that `codes.json` has for this process, after what `seconds.json` says, or at a SIGTERM."""
    process = flags(argv).get("--distributed.process") or os.environ.get("FAKE_HOST", "0")
    print(f"process {process} begins", "without a line's end", end="", flush=True)
    codes = read(f"codes{process}.json", read("codes.json", []))
    code = codes.pop(0) if codes else 0
    name = f"codes{process}.json"
    write(name, codes)
    if code < 0:  # dies of a signal
        os.kill(os.getpid(), -code)
    with contextlib.suppress(KeyboardInterrupt):
        time.sleep(read(f"seconds{process}.json", 0))
        sys.exit(code)


def main() -> None:
    argv = sys.argv[1:]
    record = {"argv": argv, "host": os.environ.get("FAKE_HOST"), "cwd": os.getcwd(), "xla": os.environ.get("XLA_FLAGS")}
    with (CLOUD / "calls.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")
    if argv[0] != "bertzoo" and (why := refusal(argv)):
        stop(2, why)
    planned_failure(argv)
    if argv[0] == "srun":
        os.execvp("bertzoo", argv[argv.index("bertzoo") :])
    if argv[0] == "scontrol":
        write("requeued.json", True)
    elif argv[0] == "squeue":
        print("\n".join(read("queue.json", [])))
    else:
        {"gcloud": gcloud, "kubectl": kubectl, "sbatch": sbatch, "uv": uv, "bertzoo": bertzoo}[argv[0]](argv)


if __name__ == "__main__":
    main()
