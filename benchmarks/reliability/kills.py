"""Commands killed before a system call that changes a file, and repeated: the first part of `attack`.

`kill_at.c`, preloaded into all processes of a command, counts these calls below the command's folder and kills the
process that makes call N; N is drawn from a seed. The repeated command must end with the files of an undisturbed one.
"""

import ctypes
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

ROOT = Path(__file__).parents[2]
PATIENCE = 600  # seconds that a command may take
GRACE = 20  # seconds in which every process must end once its command has ended
PACKAGE = [sys.executable, "-m", "bertzoo"]
ENVIRONMENT = {
    **{"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_backend_optimization_level=0"},
    **{"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"},
}
STAGES = ["--transfer.steps=2", "--distillation.0.steps=2", "--run.save_every=1"]
TUNED = ["--seeds=2", "--epochs=1", "--batch_size=16", "--max_length=24", "--log_every=5"]
LABELS = ["--data_dir=.", "--own.train=train.csv", "--own.dev=dev.csv"]
# Commands that write; each writes below its working directory, a copy of the inputs.
COMMANDS = {
    "tokenize": ["tokenize", "text.txt", "out", "--config=tiny.toml", "--workers=2"],
    "pretrain": ["pretrain", "tiny.toml", "--run_dir=out", "--workers=1"],
    "transfer": ["transfer", "student.toml", "--teacher=teacher", "--run_dir=out", *STAGES],
    "prune": ["prune", "prune.toml", "--from=unpruned", "--run_dir=out"],
    "finetune": ["finetune", "finetune", "--task=own", *LABELS, "--from=model", "--run_dir=out", *TUNED],
    "sweep": ["sweep", "sweep.toml", *LABELS, "--from=model", "--run_dir=out", *TUNED, "--seeds=1"],
    "pipeline": ["pipeline", "pipeline.toml", "--inputs.text=text.txt", "--run_dir=out"],
    "convert (Hugging Face)": ["convert", "unpruned", "out", "--to=huggingface", "--head=masked"],
    "convert (LiteRT)": ["convert", "unpruned", "out.tflite", "--to=litert", "--lengths=16"],
    "report": ["report", "unpruned"],
}
SWEEP = '[sweep]\nbase = "finetune"\ntasks = ["own"]\n[grid]\noptimizer.learning_rate = [1e-3, 1e-2]\n'
PIPELINE = """
[inputs]
text = ""
[stages.corpus]
verb = "tokenize"
source = "{text}"
config = "tiny.toml"
[stages.teacher]
verb = "pretrain"
config = "tiny.toml"
options.data.source = "{corpus}"
[stages.file]
verb = "convert"
from = "teacher"
options = { to = "bertzoo" }
"""
# Keys and files that no two runs share: times, and what depends on them.
TIMES = re.compile(r"seconds|per_second|memory|elapsed|time|git|^finished$|^hashes$")
OTHERS = re.compile(r"(^|/)(\.lock|run-id|pipeline\.md|tensorboard/.*|logs/.*|[^/]*\.log|\d+\.sha256\.json)$")
LEFT = re.compile(r"\.writing(/|$)|\.tmp$|\.tmp-|orbax-checkpoint-tmp|\.unfinished$")
TRACES = ("Traceback (most recent", "a bug in bertzoo")


class Kill(NamedTuple):
    """A kill of a command. number: of the call before which it came; call: that call and its path, below the working
    directory; faults: what was wrong in the end.
    """

    command: str
    number: int
    call: str
    faults: list[str]


class Ending(NamedTuple):
    """How a command ended. calls: those counted; call: the one before which a process was killed, or ""; left: its
    processes that had not ended in GRACE seconds; log: its output.
    """

    code: int
    calls: int
    call: str
    left: int
    log: str

    def faults(self, code: int | None) -> Iterator[str]:
        """What is wrong, if the exit code is to be `code`."""
        if self.left:
            yield f"{self.left} processes left"
        if any(trace in self.log for trace in TRACES):
            yield f"traceback: {self.log.strip()[-1500:]}"
        if code is not None and self.code != code:
            yield f"exit code {self.code}: {self.log.strip()[-500:]}"


def compile_shim(folder: Path) -> Path:
    """Compile kill_at.c with the system's C compiler."""
    shim, source = folder / "kill_at.so", Path(__file__).with_name("kill_at.c")
    if not (compiler := shutil.which("cc") or shutil.which("gcc")):
        sys.exit("kill_at.c needs a C compiler: install gcc")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(shim), str(source), "-ldl"], check=True)
    return shim


def build_inputs(folder: str) -> None:
    """Write what COMMANDS read, with the builders of the tests, into a new folder."""
    sys.path[:0] = [str(ROOT / "tests" / name) for name in ("", "pruning", "finetuning")]
    import pairs  # pyright: ignore[reportMissingImports]
    import planted  # pyright: ignore[reportMissingImports]
    import prunable  # pyright: ignore[reportMissingImports]
    import tiny  # pyright: ignore[reportMissingImports]

    from bertzoo.core import config

    Path(folder).mkdir(parents=True)
    os.chdir(folder)
    prunable.fill(Path())
    planted.fill(Path())
    tiny.write_config(Path(), "corpus")
    student = pairs.load("mobilebert_tiny_transfer", pairs.options("mobilebert_tiny_transfer", Path("corpus")))
    pairs.write_teacher(student, Path("teacher"), Path("corpus"))
    Path("student.toml").write_text(config.dump(student))
    Path("sweep.toml").write_text(SWEEP)
    Path("pipeline.toml").write_text(PIPELINE)


