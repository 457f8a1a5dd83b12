"""What `bertzoo convert` has said beside a file."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bertzoo.benchmarking.worker import TEXT
from bertzoo.core.errors import UserError
from bertzoo.export.beside import companions


@dataclass(frozen=True, kw_only=True)
class Described:
    """Of a file: the names of its inputs; its precision, head and number of parameters; how many ids and positions it
    has; the operations of a row by signature. What nobody has said is None or empty.
    """

    inputs: tuple[str, ...] = TEXT
    precision: str | None = None
    head: str | None = None
    parameters: int | None = None
    vocabulary: int | None = None
    positions: int | None = None
    flops: Mapping[str, int] = field(default_factory=dict)


def described(file: Path) -> Described:
    """Read the JSON beside a file, if there is one; raises UserError where it is damaged or of another file."""
    said = file.with_name(companions(file)[0])
    if not said.is_file():
        return Described()
    try:
        document = json.loads(said.read_text(encoding="utf-8"))
        model = document.get("model", {})
        found = Described(
            inputs=tuple(document["inputs"]),
            precision=document["precision"],
            head=document["head"]["kind"],
            parameters=document.get("parameters"),  # which files of earlier versions do not say
            vocabulary=model.get("vocab_size"),
            positions=model.get("max_positions"),
            flops=dict(document.get("flops", {})),
        )
        digest = document["sha256"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{said} is damaged: export the file again, or move this away") from error
    with file.open("rb") as content:
        own = hashlib.file_digest(content, "sha256").hexdigest()
    if digest != own:
        raise UserError(f"{said} is of another {file.name}: export the file again, or move this away")
    return found
