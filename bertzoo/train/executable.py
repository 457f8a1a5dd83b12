"""Training steps that were compiled before the run, for devices that the compiling machine may lack, in one file."""

import hashlib
import importlib.metadata
import io
import json
import logging
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
from jax.experimental import serialize_executable
from jax.sharding import Mesh

from bertzoo.core import atomic
from bertzoo.core.documents import parse_json
from bertzoo.core.errors import UserError
from bertzoo.core.paths import Location, place
from bertzoo.train.step import processor_hash

_LOG = logging.getLogger(__name__)
_MANIFEST = "manifest.json"
_CONTENTS = {"jax": str, "jaxlib": str, "libtpu": str, "devices": str}


def _machine(mesh: Mesh) -> dict[str, str]:
    """Return all but the program that must be the same where a program is compiled and where it runs."""
    versions = {}
    for package in ("jax", "jaxlib", "libtpu"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    devices = list(mesh.devices.flat)
    kind = devices[0].device_kind + (f" {processor_hash()}" if devices[0].platform == "cpu" else "")
    sizes = "x".join(map(str, mesh.devices.shape))
    return versions | {"devices": f"{sizes} {kind}, ids {','.join(str(device.id) for device in devices)}"}


def _name(lowered: jax.stages.Lowered) -> str:
    return hashlib.sha256(lowered.as_text().encode()).hexdigest()


def write_programs(path: Path, mesh: Mesh, programs: Iterable[tuple[jax.stages.Lowered, jax.stages.Compiled]]) -> None:
    """Write lowered steps and their compiled programs, for the devices of `mesh`, into a file.

    On CPUs, a program that JAX read from its cache cannot be written.
    """
    contents = io.BytesIO()
    with zipfile.ZipFile(contents, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_MANIFEST, json.dumps(_machine(mesh)))
        for lowered, program in programs:
            archive.writestr(_name(lowered), serialize_executable.serialize(program)[0])
    atomic.write_bytes(path, contents.getvalue())


class SavedPrograms:
    """The compiled programs in a file of `write_programs`; a call returns that of a lowered step, or None.

    Reading a program runs code in the file, as reading any pickle does. Raises UserError if `path` is no such file.
    """

    def __init__(self, path: Location, mesh: Mesh):
        self._path, self._devices = path, list(mesh.devices.flat)
        try:
            self._file = zipfile.ZipFile(io.BytesIO(place(path).read_bytes()))
            compiled = parse_json(self._file.read(_MANIFEST), _CONTENTS)
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise UserError(
                f"run.executable = {path} holds no compiled steps ({error}). Name a file that `bertzoo plan "
                "--save_executable` wrote."
            ) from error
        here = _machine(mesh)
        self._differences = [
            f"{name}: {compiled[name]} there, {here[name]} here" for name in here if compiled[name] != here[name]
        ]

    def __call__(self, lowered: jax.stages.Lowered) -> jax.stages.Compiled | None:
        """Return the step's program; if the file has none that fits, log what differs and return None."""
        name, differences = _name(lowered), list(self._differences)
        if name not in self._file.namelist():
            differences.append("it has no step of this config, code and mesh")
        if differences:
            _LOG.warning(f"{self._path} is not used: {'; '.join(differences)}. The step is compiled here.")
            return None
        trees: Any = jax.tree.structure(lowered.args_info), lowered.out_tree
        program = serialize_executable.deserialize_and_load(
            self._file.read(name), *trees, backend=self._devices[0].client, execution_devices=self._devices
        )
        _LOG.info(f"the step is compiled in {self._path}")
        return program
