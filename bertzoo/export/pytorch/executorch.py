"""Write a .pte file for ExecuTorch with XNNPACK, in a process of a Python that has executorch."""

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
from bertzoo.core.child import start_python
from bertzoo.core.documents import parse_json
from bertzoo.core.errors import UserError
from bertzoo.export import packages
from bertzoo.export.options import Precision
from bertzoo.export.runtimes import parse_answer, start_process

PACKAGES = ("torch", "executorch", "safetensors")
ADVICE = "`make .venv-executorch/stamp` in the checkout builds one: --python=.venv-executorch/bin/python."


def check_python(python: Path, subject: str = "--to=executorch") -> dict[str, str]:
    """Return the versions of PACKAGES in `python`; raises UserError if it cannot be run or lacks one of them."""
    try:
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with start_python([packages.__file__, *PACKAGES], python, text=True, **pipes) as process:
            answer = process.communicate()[0]
    except OSError as error:
        raise UserError(
            f"--python={python} cannot be run ({error.strerror}). Name a Python that has executorch. {ADVICE}"
        ) from None
    if process.returncode:
        raise UserError(
            f"--python={python} is not Python 3.11 or later: it ended with exit code {process.returncode}. Name a "
            f"Python that has executorch. {ADVICE}"
        )
    installed = parse_json(answer, {str: str})
    for package in PACKAGES:
        if package not in installed:
            raise UserError(
                f"{subject} needs {package}, which {python} does not have. Name a Python that has it. {ADVICE}"
            )
    return installed


def write_pte(
    python: Path, pretrained: Pretrained, rows: Mapping[str, np.ndarray], file: Path, precision: Precision = "fp32"
) -> dict[str, Any]:
    """Write a .pte file for inputs shaped like `rows`; return counts of the nodes that XNNPACK does and does not run.

    precision: fp32 or int8-dynamic. int8-dynamic has dense kernels and the word embeddings in int8, with a scale per
    output channel or word; XNNPACK scales activations at run time.

    Raises ExportFailed if ExecuTorch rejects the model.
    """
    with tempfile.TemporaryDirectory(prefix=".bertzoo.", dir=file.parent) as name:
        pytorch.write_pytorch(pretrained, Path(name))
        shutil.copy(Path(__file__).with_name("phone_module.py"), name)
        example = {name: row.tolist() for name, row in rows.items()}
        request = {"directory": name, "file": str(file), "rows": example, "int8": precision == "int8-dynamic"}
        line, _ = start_process(python, "make").communicate(json.dumps(request) + "\n")
    return parse_answer(line, "ExecuTorch does not take this model. Convert it with another --to. Reason")
