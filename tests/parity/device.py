"""LiteRT on this machine in the place of a phone."""

import json
from pathlib import Path

import numpy as np

from bertzoo.cli.main import main
from bertzoo.export.runtimes import LiteRT


def on_a_phone(file: Path, packed: Path, given: Path) -> None:
    """Pack inputs, then compute outputs from the packed bytes as benchmark_model does."""
    assert main(["phone", "pack", str(file), str(packed)]) == 0
    given.mkdir()
    run = LiteRT(file).run
    ports = json.loads(file.with_name(f"{file.name}.json").read_text())["ports"]
    for line in (packed / "rows" / "list").read_text().splitlines():
        number, signature, names, shapes = line.split()
        row = {
            name: np.fromfile(packed / "rows" / number / name, np.int32).reshape(
                [int(size) for size in shape.split(",")]
            )
            for name, shape in zip(names.split(","), shapes.split(":"), strict=True)
        }
        outputs = run(signature, row)
        (given / number).write_bytes(b"".join(outputs[port].tobytes() for port, _, _ in ports[signature]["outputs"]))
