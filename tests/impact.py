"""The files that each slow or parity test file reaches: its imports, what its strings name, and the same of these.

Two dispatchers import by name: `cli.main` a command, `export.formats` a format. Through them a test reaches only the
branches that its own strings, or those of its helpers and scripts, name; all of them if they name none.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

# Every test reaches these, further away than any code; of what they name, only the fixtures that a test uses count.
EVERYWHERE = ("uv.lock", "constraints.txt", ".ci/build.txt", "pyproject.toml", "Makefile", "tests/conftest.py")
FAR = 99
NOWHERE = "tests/tiers.py"  # `make test` uses all of it
# What strings do not show: these read the folders and files whose paths begin so.
READS = {
    "tests/hosts/around.py": ("tests/hosts/faults/",),
    "tests/parity/test_real_weights.py": (".ci/weights.txt",),
    "tests/docs/test_site_build.py": ("docs/", "mkdocs.yml", "bertzoo/", "README.md", "CHANGELOG.md", "CONTRIBUTING"),
    "tests/test_house.py": ("bertzoo/", "configs/", "LICENSE", "README.md"),
}
MAIN = "bertzoo/cli/main.py"
COMMAND = re.compile(r"bertzoo/cli/([a-z]+)\.py")
# Path of a branch of `export.formats` -> what names it; other modules of bertzoo import these files for it too.
BRANCHES = {
    "bertzoo/export/litert/mediapipe": "mediapipe",
    "bertzoo/export/litert/": "litert|tflite|mediapipe",
    "bertzoo/export/pytorch/onnx_text": "onnx.text",
    "bertzoo/export/pytorch/executorch": r"executorch|\.pte\b",
    "bertzoo/export/pytorch/": r"torch|onnx|\.ptd?2?e?\b",
}
ALL_FORMATS = {"FILES", "TEXT_FORMATS", "SUFFIXES", "targets"}  # a test with one of these names reads every format
RECIPES = ("configs/pipelines/", "configs/sweeps/")  # name commands and configs
STARTERS = ("bertzoo/jobs/",)  # start commands that their whole strings name
PATH = re.compile(r"[\w./-]*\w\.\w+")
SLOW = re.compile(r"\bmark\.slow\b|\bquick\(")
MODULE = re.compile(r"\b(?:bertzoo|benchmarks)(?:\.\w+)+")
IMPORT = re.compile(r"\bfrom (bertzoo[\w.]*) import (\w+(?:, \w+)*)")


def imports(tree: ast.AST) -> Iterator[tuple[str, str, str]]:
    """Yield (module, name or "", bound name) of all that a syntax tree imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "", alias.asname or "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import of {node.module}"
            yield from ((str(node.module), alias.name, alias.asname or alias.name) for alias in node.names)


class References(NamedTuple):
    """What a file, or a fixture of a conftest.py, refers to.

    files: what it imports, runs or reads. text: its strings, without docstrings. names: its identifiers.
    """

    files: frozenset[str]
    text: str
    names: frozenset[str]


