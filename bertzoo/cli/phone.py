"""Pack test inputs for a phone and check the phone's outputs.

`pack` writes inputs into FOLDER: FILE's golden rows and, for a fine-tuned model, the examples on which FILE was scored.
`judge` compares the phone's outputs in OUTPUTS, one file per row, with those of this machine, and scores the task.
`judge` exits with 1 if an output's error or the drop in score exceeds its limit. launch/phone.sh runs `pack` and
`judge`, and moves the inputs and outputs.

examples:
  bertzoo phone pack sst2.tflite packed --rows=100
  bertzoo phone judge sst2.tflite packed outputs
  bertzoo phone judge sst2.tflite packed outputs --float16
"""

import json
import math
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from bertzoo.core.errors import UserError
from bertzoo.core.options import option, reject

_judge_option = partial(option, group="judge")


@dataclass(frozen=True)
class PhoneFlags:
    action: Literal["pack", "judge"] = option("pack: write inputs for the phone; judge: check the phone's outputs")
    file: Path = option("the .tflite file", metavar="FILE")
    folder: Path = option("the folder of packed inputs; pack creates it", metavar="FOLDER")
    outputs: Path | None = option("for judge: the folder of the phone's outputs", None, metavar="OUTPUTS")
    _: KW_ONLY
    rows: int | None = option(
        "pack only the first N examples of the task (default: all)", None, group="pack", metavar="N", least=0
    )
    limit: float | None = _judge_option(
        "largest error to allow, as a share of an output's largest value (default: depends on FILE's precision)",
        None,
        metavar="SHARE",
        least=0,
    )
    float16: bool = _judge_option("use the limits for float16, in which GPUs and NNAPI compute", False)
    json: bool = _judge_option("print one JSON document on standard output", False)


def main(options: PhoneFlags) -> int:
    from bertzoo.export.check import device
    from bertzoo.tasks.metrics import is_threshold

    if not options.file.is_file():
        raise UserError(f"{options.file} is not a file. Name the file that `bertzoo convert` wrote.")
    if options.action == "pack":
        if options.outputs is not None:
            raise UserError("OUTPUTS does not apply to `bertzoo phone pack`, only to judge. Leave OUTPUTS out.")
        reject(options, ("limit", "float16", "json"), "`bertzoo phone pack`, only to judge")
        golden, task = device.pack(options.file, options.folder, options.rows)
        print(f"Wrote {options.folder}: {golden + task} rows, {golden} golden and {task} of the task.")
        return 0
    if options.outputs is None:
        raise UserError("OUTPUTS, the folder of the phone's outputs, is missing. Add it after FILE and FOLDER.")
    reject(options, ("rows",), "`bertzoo phone judge`, only to pack")
    try:
        packed = len((options.folder / "rows" / "list").read_bytes().splitlines())
    except FileNotFoundError:
        raise UserError(f"{options.folder} was not written by `bertzoo phone pack`. Pack the inputs first.") from None
    report = device.judge(options.file, options.outputs, packed, options.limit, options.float16)
    code = 0 if report["right"] else 1
    if options.json:
        print(json.dumps(_finite(report), allow_nan=False))
        return code
    for name, errors in report["golden"].items():
        print(
            f"{name}: largest error {errors['max_error']:.2g} of values up to {errors['largest']:.3g}, "
            f"cosine {errors['cosine']:.6f}, {report['rows']} rows"
        )
    if scored := report["exam"]:
        task = f"{scored['task']}, {scored['split']}, {scored['examples']:,} of {scored['of']:,} examples"
        for name, points in scored["scores"]["phone"].items():
            if not is_threshold(name):
                print(f"{task}: {name} {points:.2f}, here {scored['scores']['here'][name]:.2f}")
    if report["wrong"]:
        print(f"The phone's outputs differ from the file's outputs here: {'; '.join(report['wrong'])}.")
    return code


def _finite(value: Any) -> Any:
    """Return a JSON value with None in place of every NaN and infinity, which JSON lacks."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
