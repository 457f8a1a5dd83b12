"""The files that each slow or parity test file reaches: what its text names, as a whole room of the package, and so on.

A test file, its helpers, scripts and configs name files; a room names the rooms that it imports.
"""

import functools
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

# Every test reaches these, further away than any code; of what they name, only the fixtures that a test uses count.
EVERYWHERE = ("uv.lock", "constraints.txt", ".ci/build.txt", "pyproject.toml", "Makefile", "tests/conftest.py")
FAR = 99
NOWHERE = "tests/tiers.py"  # `make test` uses all of it
# What no text shows: these read the folders and files whose paths begin so.
READS = {
    "tests/hosts/around.py": ("tests/hosts/faults/",),
    "tests/parity/test_real_weights.py": (".ci/weights.txt",),
    "tests/docs/test_tutorials.py": ("configs/",),  # any documented command may run
    "tests/docs/test_site_build.py": ("docs/", "mkdocs.yml", "bertzoo/", "README.md", "CHANGELOG.md", "CONTRIBUTING"),
    "tests/test_house.py": ("bertzoo/", "configs/", "LICENSE", "README.md"),
}
STARTERS = ("bertzoo/jobs",)  # rooms that start commands
ROOM = re.compile(r'(?:\bfrom |\bimport |")bertzoo\.(\w+)|\bfrom bertzoo import (\w+)')
COMMAND = re.compile(r'-m",? "?bertzoo\b(?!\.)|\bbertzoo\s+[a-z]+\b')
BENCHMARK = re.compile(r'(?:\bfrom|\bimport|-m",? "?)\s?benchmarks\b')
JOINED = re.compile(r'/ "([\w.-]+(?:" / "[\w.-]+)*)"(?! / ")')  # such as ROOT / "tests" / "golden"
IMPORT = re.compile(r"^\s*(?:from|import) ([\w., ]+)", re.MULTILINE)  # with the names after `import`
FUNCTION = re.compile(r"^(?:@.*\n)*def (\w+)", re.MULTILINE)
SLOW = re.compile(r"\bmark\.slow\b|\bquick\(")


class Tree:
    """The files of a checkout and what they refer to; `changed` adds paths that are gone.

    rooms: files by room, such as bertzoo/nn; benchmarks is one, too. named: files by their name or, if they are Python,
    their module. folders: other files by the path of a folder that holds them. configs: by their name. neighbours:
    function from a file or a room to the files and rooms that it names.
    """

    def __init__(self, root: Path, changed: Iterable[str] = ()) -> None:
        self.root = root
        self.neighbours = functools.cache(lambda place: self._named_in(self.text(place), place))
        self.files = {*git(root, "ls-files", "--cached", "--others", "--exclude-standard").splitlines(), *changed}
        self.rooms, self.named = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
        self.folders, self.configs = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
        for file in self.files:
            path = Path(file)
            if file.startswith(("bertzoo/", "benchmarks/")) and "#" not in file:
                room = "benchmarks" if file.startswith("benchmarks/") else "/".join(path.parts[:2])
                self.rooms[room if not room.endswith(".py") else "bertzoo/api"].add(file)
            elif path.suffix == ".py":
                self.named[path.stem if path.stem != "conftest" else file].add(file)
            elif file.startswith("configs/"):
                self.configs[path.stem].add(file)
            if path.suffix != ".py":
                for folder in path.parents:
                    self.folders[str(folder)].add(file)
            self.named[path.name].add(file)

    @functools.cached_property
    def tests(self) -> list[str]:
        """The files with slow tests, and those of tests/parity."""
        tests = [file for file in sorted(self.files) if re.fullmatch(r"tests/.*test_\w+\.py", file)]
        return [file for file in tests if (self.root / file).is_file() and self._is_chosen(file)]

    def _is_chosen(self, file: str) -> bool:
        return file.startswith("tests/parity/") or SLOW.search(self.text(file)) is not None

    def text(self, file: str) -> str:
        """The text of a file, or of a room's files; empty for data."""
        if file in self.rooms:
            return "\n".join(map(self.text, sorted(self.rooms[file])))
        path = self.root / file
        text = path.read_text(encoding="utf-8") if path.suffix in (".py", ".toml", ".sh") and path.is_file() else ""
        return text if path.suffix == ".py" else re.sub(r"(^|\s)#.*", "", text)  # without comments

    def _named_in(self, text: str, place: str) -> set[str]:
        rooms = {f"bertzoo/{one or other}" for one, other in ROOM.findall(text)} & self.rooms.keys()
        quoted = re.findall(r'"(\w+)"', text)
        if place.startswith("bertzoo/"):
            configs = set().union(*(self.configs.get(word, ()) for word in quoted))
            return rooms | configs | ({"bertzoo/cli"} if place in STARTERS else set())
        if place.startswith("configs/"):
            recipe = place.startswith(("configs/pipelines/", "configs/sweeps/"))
            return set().union(*(self.configs.get(word, ()) for word in quoted if recipe))
        words = {*re.findall(r"[\w-]+", text), *re.findall(r"\w+", text)}
        rooms |= {"benchmarks"} if BENCHMARK.search(text) else set()
        rooms |= {"bertzoo/cli"} if COMMAND.search(text) else set()
        rooms |= {"bertzoo/api"} if re.search(r"^\s*import bertzoo$", text, re.MULTILINE) else set()
        names = {*re.findall(r"\w+", " ".join(IMPORT.findall(text))), *re.findall(r"[\w.-]*\w\.\w+", text)}
        files = [self.named.get(name, ()) for name in names]
        files += [self.configs.get(word, ()) for word in (self.configs if "shipped" in words else words)]
        joined = [path.replace('" / "', "/") for path in JOINED.findall(text)]
        starts = ("", "tests/", f"{Path(place).parent}/")
        files += [self.folders.get(f"{start}{path}", ()) for path in joined for start in starts]
        files += [{file for file in self.files if file.startswith(READS.get(place, ("\0",)))}]
        return (rooms | set().union(*files)) - {place}

    def reach(self, test: str) -> dict[str, int]:
        """{file: how many references away} for all that a test file reaches."""
        conftests = [path for folder in Path(test).parents if (path := f"{folder}/conftest.py") in self.files]
        parts = iter(FUNCTION.split(self.text("tests/conftest.py"))[1:])
        fixtures = dict(zip(parts, parts, strict=True))
        distances = dict.fromkeys([test, *conftests], 0) | dict.fromkeys([*EVERYWHERE, NOWHERE], FAR)
        waiting = [place for place in [test, *conftests] if place not in EVERYWHERE]
        for place in waiting:
            found = self.neighbours(place)
            words = set() if place in self.rooms else set(re.findall(r"\w+", self.text(place)))
            while used := words & fixtures.keys():
                text = "\n".join(fixtures.pop(name) for name in used)
                words, found = set(re.findall(r"\w+", text)), found | self._named_in(text, "tests/conftest.py")
            new = sorted(found - distances.keys())
            distances |= dict.fromkeys(new, distances[place] + 1)
            waiting += new
        del distances[NOWHERE]
        rooms = {file: distances[room] for room in self.rooms.keys() & distances.keys() for file in self.rooms[room]}
        return rooms | {file: distance for file, distance in distances.items() if file in self.files}


def git(root: Path, *words: str) -> str:
    """What git prints."""
    try:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, encoding="utf-8", check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", None) or str(error)
        sys.exit(f"`git {' '.join(words)}` failed in {root}: {reason.strip()}. Install git and use a clone.")
    return done.stdout
