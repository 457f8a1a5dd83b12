"""A landing runs what its change can reach, and everything within five landings."""

import ast
import re
import subprocess
from pathlib import Path

import landing
import pytest
from impact import STARTERS, Tree

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def tree() -> Tree:
    return Tree(ROOT)


@pytest.mark.parametrize(
    ("test", "reached", "not_reached"),
    [
        # a format by name, through the dispatcher of formats
        ("parity/test_live_onnx", "bertzoo/export/pytorch/onnx_text.py", "bertzoo/export/litert/write.py"),
        ("parity/test_live_litert", "bertzoo/export/litert/litert_process.py", "bertzoo/export/pytorch/torch_files.py"),
        # a command by name, and a process of it
        ("hosts/test_prune_of_many", "bertzoo/cli/prune.py", "bertzoo/cli/finetune.py"),
        ("hosts/test_transfer_of_many", "bertzoo/runs/teacher.py", "bertzoo/pruning/surgery.py"),
        # a program beside the test
        ("hosts/test_hosts", "tests/hosts/member.py", "tests/launch/fake.py"),
        # a fixture of a conftest.py, and only that which the test uses
        ("runs/test_transfer_devices", "tests/tiny.py", "tests/pruning/prunable.py"),
        ("docs/test_tutorials", "docs/tutorials/prune.md", "tests/golden/bert.npz"),
        # any command, because it runs those of the documents
        ("docs/test_tutorials", "bertzoo/cli/submission.py", "tests/golden/bert.npz"),
        ("runs/test_golden_curve", "configs/curves/demo.toml", "docs/index.md"),
    ],
)
def test_a_test_reaches(tree: Tree, test: str, reached: str, not_reached: str) -> None:
    found = tree.reach(f"tests/{test}.py")
    assert {reached, not_reached} <= tree.files and reached in found and not_reached not in found
    assert {"uv.lock", "tests/conftest.py", "bertzoo/core/errors.py"} <= found.keys()


def test_a_module_reaches_the_programs_and_commands_that_it_starts(tree: Tree) -> None:
    started = tree._python(ast.parse('run("-m", "bertzoo.benchmarking.worker")'), "bertzoo/x.py").files
    assert started == {"bertzoo/benchmarking/worker.py"}
    assert "bertzoo/cli/sweep.py" in tree.references("bertzoo/pipeline/verbs.py").files


def test_every_module_that_starts_commands_is_known() -> None:
    starts = re.compile(r'"-m", "bertzoo"')
    found = {
        str(file.relative_to(ROOT)) for file in (ROOT / "bertzoo").rglob("*.py") if starts.search(file.read_text())
    }
    others = {file for file in found if not file.startswith(STARTERS)}
    assert others == {"bertzoo/train/supervisor.py"} and found != others  # it starts its own command again


def ledger_of(**seconds: int) -> dict:
    return {"landing": 1, "files": {file: {"ran": 0, "seconds": each} for file, each in seconds.items()}}


def test_a_change_runs_what_reaches_it_and_a_fifth_of_the_others() -> None:
    reach = {"a": {"x": 1}, "b": {"y": 2}, "c": {"y": 1}, "d": {}, "e": {}, "new": {}}
    found = landing.choose(reach, ledger_of(a=20, b=1, c=1, d=1, e=1), {0: {"y"}})
    assert [(each.file, each.reason) for each in found if each.runs] == [
        ("new", "never ran, or too long ago"),
        ("c", "y"),
        ("b", "y"),
    ]
    ledger = ledger_of(**dict.fromkeys("abcde", 30), new=30)
    assert len([each for each in landing.choose(reach, ledger, {0: set()}) if each.runs]) == 2
    assert [each.file for each in landing.impacted(reach, ledger, {"y"}) if each.runs] == ["b", "c"]


def test_every_file_runs_within_five_landings() -> None:
    seconds = {f"test_{number}": 1 + 37 * number % 50 for number in range(40)}
    ledger, reach = ledger_of(**seconds), {file: {file: 1} for file in seconds}
    for number in range(1, 6):
        for choice in landing.choose(reach, ledger, {before: {"test_7"} for before in range(number)}):
            if choice.runs:
                ledger["files"][choice.file]["ran"] = number
        assert sum(entry["ran"] == number for entry in ledger["files"].values()) < 20
    assert min(entry["ran"] for entry in ledger["files"].values()) >= 1


def test_what_a_long_landing_leaves_runs_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "LIMIT", 50)
    reach = {name: {"x": place} for place, name in enumerate("abcdefghij")}
    ledger = ledger_of(**dict.fromkeys(reach, 10))
    first = {each.file for each in landing.choose(reach, ledger, {0: {"x"}}) if each.runs}
    assert len(first) == 5 and len(first & set("abcde")) >= 3  # two have their turn; then the nearest ones
    for file in first:
        ledger["files"][file]["ran"] = 1
    second = {each.file for each in landing.choose(reach, ledger, {0: {"x"}, 1: set()}) if each.runs}
    assert second == set(reach) - first


def test_a_change_of_docstrings_is_no_change_of_code(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        name = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *name, *words], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "bertzoo" / "cli").mkdir(parents=True)
    files = [tmp_path / "bertzoo" / name for name in ("text.py", "code.py", "gone.py", "cli/help.py")]
    for file in files:
        file.write_text('"""Do."""\nx = 1\n')
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "a")
    files[0].write_text('"""Do it."""\nx = 1  # one\n')
    files[1].write_text('"""Do."""\nx = 2\n')
    files[2].unlink()
    files[3].write_text('"""Do it."""\nx = 1\n')
    (tmp_path / "new.toml").write_text("")
    changed = {"bertzoo/text.py#text", "bertzoo/code.py", "bertzoo/gone.py", "bertzoo/cli/help.py", "new.toml"}
    assert landing.changes(tmp_path, "HEAD") == changed
    assert landing.changes(tmp_path, "0" * 40) is None
