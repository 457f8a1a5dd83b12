"""A landing runs what its change can reach, and everything within five landings."""

import re
import subprocess
from pathlib import Path

import landing
import pytest
from impact import EVERYWHERE, FAR, STARTERS, Tree

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def tree() -> Tree:
    return Tree(ROOT)


@pytest.mark.parametrize(
    ("test", "reached", "not_reached"),
    [
        # the rooms that it imports and those that they import, but not those above
        ("nn/test_modern", "bertzoo/nn/dense.py", "bertzoo/cli/main.py"),
        # a command, in a process
        ("hosts/test_prune_of_many", "bertzoo/cli/prune.py", "docs/index.md"),
        # a program beside the test
        ("hosts/test_hosts", "tests/hosts/member.py", "tests/launch/fake.py"),
        # a fixture of a conftest.py, and only that which the test uses
        ("runs/test_transfer_devices", "tests/tiny.py", "tests/pruning/prunable.py"),
        ("docs/test_tutorials", "docs/tutorials/prune.md", "tests/golden/bert.npz"),
        ("runs/test_golden_curve", "tests/golden/curves/demo.toml", "docs/index.md"),
    ],
)
def test_a_test_reaches(tree: Tree, test: str, reached: str, not_reached: str) -> None:
    found = tree.reach(f"tests/{test}.py")
    assert {reached, not_reached} <= tree.files and reached in found and not_reached not in found
    assert {*EVERYWHERE, "bertzoo/core/errors.py"} <= found.keys()
    assert max(found[path] for path in found if path not in EVERYWHERE) < FAR == min(found[path] for path in EVERYWHERE)


def test_every_helper_and_data_file_is_reached(tree: Tree) -> None:
    """A change of a file below tests/ selects the tests that use it."""
    sources = {path for path in tree.files if re.fullmatch(r"tests/.*\.py", path)} - {"tests/test_landing.py"}
    reached = set().union(*map(tree.neighbours, sources))
    program_and_ledger = {"tests/golden/__main__.py", landing.LEDGER}
    files = {path for path in tree.files if re.match(r"tests/(?!.*/?(test_\w+|conftest)\.py)", path)}
    assert not files - program_and_ledger - reached
    assert "tests/hosts/faults/sitecustomize.py" in tree.neighbours("tests/hosts/around.py")
    assert ".ci/weights.txt" in tree.neighbours("tests/parity/test_real_weights.py")


def test_every_room_that_starts_commands_is_known(tree: Tree) -> None:
    found = {room for room in tree.rooms if room.startswith("bertzoo/") and '"-m", "bertzoo"' in tree.text(room)}
    assert found == {*STARTERS, "bertzoo/train"}  # the supervisor starts its own command again
    assert "bertzoo/cli" in tree.neighbours("bertzoo/jobs")


def ledger_of(**seconds: int) -> dict:
    return {"landing": 1, "files": {file: {"ran": 0, "seconds": each} for file, each in seconds.items()}}


def test_a_change_runs_what_reaches_it_and_a_fifth_of_the_others() -> None:
    reach = {"a": {"x": 1}, "b": {"y": 2}, "c": {"y": 1}, "d": {}, "e": {}, "new": {}}
    found = landing.choose(reach, ledger_of(a=20, b=1, c=1, d=1, e=1), {0: {"y"}})
    assert [(each.file, each.reason) for each in found if each.runs] == [("new", "its turn"), ("c", "y"), ("b", "y")]
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


def test_near_files_run_beyond_the_limit_and_none_beyond_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "LIMIT", 50)
    monkeypatch.setattr(landing, "MOST", 80)
    reach = {name: {"x": place % 5} for place, name in enumerate("abcdefghij")}
    ledger = ledger_of(**dict.fromkeys(reach, 10))
    plan = landing.choose(reach, ledger, {0: {"x"}})
    assert sum(each.runs for each in plan) == 8  # two have their turn; the near ones run as far as the cap permits
    postponed = {each.file for each in plan if each.postponed}
    assert postponed == {each.file for each in plan if not each.runs} and "e" in postponed
    assert all(re.search(rf"WARNING[\s\S]*\b{file}\b", landing.report(plan)) for file in postponed)
    for file in postponed:
        ledger["files"][file]["postponed"] = True
    monkeypatch.setattr(landing, "LIMIT", 0)
    assert postponed <= {each.file for each in landing.choose(reach, ledger, {0: {"x"}}) if each.runs}