def run(
    command: Sequence[str], directory: Path, shim: Path, at: int = 0, disturb: Callable[[Path], None] | None = None
) -> Ending:
    """Run a command in the folder `directory` to its end.

    at: the call before which its process is killed, 0 for none. disturb: called with `directory` once the command runs.
    """
    count, log = directory.with_name("count"), directory.with_name(f"log-{at}")
    count.write_bytes(bytes(512))
    variables = {"LD_PRELOAD": shim, "KILL_COUNT": count, "KILL_DIR": f"{directory}/", "KILL_AT": at}
    variables |= {"XDG_CACHE_HOME": directory / "cache", "JAX_COMPILATION_CACHE_DIR": shim.parent / "xla"}
    variables |= {"MPLCONFIGDIR": shim.parent / "matplotlib"}  # its list of fonts differs from run to run
    environment = os.environ | ENVIRONMENT | {name: str(value) for name, value in variables.items()}
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: a process whose parent has ended becomes a child of this
    others = descendants()
    with log.open("wb") as output:
        options: dict[str, Any] = {"cwd": directory, "env": environment, "stdout": output, "stderr": output}
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **options)
    end, late = time.monotonic() + PATIENCE, False
    if disturb:
        disturb(directory)
    while process.poll() is None and not late:
        late = time.monotonic() > end
        time.sleep(0.05)
    end = time.monotonic() + (0 if late else GRACE)
    while (left := descendants() - others) and time.monotonic() < end:
        time.sleep(0.1)
    for one in left:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    calls, call = int.from_bytes(count.read_bytes()[:8], "little"), count.read_bytes()[8:].split(b"\0")[0].decode()
    return Ending(process.wait(), calls, call.replace(f"{directory}/", ""), len(left), log.read_text(errors="replace"))


def descendants() -> set[psutil.Process]:
    """The processes that this one started, and theirs, that have not ended."""
    alive = set()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                alive.add(process)
    return alive


def contents(directory: Path) -> dict[str, str]:
    """A digest of every file by its path; of text without times, of a checkpoint's arrays without their storage."""
    digests = {}
    for path in sorted(path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()):
        name = str(path.relative_to(directory))
        step = re.match(r"(.*checkpoints/\d+)/", name)
        if step:
            name = step[1]
        if OTHERS.search(name) or name in digests or LEFT.search(name):
            continue
        data = _arrays(directory / name) if step else _timeless(path, directory)
        digests[name] = hashlib.sha256(data).hexdigest()
    return digests


def _arrays(checkpoint: Path) -> bytes:
    import jax
    import numpy as np
    import orbax.checkpoint as ocp
    from etils import epath

    handler, trees = ocp.PyTreeCheckpointHandler(), []
    for folder in sorted(epath.Path(file.parent) for file in checkpoint.glob("*/_METADATA")):
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), handler.metadata(folder).tree)
        trees.append(handler.restore(folder, args=ocp.args.PyTreeRestore(restore_args=as_numpy)))
    leaves = jax.tree_util.tree_leaves_with_path(trees)
    return repr([(jax.tree_util.keystr(path), np.asarray(leaf).tobytes()) for path, leaf in leaves]).encode()


def _timeless(path: Path, directory: Path) -> bytes:
    """The bytes of a file; text without the folder's path, JSON without times, a run's lines sorted, without events."""
    data = re.sub(rb"[\d.]+ MB of memory", b"", path.read_bytes().replace(f"{directory}/".encode(), b""))
    with suppress(ValueError):  # a torn file differs, as it is
        if path.suffix == ".jsonl":
            rows = [json.loads(line) for line in data.splitlines()]
            return "\n".join(sorted({json.dumps(_plain(row)) for row in rows if "event" not in row})).encode()
        if path.suffix == ".json":
            return json.dumps(_plain(json.loads(data))).encode()
    return data


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(value[key]) for key in sorted(value) if not TIMES.search(key)}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def differences(whole: Mapping[str, str], directory: Path) -> Iterator[str]:
    """What an undisturbed command wrote otherwise, and the temporary files that remain."""
    here = contents(directory)
    for name in sorted(whole.keys() | here.keys()):
        if whole.get(name) != here.get(name):
            yield f"{name} {'is missing' if name not in here else 'is new' if name not in whole else 'differs'}"
    for path in directory.rglob("*"):
        if LEFT.search(str(path.relative_to(directory))):
            yield f"{path.relative_to(directory)} is left over"


def attack_command(
    name: str, command: Sequence[str], inputs: Path, folder: Path, shim: Path, draws: Iterator[random.Random]
) -> Iterator[Kill]:
    """Run a command undisturbed, then kill and repeat it once for each random number generator."""
    whole = folder / "whole" / "work"
    if not (record := folder / "whole.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(inputs, whole)
        ending = run(command, whole, shim)
        if faults := list(ending.faults(0)):
            sys.exit(f"{name} fails without a kill: {'; '.join(faults)}")
        record.write_text(json.dumps({"calls": ending.calls, "contents": contents(whole)}))
    expected = json.loads(record.read_text())
    for index, draw in enumerate(draws):
        directory, number, killed = folder / str(index) / "work", expected["calls"] + 1, None
        while not (killed and killed.call):  # some runs make fewer calls, and end before the one that was drawn
            number = draw.randint(1, number - 1)
            shutil.rmtree(directory.parent, ignore_errors=True)
            shutil.copytree(inputs, directory)
            killed = run(command, directory, shim, number)
        faults = list(killed.faults(None))
        faults += run(command, directory, shim).faults(0)
        faults += differences(expected["contents"], directory)
        if not faults:
            shutil.rmtree(directory.parent)
        yield Kill(name, number, killed.call, faults)
