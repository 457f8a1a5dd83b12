"""The house holds: imports point one way, files stay short, and nothing names a machine or a stranger's path."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "bertzoo"
FILES = sorted(PACKAGE.rglob("*.py"))

ROOMS = {"errors", "places", "config", "nn", "flops", "models", "objectives", "data", "tasks", "train"}
RECIPES = {"recipe", "transfer", "kinds", "finetune.settings", "prune.settings"}
READ = ROOMS | RECIPES | {"feed", "rundir", "inference", "phases", "pruned"}
# What each room may import of the house, besides itself; the longest prefix of a module's name decides.
BELOW = {
    "bertzoo.errors": set(),
    "bertzoo.schema": {"errors"},
    "bertzoo.places": {"errors"},
    "bertzoo.config": {"errors", "schema"},
    "bertzoo.nn": {"errors"},
    "bertzoo.flops": {"errors"},
    "bertzoo.liveness": {"flops"},
    "bertzoo.sizes": {"flops", "liveness", "models", "nn", "objectives"},
    "bertzoo.models": {"errors", "nn"},
    "bertzoo.objectives": {"errors", "nn", "models"},
    "bertzoo.prune": {"errors", "flops", "models", "nn", "objectives", "pruned"},
    "bertzoo.prune.settings": ROOMS | {"prune", "recipe", "transfer"},
    "bertzoo.prune.rundir": ROOMS | RECIPES | {"prune", "rundir", "pruned"},
    "bertzoo.prune.budget": ROOMS | RECIPES | {"prune", "training", "convert", "convert.directory"},
    "bertzoo.prune.run": READ
    | {"prune", "prune.budget", "prune.rundir", "start", "teacher", "training", "convert", "convert.directory"},
    "bertzoo.data": {"errors", "places"},
    "bertzoo.tasks": {"errors", "places", "schema", "data"},
    "bertzoo.train": {"errors", "places", "flops", "nn"},
    "bertzoo.recipe": ROOMS,
    "bertzoo.transfer": ROOMS | {"recipe"},
    "bertzoo.kinds": ROOMS | {"recipe", "transfer", "finetune.settings", "prune.settings", "sweep.chain"},
    "bertzoo.pruned": set(),
    "bertzoo.finetune": ROOMS | RECIPES | {"start", "rundir", "facts", "software", "convert", "convert.directory"},
    "bertzoo.finetune.settings": ROOMS,
    "bertzoo.phases": ROOMS | RECIPES | {"feed"},
    "bertzoo.feed": ROOMS | RECIPES,
    "bertzoo.facts": {"errors", "data"},
    "bertzoo.software": set(),
    "bertzoo.provenance": {"errors", "places", "data", "facts"},
    "bertzoo.mirror": {"errors", "data", "facts"},
    "bertzoo.rundir": ROOMS | RECIPES | {"mirror", "facts", "provenance", "software"},
    "bertzoo.training": ROOMS | RECIPES | {"feed", "mirror", "rundir", "start", "teacher", "phases"},
    "bertzoo.start": ROOMS | {"recipe", "convert", "convert.directory"},
    "bertzoo.teacher": ROOMS | RECIPES | {"start", "phases", "convert", "convert.directory"},
    "bertzoo.inference": ROOMS | RECIPES | {"feed", "rundir", "phases", "pruned"},
    # Of conversion only what reads runs knows that there are runs; tensors, tables and names know no training.
    "bertzoo.convert": {"errors", "places", "schema", "config", "nn", "models", "data"},
    "bertzoo.export": {"errors", "places", "flops", "config", "nn", "models", "data", "tasks", "convert"},
    "bertzoo.benchmark": READ | {"prune", "convert", "convert.directory", "export"},
    "bertzoo.plan": ROOMS | RECIPES | {"feed", "phases", "teacher"},
    "bertzoo.convert.directory": READ | {"convert"},
    "bertzoo.cuts": {"errors", "pruned"},
    "bertzoo.report": {"errors", "places", "config", "cuts", "facts", "pruned"},
    "bertzoo.curves": {"errors", "cuts", "report"},
    "bertzoo.golden_curve": {"errors", "config", "report"},
    "bertzoo.published": set(),
    "bertzoo.results": {"errors", "places", "schema", "published", "tasks"},
    "bertzoo.sweep": {"errors", "places", "schema", "config", "data", "results", "train"},
    "bertzoo.sweep.chain": {"errors", "config", "schema", "sweep"},
    "bertzoo.attention_maps": {"errors", "convert"},
    "bertzoo.heatmaps": {"errors"},
    "bertzoo.supervisor": {"errors", "train"},
    "bertzoo.cli": {"errors", "supervisor", "train"},
    "bertzoo.__main__": {"cli"},
    "bertzoo": {"convert.directory"},
}
JAX = {"jax", "jaxlib", "flax", "optax", "orbax"}
# The foreign packages that a room must not import, not even inside a function.
NO_JAX = (
    "data",
    "tasks",
    "config",
    "schema",
    "report",
    "golden_curve",
    "published",
    "results",
    "sweep",
    "heatmaps",
    "cli",
)
FOREIGN = {f"bertzoo.{name}": JAX for name in NO_JAX}
LITERT = {"litert_converter", "ai_edge_litert", "litert_quantizer"}
NEVER = LITERT | {"torch", "transformers", "tensorflow", "onnx", "onnx_ir", "onnxruntime", "onnxscript", "executorch"}
# Old checkpoints, where torch or TensorFlow is installed to read them; the module that is copied beside an exported
# model; and exports, where their packages are installed. executorch_process is a program of another Python.
ALLOWED = {
    "bertzoo.convert.pickled": {"torch"},
    "bertzoo.convert.variables": {"tensorflow"},
    "bertzoo.convert.modeling_bertzoo": {"torch"},
    "bertzoo.benchmark.worker": {"torch", "onnxruntime", "executorch", "ai_edge_litert"},
    "bertzoo.export.litert": LITERT,
    "bertzoo.export.litert_process": {"litert_converter"},
    "bertzoo.export.quantise": {"litert_quantizer"},
    "bertzoo.export.tables": {"litert_converter"},
    "bertzoo.export.phone_module": {"torch"},
    "bertzoo.export.torch_files": {"torch"},
    "bertzoo.export.runtimes": {"torch", "onnxruntime"},
    "bertzoo.export.executorch_process": {"torch", "executorch"},
}


def module(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room(name: str) -> str:
    return next(r for r in sorted(BELOW, key=len, reverse=True) if name == r or name.startswith(f"{r}."))


def imports(file: Path) -> Iterator[str]:
    """The full names of all that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} imports relatively"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("file", FILES, ids=module)
