"""Child Pythons import nothing from the current directory and end with their parent, whatever they do."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import tiny

from bertzoo.cli import main as cli
from bertzoo.core import child
from bertzoo.core.child import start_python

PACKAGE = Path(child.__file__).parents[1]
# Modules that Python, its multiprocessing and the children import early.
NAMES = "argparse json multiprocessing numpy pickle runpy select signal socket struct subprocess tempfile threading"
HOSTILE = [*NAMES.split(), "bertzoo", "jax", "libtpu", "litert_converter", "safetensors", "torch"]
HANG = "import os, pathlib; pathlib.Path(os.environ['PID_FILE']).write_text(str(os.getpid())); sum(range(10**13))"
SOCKETS = """
import socket
from bertzoo.core.child import forbid_network
socket.socket().close()
forbid_network()
socket.socketpair()
for family in (socket.AF_INET, socket.AF_INET6):
    try:
        socket.socket(family, socket.SOCK_DGRAM)
    except PermissionError:
        print("denied")
"""
POOL = f"""
from bertzoo.data.corpus.workers import worker_pool
with worker_pool(2) as submit:
    submit(exec, {HANG!r}).result()
"""
# Each parent starts a child that holds its interpreter's lock for hours: in code, or while it imports a package.
PARENTS = {
    "code": f"from bertzoo.core.child import start_python; start_python(['-c', {HANG!r}]).wait()",
    "tokenising": POOL,
    "export to LiteRT": "from bertzoo.export.litert import write; write.convert({}, [])",
}


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that modules of the current directory write if something imports them."""
    folder, mark = tmp_path / "downloaded", tmp_path / "mark"
    folder.mkdir()
    for name in HOSTILE:
        (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write('{name} ')\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", os.environ.get("PYTHONPATH", "")]))
    return mark


@pytest.mark.parametrize(
    ("name", "stopped", "ignored"), [*((name, False, False) for name in PARENTS), ("tokenising", True, True)]
)
def test_a_busy_child_ends_when_its_parent_is_killed(name: str, stopped: bool, ignored: bool, tmp_path: Path) -> None:
    """stopped: the child is stopped (SIGSTOP) before, and continues afterwards. ignored: it inherits SIGIO ignored."""
    fakes, pid_file = tmp_path / "fakes", tmp_path / "pid"
    fakes.mkdir()
    (fakes / "litert_converter.py").write_text(HANG)
    (tmp_path / "parent.py").write_text(PARENTS[name])
    environment = {**os.environ, "PYTHONPATH": f"{fakes}{os.pathsep}{PACKAGE.parent}", "PID_FILE": str(pid_file)}
    signal.signal(signal.SIGIO, signal.SIG_IGN if ignored else signal.SIG_DFL)
    parent = subprocess.Popen([sys.executable, str(tmp_path / "parent.py")], env=environment)
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    try:
        while not (pid_file.exists() and pid_file.read_text()):
            assert parent.poll() is None
            time.sleep(0.02)
        child = psutil.Process(int(pid_file.read_text()))
        time.sleep(0.2)  # for the loop to begin
        assert child.is_running()
        if stopped:
            child.suspend()
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    if stopped:
        child.resume()
    _, alive = psutil.wait_procs([child], timeout=10)
    for process in alive:
        process.kill()
    assert not alive


def test_children_of_tokenize_import_nothing_from_the_current_directory(hostile: Path, tmp_path: Path) -> None:
    text, recipe = tiny.write_text(tmp_path / "text.txt"), tiny.write_config(tmp_path, "nowhere")
    assert cli.main(["tokenize", str(text), str(tmp_path / "c"), f"--config={recipe}", "--workers=2"]) == 0
    assert not hostile.exists()


@pytest.mark.parametrize("words", [["-m", "json.tool", "--help"], ["-c", "import numpy"]])
@pytest.mark.parametrize("python", [None, os.path.realpath(sys.executable)], ids=["this Python", "another"])
def test_modules_and_code_run_isolated(hostile: Path, words: list[str], python: str | None) -> None:
    with start_python(words, python, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        process.wait()
    assert not hostile.exists() and (python or process.returncode == 0)


def test_a_child_imports_the_bertzoo_of_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bertzoo.py").write_text("raise SystemExit(5)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with start_python(["-c", "import bertzoo"]) as process:
        assert process.wait() == 0


def test_one_function_starts_children() -> None:
    """Everything else that starts a process runs git."""
    starts = re.compile(r"subprocess\.(run|Popen|call|check_\w+)\(|os\.(fork|exec|spawn|posix_spawn|system|popen)\w*\(")
    users = {
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        if starts.search(file.read_text(encoding="utf-8"))
    }
    assert users == {"core/child.py", "runs/provenance.py"}
    spawning = re.compile(r"get_context|ProcessPoolExecutor\(|multiprocessing\.(Process|Pool)")
    users = {str(file.relative_to(PACKAGE)) for file in PACKAGE.rglob("*.py") if spawning.search(file.read_text())}
    assert users == {"data/corpus/workers.py"}


@pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux's")
def test_a_process_without_network_has_no_network_sockets():
    with start_python(["-c", SOCKETS], stdout=subprocess.PIPE, text=True) as process:
        assert process.communicate()[0].split() == ["denied", "denied"] and process.returncode == 0


def test_an_unknown_processor_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child.platform, "machine", lambda: "riscv64")
    with pytest.raises(OSError, match="riscv64"):
        child.filter_calls("socket", 0, (1, 2), 0)