class Tree:
    """The files of a checkout and what they refer to; `changed` adds paths that are gone."""

    def __init__(self, root: Path, changed: Iterable[str] = ()) -> None:
        self.root = root
        listed = git(root, "ls-files", "--cached", "--others", "--exclude-standard").splitlines()
        self.files = {*listed, *changed}
        self.by_name: dict[str, list[str]] = {}
        for file in self.files:
            self.by_name.setdefault(file.rpartition("/")[2], []).append(file)
        self.configs: dict[str, list[str]] = {}
        for file in sorted(self.files):
            if file.startswith("configs/") and file.endswith(".toml"):
                self.configs.setdefault(Path(file).stem, []).append(file)
        settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]
        self.path = settings["ini_options"].get("pythonpath", [])
        self.commands = {match[1] for file in self.files if (match := COMMAND.fullmatch(file))} - {"main"}
        self._references: dict[str, References] = {}
        self._fixtures: dict[str, dict[str, tuple[bool, References]]] = {}

    @cached_property
    def tests(self) -> list[str]:
        """The files with slow tests, and those of tests/parity."""
        tests = []
        for file in sorted(self.files):
            if re.fullmatch(r"tests/.*test_\w+\.py", file) and (self.root / file).is_file():
                text = (self.root / file).read_text(encoding="utf-8")
                if file.startswith("tests/parity/") or SLOW.search(text):
                    tests.append(file)
        return tests

    def _slow_part(self, test: str) -> References:
        """What the slow tests of a file refer to."""
        tree = ast.parse((self.root / test).read_text(encoding="utf-8"))
        slow, kept = SLOW.pattern, []
        for node in tree.body:
            name = None
            if isinstance(node, ast.FunctionDef):
                source = "\n".join(map(ast.unparse, [*node.decorator_list, node.args]))
                name = node.name
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                source, name = ast.unparse(node), re.split(r"\W", ast.unparse(node), maxsplit=1)[0]
            if name and re.search(slow, source):
                slow += rf"|\b{name}\b"  # a list of cases, a fixture of them, or pytestmark
            elif name and name.startswith("test_"):
                continue
            kept.append(node)
        if not test.startswith("tests/parity/") and "pytestmark" not in slow:
            tree.body = kept
        return self._python(tree, test)

    def references(self, file: str) -> References:
        if file not in self._references:
            self._references[file] = self._read(file)
        return self._references[file]

    def _read(self, file: str) -> References:
        path = self.root / file
        if not path.is_file() or path.suffix not in {".py", ".toml", ".sh"}:
            return References(frozenset(), "", frozenset())
        text = path.read_text(encoding="utf-8")
        if path.suffix != ".py":
            text = re.sub(r"(^|\s)#.*", "", text)  # comments
            return References(frozenset(self._named(text, file)), text, frozenset())
        tree = ast.parse(text)
        if path.name == "conftest.py":
            self._fixtures[file] = dict(self._cut_fixtures(tree, file))
        return self._python(tree, file)

    def _cut_fixtures(self, tree: ast.Module, file: str) -> Iterator[tuple[str, tuple[bool, References]]]:
        """Take the functions out of a conftest.py: a test uses only the fixtures that it names."""
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        tree.body = [node for node in tree.body if node not in functions]
        for node in functions:
            auto = any("autouse=True" in ast.unparse(decorator) for decorator in node.decorator_list)
            yield node.name, (auto, self._python(node, file))

    def _python(self, tree: ast.AST, file: str) -> References:
        ours = file.startswith("bertzoo/")
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        strings, names, files = [], set(), set()
        attributes: dict[str, set[str]] = {}  # name -> what is taken from it; "" for the object itself
        inner = {id(node.value): node for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        chained: set[int] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                strings.append(node.value)
            elif isinstance(node, ast.Name):
                names.add(node.id)
                outer = inner.get(id(node))
                attributes.setdefault(node.id, set()).add(outer.attr if outer else "")
            elif isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.arg):
                names.add(node.arg)
            elif not ours and isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and id(node) not in chained:
                files |= self._joined(node, file, chained)
        words = names | set(re.findall(r"\w+", "\n".join(strings)))
        for module, name, bound in imports(tree):
            if name and (ours or bound in words):
                files |= self._imported(module, name, file, attributes, bound)
            elif not name:
                first = bound or module.partition(".")[0]
                files |= self._module(module if bound or "." in module else first, file, attributes, first)
        text = "\n".join(strings)
        if not ours:
            files |= self._named(text, file)
            files |= {path for path in self.files if path.startswith(READS.get(file, ("\0",)))}
        else:
            files |= self._programs(text, file)
            files |= {f for word in PATH.findall(text) for f in self.by_name.get(word, ()) if f.startswith("bertzoo/")}
            if file.startswith(("bertzoo/api/", "bertzoo/cli/", "bertzoo/jobs/")):
                files |= {config for word in strings for config in self.configs.get(word, ())}
            if file.startswith(STARTERS):
                files |= {f"bertzoo/cli/{word}.py" for word in strings if word in self.commands}
        if "shipped" in names and file.startswith(("tests/", "benchmarks/", "bertzoo/cli/models.py")):
            files |= {config for paths in self.configs.values() for config in paths}
        return References(frozenset(files - {file}), text, frozenset(names))

    def _joined(self, node: ast.AST, file: str, chained: set[int]) -> set[str]:
        """The files that `folder / "a" / "b"` names: one file, or all of a folder."""
        parts: list[str | None] = []
        while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            chained.add(id(node))
            value = node.right.value if isinstance(node.right, ast.Constant) else None
            parts.insert(0, value if isinstance(value, str) else None)
            node = node.left
        known = parts[: parts.index(None)] if None in parts else parts
        name = "/".join(part for part in known if part).strip("/")
        if not name or "." in name.split("/")[-1]:
            return set()  # `_named` finds a file
        here = str(Path(file).parent)
        starts = (f"{name}/", f"tests/{name}/", f"{here}/{name}/")
        return {f for f in self.files if f.startswith(starts) and not f.endswith(".py")}

    def _named(self, text: str, file: str) -> set[str]:
        """The files that a text outside bertzoo/ names: by the end of a path, or as a shipped config."""
        words = () if file.endswith(".toml") and not file.startswith(RECIPES) else re.findall(r"[\w-]+", text)
        named = {config for word in words for config in self.configs.get(word, ())}
        for word in PATH.findall(text):
            word = re.sub(r"^(\.\.?/)+", "", word)
            matches = [f for f in self.by_name.get(word.rpartition("/")[2], ()) if f"/{f}".endswith(f"/{word}")]
            neighbours = [f for f in matches if f.startswith(f"{Path(file).parent}/")]
            named.update(neighbours or matches)
        if re.search(rf"-m\s+bertzoo\b(?!\.)|\bbertzoo\s+({'|'.join(self.commands)})\b", text):
            named |= {MAIN, "bertzoo/__main__.py"} & self.files
        return (named | self._programs(text, file)) - {file}

    def _programs(self, text: str, file: str) -> set[str]:
        """The modules that a text names, as `-m` does, or imports."""
        modules = {path for word in MODULE.findall(text) for path in self._module(word, file, {})}
        modules.discard("bertzoo/__init__.py")  # of a text such as a file's name
        for package, names in IMPORT.findall(text):
            modules.update(*(self._imported(package, name, file, {}, "") for name in names.split(", ")))
        return modules

    def _module(self, name: str, file: str, attributes: dict[str, set[str]], bound: str | None = None) -> set[str]:
        """The files that the import of a module runs, as far as the importer uses it."""
        path = self._file(name, file)
        while path is None and "." in name:
            name = name.rpartition(".")[0]
            path = self._file(name, file)
        if path is None:
            return set()
        if not path.endswith("/__init__.py"):
            return {path}
        used = attributes.get(bound or "", set())
        if bound is None:
            return {path}
        if not used or "" in used:
            return {path, *self.references(path).files}
        return {path}.union(*(self._imported(name, attribute, file, attributes, "") for attribute in used))

    def _imported(self, package: str, name: str, file: str, attributes: dict[str, set[str]], bound: str) -> set[str]:
        """The files behind `from package import name`, where the package may only pass the name on."""
        if self._file(f"{package}.{name}", file):
            return self._module(f"{package}.{name}", file, attributes, bound or None)
        path = self._file(package, file)
        if path is None:
            return set()
        if not path.endswith("/__init__.py"):
            return {path}
        for module, passed, bound in imports(ast.parse((self.root / path).read_text(encoding="utf-8"))):
            if passed and bound == name and module != package:
                return {path, *self._imported(module, passed, path, {}, "")}
        return {path, *self.references(path).files}

    def _file(self, name: str, importer: str) -> str | None:
        inside = name.replace(".", "/")
        folders = (
            [""] if name.startswith(("bertzoo", "benchmarks", "tests")) else [str(Path(importer).parent), *self.path]
        )
        for folder in folders:
            start = "" if folder in ("", ".") else f"{folder}/"
            for path in (f"{start}{inside}.py", f"{start}{inside}/__init__.py"):
                if path in self.files:
                    return path
        return None

    def _conftests(self, test: str) -> list[str]:
        folders = [str(parent) for parent in Path(test).parents]
        return [f"{folder}/conftest.py" for folder in folders if f"{folder}/conftest.py" in self.files]

    def reach(self, test: str) -> dict[str, int]:
        """{file: how many references away} for all that a test file reaches."""
        distances = dict.fromkeys([test, *self._conftests(test)], 0) | dict.fromkeys(EVERYWHERE, FAR)
        text, names = self._follow_helpers(test, distances)
        branches = self._open_branches(text, names)
        if any(file.startswith("docs/tutorials/") for file in distances):  # the test may run any documented command
            branches = self.commands | set(BRANCHES)
        waiting = sorted((file for file in distances if file.startswith("bertzoo/")), key=distances.__getitem__)
        for file in waiting:
            imported = set(self.references(file).files)
            if file == MAIN:
                imported |= {path for path in self.files if COMMAND.fullmatch(path)}
            imported = {path for path in imported if file.startswith(STARTERS) or self._is_open(path, file, branches)}
            for path in sorted(imported - distances.keys()):
                distances[path] = distances[file] + 1
                waiting.append(path)
        distances.pop(NOWHERE, None)
        return distances

    def _follow_helpers(self, test: str, distances: dict[str, int]) -> tuple[str, set[str]]:
        """Add the helpers, scripts, configs and fixtures of a test to `distances`; return their strings and names."""
        texts, names, waiting, fixtures = [], set(), [*distances], set()
        while waiting:
            for file in waiting:
                if not file.startswith("bertzoo/") and file != NOWHERE:
                    references = self._slow_part(file) if file == test else self.references(file)
                    if file not in EVERYWHERE:
                        if not file.startswith("configs/"):
                            texts.append(references.text)
                        names |= references.names
                        files = references.files - distances.keys()
                        distances |= dict.fromkeys(files, distances[file] + 1)
                        waiting.extend(sorted(files))
            waiting = []
            words = {*names, *re.findall(r"\w+", "\n".join(texts))}
            for conftest in self._conftests(test):
                self.references(conftest)
                for name, (auto, references) in self._fixtures[conftest].items():
                    if (auto or name in words) and (conftest, name) not in fixtures:
                        fixtures.add((conftest, name))
                        texts.append(references.text)
                        names |= references.names
                        files = references.files - distances.keys()
                        distances |= dict.fromkeys(files, 2)
                        waiting.extend(sorted(files))
                        waiting.append(conftest)
        return "\n".join(texts), names

    def _open_branches(self, text: str, names: set[str]) -> set[str]:
        """The commands and branches that a test's strings name."""
        commands = {name for name in self.commands if re.search(rf"(^|bertzoo\W+){name}( |$)", text, re.MULTILINE)}
        if not commands or "VERBS" in names or re.search(r"bertzoo\.cli\.$", text, re.MULTILINE):
            commands = self.commands
        formats = {branch for branch, pattern in BRANCHES.items() if re.search(pattern, text)}
        writes = not formats and (commands | names) & {"convert", "benchmark", "pipeline"}
        return commands | (set(BRANCHES) if writes or names & ALL_FORMATS else formats)

    def _is_open(self, file: str, importer: str, open_: set[str]) -> bool:
        if match := COMMAND.fullmatch(file):
            return importer != MAIN or match[1] in open_ | {"main"}
        branch = next((branch for branch in BRANCHES if file.startswith(branch)), None)
        return branch is None or branch in open_


def git(root: Path, *words: str) -> str:
    """What git prints."""
    try:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, encoding="utf-8", check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", None) or str(error)
        sys.exit(f"`git {' '.join(words)}` failed in {root}: {reason.strip()}. Install git and use a clone.")
    return done.stdout
