"""Stands in for gcloud, kubectl, Slurm, uv and bertzoo: `python fake.py PROGRAM ARGUMENTS…`, from wrappers on PATH.

Refuses what is not documented, appends every call to `calls` in the folder FAKE_CLOUD, fails where `failures`
there says so, and otherwise does in that folder what the real one would do: TPU workers are home directories there.
"""

# Hundreds of these are started in the tests: nothing is imported that takes long, so files hold Python's own literals.
import _signal
import os
import sys
import time

from documented import STATES, refusal

CLOUD = os.environ["FAKE_CLOUD"]


def read(name: str, default):
    try:
        with open(f"{CLOUD}/{name}") as file:
            return eval(file.read())
    except FileNotFoundError:
        return default


def write(name: str, value) -> None:
    with open(f"{CLOUD}/{name}.{os.getpid()}", "w") as file:
        file.write(repr(value))
    os.rename(file.name, f"{CLOUD}/{name}")  # others may be reading it


def call(*argv: str, **environment: str) -> int:
    """The exit code of a program."""
    return os.spawnvpe(os.P_WAIT, argv[0], argv, environment or os.environ)


def flags(argv: list[str]) -> dict[str, str]:
    return {word.split("=")[0]: word.partition("=")[2] for word in argv if word.startswith("--")}


def stop(code: int, message: str) -> None:
    print(f"ERROR: {message}", file=sys.stderr)
    sys.exit(code)


def planned_failure(argv: list[str]) -> None:
    """Exit as `failures` ([text in the command line, exit code, how often] …) says."""
    plans, line = read("failures", []), " ".join(argv)
    for plan in plans:
        if plan[0] in line and plan[2] > 0:
            plan[2] -= 1
            write("failures", plans)
            stop(plan[1], f"{argv[0]} fails as planned")


def workers() -> list[str]:
    """The homes of the existing TPU's workers."""
    return sorted(f"{CLOUD}/{name}" for name in os.listdir(CLOUD) if name in {"worker0", "worker1"})


def gcloud(argv: list[str]) -> None:
    argv = [word for word in argv if word != "alpha"]
    given, action = flags(argv), " ".join(argv[3:5])
    states = read("states", [])
    if argv[2] != "tpus" and argv[1] == "compute":
        compute(argv, given, states)
    elif argv[1] == "storage":
        os.makedirs(argv[-1], exist_ok=True)
        open(f"{argv[-1]}/smoke.txt", "w").close()
    elif action == "queued-resources describe":
        if not states:
            stop(1, "(gcloud.compute.tpus.queued-resources.describe) NOT_FOUND: Resource was not found.")
        assert set(states) <= STATES
        print(states[0])
        advance(states)
    elif action == "queued-resources create":
        if states:
            stop(1, "ALREADY_EXISTS: Resource already exists.")
        create(2)
    elif action == "queued-resources delete":
        if not states:
            stop(1, "NOT_FOUND: Resource was not found.")
        if "--force" not in given:
            stop(1, "FAILED_PRECONDITION: The queued resource has nodes.")
        write("states", [])
        call("rm", "-rf", *workers())
    else:
        homes = workers()
        if not homes or (states and states[0] != "ACTIVE"):
            stop(1, "the TPU VM is not there")
        chosen = homes if given.get("--worker") == "all" else [homes[int(given.get("--worker", "0"))]]
        connect(argv[4], chosen, argv[5:])


def advance(states: list[str]) -> None:
    if states == ["DELETING"] or states[1:]:  # a deletion by another process is not to be undone
        write("states", states[1:])


def create(size: int) -> None:
    lives = read("lives", [])
    write("states", lives.pop(0) if lives else ["WAITING_FOR_RESOURCES", "ACTIVE"])
    write("lives", lives)
    for worker in range(size):
        os.mkdir(f"{CLOUD}/worker{worker}")


def connect(verb: str, homes: list[str], argv: list[str]) -> None:
    """Exit as ssh or scp to these workers."""
    if verb == "scp":
        *sources, target = [word for word in argv if not word.startswith("--")]
        if ":" not in target:  # from the worker
            sys.exit(call("cp", "-r", f"{homes[0]}/{sources[0].partition(':')[2]}", target))
        for home in homes:
            if code := call("cp", "-r", *sources, f"{home}/{target.partition(':')[2]}"):
                sys.exit(code)
    else:
        codes = [remote(home, flags(argv)["--command"]) for home in homes]
        sys.exit(next((code for code in codes if code), 0))  # as gcloud: the first worker's that failed


