"""benchmarks/reliability: an attack that succeeds is a fault of the command, whichever part it belongs to."""

import sys
from pathlib import Path

import pytest

from benchmarks.lib import results
from benchmarks.reliability import attack, inputs, kills

SAFE = "from pathlib import Path; t = Path('out.tmp'); t.write_text('x' * 8); t.replace('out')"
TORN = "from pathlib import Path; p = Path('out'); p.exists() or p.write_text('x' * 8)"
LEFT = f"import os; from pathlib import Path; Path(f'{{os.getpid()}}.tmp').write_text('x'); {SAFE}"
ORPHAN = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); {SAFE}"
CRASH = "from pathlib import Path; Path('out.tmp').write_text('x'); Path('out').write_text('x'); 1 / 0"
READER = """
import sys
sys.path.insert(0, {tests!r})
import pytest
from hostile import fuzz, survive

@pytest.mark.slow
@pytest.mark.parametrize("wrong", [False, True])
def test_reader(wrong):
    fuzz(f"reader (wrong={{wrong}})", lambda damage: survive(lambda: {{}}["key"] if wrong else None))
"""
pytestmark = [
    pytest.mark.slow,  # processes that are killed
    pytest.mark.skipif(sys.platform != "linux", reason="kill_at.c is for Linux"),
]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kills.compile_shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kills, "GRACE", 1)


@pytest.mark.parametrize(("code", "fault"), [(SAFE, ""), (TORN, "out differs"), (LEFT, "left over")])
def test_kills_before_any_call_show_a_lost_file(code: str, fault: str, shim: Path, tmp_path: Path) -> None:
    (tmp_path / "inputs").mkdir()
    commands = {"command": [sys.executable, "-c", code]}
    taken = attack.recorded_kills(tmp_path, 8, 0, tmp_path / "inputs", shim, commands)
    faults = [kill["faults"] for kill in taken]
    assert len(taken) == 8 and len({kill["number"] for kill in taken}) > 1 and all(kill["call"] for kill in taken)
    assert any(fault in "; ".join(each) for each in faults) if fault else not any(faults)
    (row,) = attack.kill_rows(taken, tmp_path)
    assert row["met"] is not bool(fault) and row["kills"] == 8 and row["calls that change files"] >= 2
    again = attack.recorded_kills(tmp_path, 8, 0, tmp_path / "inputs", shim, commands) if not fault else taken
    assert again == taken


@pytest.mark.parametrize(("code", "fault"), [(ORPHAN, "1 processes left"), (CRASH, "ZeroDivisionError")])
def test_processes_left_and_tracebacks_are_faults(code: str, fault: str, shim: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    before = kills.descendants()
    ending = kills.run([sys.executable, "-c", code], place, shim)
    assert any(fault in line for line in ending.faults(None)) and not ending.call
    assert ending.left == (code == ORPHAN)
    for process in kills.descendants() - before:
        process.kill()


def test_a_reader_that_raises_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test = tmp_path / "test_reader.py"
    test.write_text(READER.format(tests=str(Path(__file__).parent)))
    sound, wrong = inputs.attack_inputs(40, tmp_path / "report.xml", [str(test)])
    assert sound["met"] and sound["tried"] >= 20 and not sound["faults"]
    assert not wrong["met"] and wrong["faults"] == 1 and "KeyError" in wrong["details"][0]
    monkeypatch.setattr(sys, "argv", ["reliability.attack"])
    with pytest.raises(SystemExit, match="missed"):
        results.write(tmp_path / "out.json", [], {"inputs": [sound, wrong]})
