"""A model -> a .pte file for ExecuTorch with XNNPACK, made by a process of a Python that has executorch."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.conversion import pytorch
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core.errors import UserError
from bertzoo.export.runtimes import answer, ask

PACKAGES = ("torch", "executorch", "safetensors")
GROUPED = "apart"  # of phone_module.GROUPED, the fastest here (benchmarks/phone_grouped.py)
HOW = "`make .venv-executorch/stamp` in the checkout makes one, which --python=.venv-executorch/bin/python names"
_LACKING = "import importlib.util as u, sys; print(*(p for p in sys.argv[1:] if u.find_spec(p) is None))"


def check(python: Path) -> None:
    """Raise UserError unless `python` is a Python that has executorch and what it needs."""
    try:
        words = [str(python), "-I", "-c", _LACKING, *PACKAGES]
        found = subprocess.run(words, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise UserError(
            f"--python={python} cannot be run ({error.strerror}): name one that has executorch; {HOW}"
        ) from None
    except subprocess.CalledProcessError:
        raise UserError(f"--python={python} is not a Python: name one that has executorch; {HOW}") from None
    if lacking := found.stdout.split():
        raise UserError(
            f"--to=executorch needs {lacking[0]}, which {python} does not have: name a Python that has it; {HOW}"
        )


def write(
    python: Path, pretrained: Pretrained, rows: Mapping[str, np.ndarray], pooling: str, file: Path
) -> dict[str, Any]:
    """Write a file that reads rows of the shape of `rows`; how many of its graph's nodes XNNPACK runs, and which others
    there are.

    Raises ExportFailed where ExecuTorch does not take the model.
    """
    with tempfile.TemporaryDirectory(prefix=".bertzoo.", dir=file.parent) as name:
        pytorch.write_pytorch(pretrained, Path(name))
        shutil.copy(Path(__file__).with_name("phone_module.py"), name)
        example = {name: row.tolist() for name, row in rows.items()}
        request = {"directory": name, "file": str(file), "pooling": pooling, "grouped": GROUPED, "rows": example}
        said, _ = ask(python, "make").communicate(json.dumps(request) + "\n")
    return answer(said, "ExecuTorch does not take this model")