# What an instance group's hosts are in while a queued resource would be in a state: (status, action) of the last host.
HOSTS = {
    "ACTIVE": ("RUNNING", "NONE"),
    "SUSPENDED": ("TERMINATED", "NONE"),
    "SUSPENDING": ("STOPPING", "NONE"),
    "DELETING": ("RUNNING", "DELETING"),
}


def compute(argv: list[str], given: dict[str, str], states: list[str]) -> None:
    """Compute Engine's API: an instance group with at most two hosts, pod-0 and pod-1."""
    homes, action = workers(), argv[4]
    if argv[2] in ("ssh", "scp"):
        (host,) = {word.partition(":")[0] for word in argv[3:] if word.startswith("pod-")}
        if states[:1] != ["ACTIVE"]:
            stop(1, f"{host} is not there")
        connect(argv[2], [f"{CLOUD}/worker{host[-1]}"], argv[3:])
    elif argv[2] in ("resource-policies", "instance-templates"):
        made, name = read("made", []), argv[5 if argv[2] == "resource-policies" else 4]
        if name in made:
            stop(1, f"Could not create {name}:\n - The resource '{name}' already exists")
        write("made", [*made, name])
    elif action == "create":
        if states:
            stop(1, "The resource 'pod' already exists")
        create(min(2, int(given["--size"])))
    elif not states:
        stop(1, "Could not fetch resource:\n - The resource 'projects/p/zones/z/pod' was not found")
    elif action == "describe":
        print(f"{len(homes)}\t{states[0] in {'ACTIVE', 'SUSPENDED', 'SUSPENDING'}}")
    elif action == "list-instances":
        for number in range(len(homes)):
            last = HOSTS.get(states[0], ("", "CREATING")) if number == len(homes) - 1 else ("RUNNING", "NONE")
            print(",".join([f"pod-{number}", *last]))
        advance(states)
    else:
        write("states", [])
        call("rm", "-rf", *homes)


def curl(argv: list[str]) -> None:
    """The metadata server: TPU VMs have other names for a host's number than the hosts of an instance group."""
    group, host = os.path.exists(f"{CLOUD}/made"), os.environ["FAKE_HOST"][-1]
    known = (
        {"worker-id": host, "worker-network-endpoints": "10.0.0.1,10.0.0.2"} if group else {"agent-worker-number": host}
    )
    value = known.get(argv[-1].rpartition("/")[2])
    if value is None:
        sys.exit(22)
    print(value)


def remote(home: str, command: str) -> int:
    """Run a command line as sshd would, in the worker's home; gcloud splits it at spaces, and ssh joins it again."""
    sys.stdout.flush()
    os.chdir(home)
    if command.endswith("bash bertzoo/launch/smoke.sh smoke"):
        assert os.path.exists("bertzoo/launch/smoke.sh")
        os.makedirs("smoke")
        with open("smoke/smoke.txt", "w") as file:
            file.write("measured\n")
        return read("smoke", 0)
    environment = {"HOME": home, "PATH": os.environ["PATH"], "FAKE_CLOUD": CLOUD, "FAKE_HOST": os.path.basename(home)}
    return call("bash", "-c", " ".join(command.split(" ")), **environment)


def kubectl(argv: list[str]) -> None:
    action = next(word for word in argv[1:] if not word.startswith("-"))
    sets = read("jobsets", {})
    if action == "apply":
        manifest = sys.stdin.read()
        with open(f"{CLOUD}/applied.yaml", "w") as file:
            file.write(manifest)
        write("jobsets", {**sets, "run": ""})
        write("words", eval(manifest.partition("bertzoo/run: ")[2].splitlines()[0]))
    elif action == "wait":
        write("jobsets", {"run": read("ends", "Completed")})
    elif action == "delete":
        sets.pop(argv[-3] if argv[-3] in sets else argv[3], None)
        write("jobsets", sets)
    elif action == "get" and any(word.startswith("jsonpath") for word in argv):
        wanted = flags(argv)["--field-selector"].partition("=")[2]
        (path,) = [word.removeprefix("jsonpath=") for word in argv if word.startswith("jsonpath")]
        assert path.startswith("{range .items[*]}") and path.endswith("{end}")
        line = path.removeprefix("{range .items[*]}").removesuffix("{end}")
        if wanted in sets:
            known = {"name": wanted, "annotations.bertzoo/run": read("words", "")}
            for field, value in [(f".metadata.{key}", value) for key, value in known.items()]:
                line = line.replace(f"{{{field}}}", value)
            print(line.replace("{.status.terminalState}", sets[wanted]), end="")


