"""Every package that `make` installs has a version and hashes, and the files that hold them agree."""

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = {package["name"]: package for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
OURS = PACKAGES.pop("bertzoo-jax")


def test_every_file_of_every_locked_package_has_a_hash() -> None:
    for name, package in PACKAGES.items():
        files = [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]
        assert files and all(re.fullmatch("sha256:[0-9a-f]{64}", file["hash"]) for file in files), name


@pytest.mark.parametrize("file", ["build", "weights"])
def test_every_requirement_of_the_build_has_hashes(file: str) -> None:
    for requirement in (ROOT / f".ci/{file}.txt").read_text().replace("\\\n", "").splitlines():
        assert re.fullmatch(r"[\w.-]+==[\w.]+( ; [^-]*)?(\s+--hash=sha256:[0-9a-f]{64})+\s*", requirement)


def test_the_lock_has_the_requirements_of_the_project() -> None:
    project, groups = PROJECT["project"], PROJECT["dependency-groups"]
    extras = {name: {*map(Requirement, lines)} for name, lines in project["optional-dependencies"].items()}
    names = {name: {canonicalize_name(each.name) for each in lines} for name, lines in extras.items()}
    assert {name: {each["name"] for each in lines} for name, lines in OURS["optional-dependencies"].items()} == names
    core = {canonicalize_name(Requirement(line).name) for line in project["dependencies"]}
    assert {each["name"] for each in OURS["dependencies"]} == core
    for line in chain(project["dependencies"], groups["build"], *project["optional-dependencies"].values()):
        requirement = Requirement(line)
        assert requirement.specifier.contains(PACKAGES[canonicalize_name(requirement.name)]["version"]), line


def test_constraints_have_the_versions_of_the_lock() -> None:
    constraints = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines())
    tools = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / ".ci/build.txt").read_text(), re.MULTILINE))
    versions = {name: package["version"] for name, package in PACKAGES.items()}
    assert versions == constraints | tools and all(constraints.get(name, tools[name]) == tools[name] for name in tools)


def test_only_torch_and_cuda_are_installed_without_hashes() -> None:
    (apart,) = re.findall(r"^APART = (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    cuda = re.compile("cuda-|nvidia-|triton")
    needs = {each["name"] for each in PACKAGES["torch"]["dependencies"] if cuda.match(each["name"])}
    assert set(apart.split()) == {"torch", *needs}
    plain = [package for package in PACKAGES.values() if package["name"] != "torch" and not cuda.match(package["name"])]
    assert not [one["name"] for one in plain for each in one.get("dependencies", []) if cuda.match(each["name"])]
