"""Imports point one way, files stay short, and no file names a machine or a private path."""

import ast
import functools
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from bertzoo.core.kinds import KINDS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "bertzoo"
FILES = sorted(PACKAGE.rglob("*.py"))

# What each room may import besides itself.
LOW = {"core", "nn", "data", "models", "train", "tasks", "heads", "objectives", "conversion"}
BELOW = {
    "core": set(),
    "nn": {"core"},
    "data": {"core"},
    "models": {"core", "nn"},
    "train": {"core", "nn"},
    "tasks": {"core", "data"},
    "heads": {"core", "nn", "models", "train"},
    "objectives": {"core", "nn", "models", "train", "heads"},
    "conversion": {"core", "nn", "models", "data", "heads"},
    "runs": LOW,
    "finetuning": LOW | {"runs"},
    "export": LOW | {"runs", "finetuning"},
    "pruning": LOW | {"runs"},
    "planning": LOW | {"runs"},
    "benchmarking": LOW | {"runs", "finetuning", "pruning", "export"},
    "jobs": LOW | {"runs", "export", "finetuning", "pruning", "planning"},
    "api": LOW | {"runs", "export", "finetuning", "pruning", "planning", "benchmarking"},
    "cli": LOW | {"runs", "export", "finetuning", "pruning", "planning", "benchmarking", "jobs", "api"},
}
JAX = {"jax", "jaxlib", "flax", "optax", "orbax"}
# Rooms and modules that must not import jax, not even inside a function.
NO_JAX = ("core", "data", "tasks", "runs.report", "cli.main", "finetuning.results", "jobs")
LITERT = {"litert_converter", "ai_edge_litert", "litert_quantizer"}
NEVER = LITERT | {"torch", "transformers", "tensorflow", "onnx", "onnx_ir", "onnxruntime", "onnxscript", "executorch"}
# Old checkpoints, where torch or TensorFlow is installed to read them; the module that is copied beside an exported
# model; and exports, where their packages are installed. executorch_process is a program of another Python.
ALLOWED = {
    "bertzoo.conversion.tensors": {"torch"},
    "bertzoo.conversion.tensorflow1": {"tensorflow"},
    "bertzoo.conversion.modeling_bertzoo": {"torch"},
    "bertzoo.conversion.pytorch": {"torch"},
    "bertzoo.benchmarking.worker": {"torch", "onnxruntime", "executorch", "ai_edge_litert"},
    "bertzoo.export.litert.write": LITERT - {"ai_edge_litert"},
    "bertzoo.export.litert.litert_process": {"litert_converter"},
    "bertzoo.export.litert.flatbuffer": {"litert_converter"},
    "bertzoo.export.pytorch.phone_module": {"torch"},
    "bertzoo.export.pytorch.onnx_file": {"torch", "onnx"},
    "bertzoo.export.runtimes": {"onnxruntime", "ai_edge_litert"},
    "bertzoo.export.pytorch.executorch_process": {"torch", "executorch"},
}
MEANINGLESS = {"read", "write", "check", "of", "begin", "found", "made", "given"}
DATA_FILE = re.compile(r"[\w-]+\.(json|jsonl|toml|csv|safetensors)")