def test_files_without_a_recorded_run_have_the_first_turn() -> None:
    files = {"a": {"ran": 7, "seconds": 1}, "b": {"ran": 8, "seconds": 1}, "c": {"seconds": 1}}
    reach = {"a": {"x": 1}, "b": {"x": 1}, "c": {"y": 1}, "d": {}}
    plan = landing.choose(reach, {"landing": 9, "files": files}, {7: {"y"}, 8: set()})
    assert [(each.file, each.reason) for each in plan if each.runs] == [("d", "its turn"), ("c", "y")]


def git(folder: Path, *words: str) -> None:
    name = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *name, *words], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> str:
    git(folder, "add", ".")
    git(folder, "commit", "-q", "--allow-empty", "-m", "a")
    return landing.git(folder, "rev-parse", "HEAD").strip()


def test_two_landings_in_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tests").mkdir()
    for name in ("landing.py", "impact.py"):
        text = (ROOT / "tests" / name).read_text()
        (tmp_path / "tests" / name).write_text(re.sub("^(LIMIT|MOST) = .*", r"\1 = 25", text, flags=re.MULTILINE))
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (tmp_path / ".gitignore").write_text(".pytest_cache\n__pycache__\n")
    tests = [f"tests/test_{name}.py" for name in "abc"]
    for test in tests:
        (tmp_path / test).write_text(f'import pytest\n\npytestmark = pytest.mark.slow\nDATA = "{test[11]}.txt"\n')
        (tmp_path / "tests" / f"{test[11]}.txt").touch()
    git(tmp_path, "init", "-q")
    landing.write_ledger(tmp_path, {"landing": 1, "revisions": {}, "files": {"tests/test_gone.py": {"ran": 1}}})
    first = commit(tmp_path)
    monkeypatch.setattr(landing, "ROOT", tmp_path)
    landing.write_ledger(tmp_path, landing.read_ledger(tmp_path) | {"landing": 2, "revisions": {"1": first}})
    landing.record_seconds(dict.fromkeys(tests, 10.4))
    assert not {choice.file for choice in landing.choices(tmp_path, first) if choice.runs}
    for test in tests:
        (tmp_path / "tests" / f"{test[11]}.txt").write_text("new")
    second = commit(tmp_path)
    landing.record_landing(tmp_path, second)
    ledger = landing.read_ledger(tmp_path)
    assert ledger["landing"] == 3 and ledger["revisions"] == {"1": first, "2": second}
    entries = sorted((entry.get("ran", 0), entry.get("postponed", False)) for entry in ledger["files"].values())
    assert ledger["files"].keys() == set(tests) and entries == [(0, True), (2, False), (2, False)]
    (left,) = (file for file in tests if "postponed" in ledger["files"][file])
    landing.record_landing(tmp_path, commit(tmp_path))
    ledger = landing.read_ledger(tmp_path)
    assert ledger["files"][left] == {"seconds": 10, "ran": 3} and ledger["landing"] == 4
    with pytest.raises(SystemExit, match=second):
        landing.record_landing(tmp_path, second)


def test_no_clone_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(SystemExit, match=str(tmp_path)):
        landing.changes(tmp_path, "HEAD")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match=str(tmp_path)):
        landing.changes(tmp_path, "HEAD")


def test_a_change_of_docstrings_is_no_change_of_code(tmp_path: Path) -> None:
    (tmp_path / "bertzoo" / "cli").mkdir(parents=True)
    files = [tmp_path / "bertzoo" / name for name in ("text.py", "code.py", "gone.py", "cli/help.py")]
    for file in files:
        file.write_text('"""Do."""\nx = 1\ny = "\u2028"\n', encoding="utf-8")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    files[0].write_text('"""Do it."""\nx = 1  # one\ny = "\u2028"\n', encoding="utf-8")
    files[1].write_text('"""Do."""\nx = 2\n')
    files[2].unlink()
    files[3].write_text('"""Do it."""\nx = 1\ny = "\u2028"\n', encoding="utf-8")
    (tmp_path / "new.toml").write_text("")
    changed = {"bertzoo/text.py#text", "bertzoo/code.py", "bertzoo/gone.py", "bertzoo/cli/help.py", "new.toml"}
    assert landing.changes(tmp_path, "HEAD") == changed
    assert landing.changes(tmp_path, "0" * 40) is None