def test_imports_point_one_way(file: Path) -> None:
    name = module(file)
    for imported in imports(file):
        outer = imported.split(".")[0]
        banned = (NEVER | FOREIGN.get(room(name), set())) - ALLOWED.get(name, set())
        assert outer not in banned, f"{name} imports {imported}"
        if outer != "bertzoo" or name.startswith("bertzoo.verbs."):
            continue
        assert not imported.startswith("bertzoo.verbs"), f"{name} imports a verb"
        inner = room(imported)
        allowed = {room(name), "bertzoo"} | {f"bertzoo.{below}" for below in BELOW[room(name)]}
        assert inner in allowed, f"{name} imports {imported}"


def test_every_room_is_listed() -> None:
    rooms = {module(file).split(".")[1] for file in FILES if file.parent != PACKAGE or file.stem != "__init__"}
    assert rooms - {"verbs"} <= {name.removeprefix("bertzoo.") for name in BELOW}


def test_the_checks_see_imports(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("import jax.numpy as jnp\ndef f():\n    from bertzoo.train import loop\n")
    assert list(imports(file)) == ["jax.numpy", "bertzoo.train.loop"]
    assert room("bertzoo.train.loop") == "bertzoo.train" and room("bertzoo.__version__") == "bertzoo"


def tracked() -> list[Path]:
    """The text files of the tree that git knows, or that are there where this is no git checkout."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    names = listed.stdout.splitlines() if listed.returncode == 0 else [str(p.relative_to(ROOT)) for p in FILES]
    return [ROOT / n for n in names if Path(n).suffix not in {".npz", ".png"} and (ROOT / n).is_file()]


def test_files_stay_short() -> None:
    long = [str(f) for f in tracked() if f.suffix == ".py" and len(f.read_text(encoding="utf-8").splitlines()) > 400]
    assert not long


def test_no_two_test_files_have_one_name() -> None:
    """They are no packages, so that of two of a name pytest finds one."""
    names = [
        file.name for file in (ROOT / "tests").rglob("*.py") if file.name not in ("conftest.py", "sitecustomize.py")
    ]
    assert sorted(names) == sorted(set(names))


def test_every_point_of_fidelity_is_made_once() -> None:
    lines = (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8").splitlines()
    points = [line.split("|")[1].strip() for line in lines if line.startswith("|")]
    assert len(points) > 50 and len(points) == len(set(points))


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


@pytest.mark.slow  # fetches the build backend
def test_a_wheel_carries_the_configs(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("bertzoo_jax-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())
    program = "import bertzoo.config as c; print(c.__file__, *c.shipped())"
    shown = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path / "installed", capture_output=True, text=True, check=True
    ).stdout.split()
    assert Path(shown[0]).is_relative_to(tmp_path)
    assert shown[1:] == sorted(path.stem for path in (ROOT / "configs").glob("*.toml"))
    installed = tmp_path / "installed" / "bertzoo"
    assert (installed / "published.csv").read_bytes() == (PACKAGE / "published.csv").read_bytes()
    assert len(list((installed / "configs" / "sweeps").iterdir())) == 2