@functools.cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def module(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room(name: str) -> str:
    """The room of a module; that of the package itself is empty."""
    return [*name.split("."), ""][1]


def without_jax(name: str) -> bool:
    return any(f"{name}.".startswith(f"bertzoo.{part}.") for part in NO_JAX)


def imports(file: Path) -> Iterator[str]:
    """The full names of all that a file imports, anywhere in it."""
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import of {node.module}"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("file", FILES, ids=module)
def test_imports_point_one_way(file: Path) -> None:
    name = module(file)
    for imported in imports(file):
        outer, inner = imported.split(".")[0], room(imported)
        banned = (NEVER | (JAX if without_jax(name) else set())) - ALLOWED.get(name, set())
        assert outer not in banned, f"{name} imports {imported}"
        if outer == "bertzoo" and room(name) in BELOW:
            assert inner == room(name) or inner in BELOW[room(name)], f"{name} imports {imported}"


def definitions() -> Iterator[tuple[str, ast.AST]]:
    """Every module-level function and every class of the package, with its module."""
    for file in FILES:
        tree = parsed(file)
        yield from ((module(file), node) for node in tree.body if isinstance(node, ast.FunctionDef))
        walked = list(ast.walk(tree))
        twins = [node for node in walked if isinstance(node, ast.FunctionDef) and node.name == "twin"]
        hidden = {inner for twin in twins for inner in ast.walk(twin)}
        yield from ((module(file), node) for node in walked if isinstance(node, ast.ClassDef) and node not in hidden)


def test_classes_have_unique_names_and_functions_telling_ones() -> None:
    """No two classes share a name, except PyTorch twins; no function has a meaningless name."""
    classes: dict[str, list[str]] = {}
    for name, node in definitions():
        if isinstance(node, ast.ClassDef) and name != "bertzoo.conversion.modeling_bertzoo":
            classes.setdefault(node.name, []).append(name)
        elif isinstance(node, ast.FunctionDef):
            assert node.name not in MEANINGLESS, f"{name}.{node.name}"
    assert len(classes) > 250
    assert not {name: modules for name, modules in classes.items() if len(modules) > 1}


def test_one_module_uses_private_parts_of_jax() -> None:
    users = {module(file) for file in FILES if any(name.startswith("jax._src") for name in imports(file))}
    assert users == {"bertzoo.train.hosts"}


def test_one_module_reads_json_and_toml() -> None:
    """Others would each have to know every way in which hostile text fails. Two run without bertzoo."""
    readers = {module(file) for file in FILES for name in imports(file) if name.startswith("tomllib")}
    for file in FILES:
        calls = (node.func for node in ast.walk(parsed(file)) if isinstance(node, ast.Call))
        if any(ast.unparse(call) in ("json.loads", "json.load", "json.JSONDecoder") for call in calls):
            readers.add(module(file))
        assert not {"json.loads", "json.load"} & set(imports(file)), file
    alone = {"bertzoo.conversion.modeling_bertzoo", "bertzoo.export.pytorch.executorch_process"}
    assert readers == {"bertzoo.core.documents", *alone}


def test_every_room_is_listed() -> None:
    rooms = {file.name.removesuffix(".py") for file in PACKAGE.iterdir() if file.is_dir() or file.suffix == ".py"}
    assert rooms - {"__init__", "__main__", "__pycache__"} == set(BELOW)


def test_the_checks_see_imports(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("import jax.numpy as jnp\ndef f():\n    from bertzoo.train import loop\n")
    assert list(imports(file)) == ["jax.numpy", "bertzoo.train.loop"]
    assert room("bertzoo.train.loop") == "train" and room("bertzoo") == ""
    assert without_jax("bertzoo.data.corpus.shard") and not without_jax("bertzoo.cli.plan")


def tracked() -> list[Path]:
    """The text files that git tracks or, outside a checkout, the package's."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    names = listed.stdout.splitlines() if listed.returncode == 0 else [str(p.relative_to(ROOT)) for p in FILES]
    return [
        ROOT / n for n in names if Path(n).suffix not in {".npz", ".png", ".tflite", ".xz"} and (ROOT / n).is_file()
    ]


def test_files_stay_short() -> None:
    long = [str(f) for f in tracked() if f.suffix == ".py" and len(f.read_text(encoding="utf-8").splitlines()) > 600]
    assert not long


def test_no_two_test_files_have_one_name() -> None:
    """They are not packages, so pytest would collect only one of two files with a name."""
    files = (ROOT / "tests").rglob("*.py")
    names = [file.name for file in files if file.name not in ("conftest.py", "sitecustomize.py")]
    assert sorted(names) == sorted(set(names))


def bound(nodes: list[ast.AST]) -> set[str]:
    """The names that a file assigns or takes as parameters, wherever it does."""
    stores = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return stores | {node.arg for node in nodes if isinstance(node, ast.arg)}


def aliases(nodes: list[ast.AST]) -> dict[str, str]:
    """What a file imports: the full name by the file's own."""
    found = {a.asname or a.name: a.name for n in nodes if isinstance(n, ast.Import) for a in n.names}
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return found | {a.asname or a.name: f"{node.module}.{a.name}" for node in froms for a in node.names}


def test_modules_have_what_files_take_from_them() -> None:
    """Many tests and benchmarks run by turns, and pyright does not see them."""
    trees, have = {}, {}
    for file in (file for top in ("bertzoo", "benchmarks", "tests") for file in (ROOT / top).rglob("*.py")):
        nodes = trees[file] = [*ast.walk(parsed(file))]
        defined = {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        inside = {path.stem for path in file.parent.iterdir()} if file.name == "__init__.py" else set()
        name = file.stem if ROOT / "tests" in file.parents else module(file)
        have[name] = bound(nodes) | defined | aliases(nodes).keys() | inside | {"__name__", "__file__"}
    assert "place" in have and "flush" not in have["place"]
    for file, nodes in trees.items():
        names = aliases(nodes)
        modules = {name: full for name, full in names.items() if full in have and name not in bound(nodes)}
        uses = {(n.value.id, n.attr) for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)}
        taken = {(modules[name], attribute) for name, attribute in uses if name in modules}
        taken |= {(full.rpartition(".")[0], full.rpartition(".")[2]) for full in names.values()}
        missing = {(origin, name) for origin, name in taken if origin in have and name not in have[origin]}
        assert not missing, file


def test_fidelity_has_every_point_once() -> None:
    lines = (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8").splitlines()
    points = [line.split("|")[1].strip() for line in lines if line.startswith("|") and set(line) - set("|- ")]
    assert len(points) > 50 and len(points) == len(set(points))


def strings(file: Path) -> set[str]:
    """The string constants of a file, without docstrings."""
    tree = parsed(file)
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docs)
    return {node.value for node in constants if isinstance(node.value, str)}


def test_no_room_spells_a_file_or_folder_of_a_room_above() -> None:
    """Rooms below reach these through `core.kinds`; a name written twice would be an import that no test sees."""
    names: dict[str, set[str]] = {}
    for file in FILES:  # module-level names of files
        for node in parsed(file).body:
            if isinstance(node, ast.Assign):
                texts = {str(value.value) for value in ast.walk(node.value) if isinstance(value, ast.Constant)}
                names.setdefault(room(module(file)), set()).update(filter(DATA_FILE.fullmatch, texts))
    for kind in KINDS.values():
        folders = {folder.removesuffix(r"\d+") for folder in kind.folders}
        names[room(kind.config().__module__)] |= folders
    assert {"seed-", "results.json"} <= names["finetuning"] and {"iterations", "pruned.toml"} <= names["pruning"]
    for file in FILES:
        here = room(module(file))
        higher = set().union(*(owned for above, owned in names.items() if here in BELOW.get(above, ())))
        assert not strings(file) & higher, f"{module(file)} spells a name that belongs to a room above"


def test_the_architecture_page_names_what_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    paths = [path for path in re.findall(r"`([a-z_]+/[\w/.]+)`", page) if "NAME" not in path]
    assert len(paths) > 30
    for path in paths:
        module = re.sub(r"\.(?!py$|md$|toml$)\w+$", "", path)  # train/loop.run names a function
        places = (ROOT / path, PACKAGE / path, PACKAGE / f"{module}.py", PACKAGE / module)
        assert any(place.exists() for place in places), path


def test_nothing_names_a_machine() -> None:
    path = re.compile(r"(?<![\w.}~-])/(tmp|work|root|home|opt|mnt)/\w")
    found = {str(f): m[0] for f in tracked() if (m := path.search(f.read_text(encoding="utf-8")))}
    assert not found


def test_every_install_command_names_this_checkout_and_an_extra_that_exists() -> None:
    """The package index has another project called bertzoo: whoever installs that name runs a stranger's code."""
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    commands = [
        (file.name, command)
        for file in tracked()
        if file.suffix in {".py", ".md", ".sh", ".toml", ""} and file.name not in ("LICENSE", "test_house.py")
        for command in re.findall(r"pip install[^\n`]*", file.read_text(encoding="utf-8"))
    ]
    assert len(commands) > 20
    for file, command in commands:
        assert not re.search(r"(?<![\w./-])bertzoo(?!-jax)(\[|=|\b)", command), f"{file}: {command}"
        named = {extra for group in re.findall(r"'\.\[([\w,-]+)\]'", command) for extra in group.split(",")}
        assert named <= extras, f"{file}: {command}"
        pinned = "-e '.[" in command and "-c constraints" in command
        assert not re.search(r"'\.\[", command) or pinned or file in ("Dockerfile", "tpu_worker.sh"), (
            f"{file}: {command}"
        )


def test_the_workflow_runs_targets_of_make_and_pins_its_actions() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    matrix = jobs["test"]["strategy"]["matrix"]
    named = {*matrix["target"], *(case["target"] for case in matrix["include"])}
    for job in jobs.values():
        for step in job["steps"]:
            if "run" in step:
                (target,) = re.fullmatch(r"make ([\w-]+|\$\{\{ matrix\.target \}\})", step["run"]).groups()
                named |= {target} - {"${{ matrix.target }}"}
            else:
                assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"])
        assert "write-all" not in str(job.get("permissions")) and job["timeout-minutes"]
    assert named == {"check", "test", "test-lowest", "test-all", "release"} <= targets
    assert matrix["python"] == ["3.11", "3.12", "3.13"]  # as the Makefile checks


@pytest.mark.slow  # fetches the build backend
def test_a_wheel_carries_the_configs(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("bertzoo_jax-*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())
    command = [sys.executable, "-c", "import bertzoo.core.config as c; print(c.__file__, *c.shipped())"]
    shown = subprocess.run(command, cwd=installed, capture_output=True, text=True, check=True).stdout.split()
    assert Path(shown[0]).is_relative_to(tmp_path)
    assert shown[1:] == sorted(path.stem for path in (ROOT / "configs").glob("*.toml"))
    for sweep in (ROOT / "configs" / "sweeps").iterdir():
        assert (installed / "bertzoo" / "configs" / "sweeps" / sweep.name).read_bytes() == sweep.read_bytes()