def sbatch(argv: list[str]) -> None:
    """Run the script at once from a spool directory, as Slurm does; once more each time that it is requeued."""
    place = next(i for i, word in enumerate(argv) if i and not word.startswith("-"))
    script = f"{CLOUD}/slurm_script"
    call("cp", argv[place], script)
    for restart in range(20):
        os.environ.update(SLURM_JOB_ID="7", SLURM_RESTART_COUNT=str(restart))
        write("requeued", False)
        code = call("bash", script, *argv[place + 1 :])
        if not read("requeued", False):
            sys.exit(code)
    stop(99, "requeued for ever")


def scancel(argv: list[str]) -> None:
    """Signal the script of job 7, or its task, which runs as process 0."""
    given = flags(argv)
    if "--signal" in given:
        target = "pid_of_script" if "--batch" in given else "pid0"
        os.kill(read(target, None), getattr(_signal, "SIG" + given["--signal"]))


def uv(argv: list[str]) -> None:
    if argv[1] == "venv":
        os.makedirs(f"{argv[-1]}/bin", exist_ok=True)
    else:
        target = flags(argv)["--python"].removesuffix("python") + "bertzoo"
        if not os.path.exists(target):
            program = next(path for path in os.environ["PATH"].split(":") if os.path.exists(f"{path}/bertzoo"))
            os.symlink(f"{program}/bertzoo", target)


def bertzoo(argv: list[str]) -> None:
    if argv[1] == "phone" or (argv[1] == "config" and read("real", False)):  # the real one, which starts nothing
        os.execv(sys.executable, [sys.executable, "-m", *argv])
    if argv[1] == "config":
        sys.exit(0)
    """End with the next code that `codes` has for this process, after what `seconds` says; save at a SIGTERM."""
    _signal.signal(_signal.SIGTERM, lambda number, frame: (print("; saved"), sys.exit(3)))
    if argv[1] not in ("pretrain", "transfer", "prune"):
        stop(2, f"no launcher runs bertzoo {argv[1]}")
    process = flags(argv).get("--distributed.process") or os.environ.get("FAKE_HOST", "0")
    write(f"pid{process}", os.getpid())
    print(f"process {process} begins", end="", flush=True)  # a line without an end
    codes = read(f"codes{process}", read("codes", []))
    code = codes.pop(0) if codes else 0
    write(f"codes{process}", codes)
    if code < 0:  # dies of a signal
        os.kill(os.getpid(), -code)
    begun = time.monotonic()
    # The duration may change meanwhile; `over` says that the test has ended.
    while time.monotonic() - begun < read(f"seconds{process}", 0) and not os.path.exists(f"{CLOUD}/over"):
        time.sleep(0.05)
    sys.exit(code)


def main() -> None:
    argv = sys.argv[1:]
    record = {"argv": argv, "host": os.environ.get("FAKE_HOST"), "cwd": os.getcwd(), "xla": os.environ.get("XLA_FLAGS")}
    with open(f"{CLOUD}/{'checks' if argv[1:2] == ['config'] else 'calls'}", "a") as file:
        file.write(f"{record}\n")
    if argv[0] != "bertzoo" and (why := refusal(argv)):
        stop(2, why)
    planned_failure(argv)
    if argv[0] == "srun":
        write("pid_of_script", os.getppid())
        tasks = [name.removeprefix("codes") for name in sorted(os.listdir(CLOUD)) if name[5:].isdecimal()] or ["0"]
        program = argv[argv.index("bash") :]
        sys.exit(max(call(*program, **(os.environ | {"FAKE_HOST": task})) for task in tasks))
    if argv[0] == "scontrol":
        write("requeued", True)
    elif argv[0] == "squeue":  # jobs as {"%i": its number, "%T": its state, "%k": its comment}
        given, running = flags(argv), {"%i": "7", "%T": read("job_state", "RUNNING"), "%k": ""}
        for job in [running] if "--jobs" in given else read("queue", []):
            print(" ".join(job[field] for field in given["--format"].split()))
    elif argv[0] == "scancel":
        scancel(argv)
    else:
        {"gcloud": gcloud, "curl": curl, "kubectl": kubectl, "sbatch": sbatch, "uv": uv, "bertzoo": bertzoo}[argv[0]](
            argv
        )


if __name__ == "__main__":
    main()
