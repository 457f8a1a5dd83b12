"""The options of a conversion: formats, heads, precisions. Imports no jax."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from bertzoo.core.errors import UserError
from bertzoo.core.schema import nearest

Precision = Literal["fp32", "fp16", "int8-dynamic", "int8-static", "int8-weight", "int4-dynamic"]
DIRECTORIES = ("huggingface", "bertzoo", "pytorch")
# Formats of files, and their suffixes.
SUFFIXES = {
    "litert": ".tflite",
    "mediapipe": ".tflite",
    "torch-export": ".pt2",
    "torchscript": ".pt",
    "onnx": ".onnx",
    "onnx-text": ".onnx",
    "executorch": ".pte",
}
FILES = tuple(SUFFIXES)
LITERT = ("litert", "mediapipe")
TEXT_FORMATS = {"mediapipe": "litert", "onnx-text": "onnx"}  # whose files take texts: the format that takes ids
SINGLE = {"mediapipe": "MediaPipe", "executorch": "ExecuTorch"}  # runtimes whose files have one length, by format
HEADS = ("none", "masked", "replaced")
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
# Precisions of the weights by format.
FORMAT_PRECISIONS: dict[str, tuple[Precision, ...]] = {
    **dict.fromkeys(FILES, ("fp32",)),
    **dict.fromkeys(LITERT, PRECISIONS),
    "executorch": ("fp32", "int8-dynamic"),
}
OUTPUTS = ("float32", "int8", "binary")  # as in heads/embedding.py
POOLINGS = ("mean", "first", "max", "weighted_mean")  # as in heads/embedding.py, which imports jax
EXAMPLES = 1500  # examples to score on by default; GLUE's smaller development sets have no more
# The formats that an option applies to; unlisted options apply to all formats.
_ONLY = {
    "lengths": FILES,
    "precision": FILES,
    "pooling": (*FILES, "bertzoo", "huggingface"),
    "output": tuple(form for form in FILES if form != "mediapipe"),  # whose embedder has an option `quantize`
    "examples": FILES,
    "calibration": LITERT,
    "no_optimize": LITERT,
    "python": ("executorch",),
}
_VALUES = {
    "to": (*DIRECTORIES, *FILES),
    "head": HEADS,
    "precision": PRECISIONS,
    "pooling": POOLINGS,
    "output": OUTPUTS,
}


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of a conversion; raises UserError for an unknown value or options that do not apply to the format.

    to: the format, one of DIRECTORIES or FILES; "tflite" means litert.
    head: the only head to keep, one of HEADS; None keeps all.
    leak_padding: let convolutions and trigrams see padding, as Hugging Face's do.
    license: licence of the weights, for the model card; None keeps the source's.
    pooling: how to pool the output if the model has no head, one of POOLINGS; None: "mean" in a file, no pooling in a
    directory.
    size: number of dimensions of a model's vectors, the first ones; None keeps all.

    The other options apply only to files.

    lengths: row lengths in tokens.
    precision: precision of the weights.
    output: form of a model's vectors, one of OUTPUTS.
    calibration: a file of texts on which int8-static measures the scales of activations.
    examples: number of the task's examples on which file and model are scored; 0 for all.
    no_optimize: write the training graph, without the rewrites that make it cheaper.
    python: a Python that has ExecuTorch.
    """

    to: str
    head: str | None = None
    leak_padding: bool = False
    lengths: tuple[int, ...] | None = None
    precision: str | None = None
    pooling: str | None = None
    size: int | None = None
    output: str | None = None
    calibration: Path | None = None
    license: str | None = None
    examples: int | None = None
    no_optimize: bool | None = None
    python: Path | None = None

    def __post_init__(self):
        if self.to == "tflite":  # LiteRT's former name, and still its files' suffix
            object.__setattr__(self, "to", "litert")
        for name, values in _VALUES.items():
            if (value := getattr(self, name)) is not None and value not in values:
                hint = nearest(value, (*values, *["tflite"] * (name == "to")), False)
                raise UserError(f"--{name}={value} is unknown. Use one of {', '.join(values)}{hint or '.'}")
        for name, formats in _ONLY.items():
            if getattr(self, name) is not None and self.to not in formats:
                where = f"--to={formats[0]}" if len(formats) == 1 else f"--to={'|'.join(formats)}"
                flag = f"--{name.replace('no_', 'no-')}"
                raise UserError(f"{flag} applies only to {where}, not to --to={self.to}. Leave {flag} out.")
        if self.precision is not None and self.precision not in (known := FORMAT_PRECISIONS[self.to]):
            raise UserError(
                f"--to={self.to} does not write --precision={self.precision}. Use {' or '.join(known)}, or --to=litert."
            )
        if (self.precision == "int8-static") != (self.calibration is not None):
            self._reject_calibration()
        if self.precision == "int8-static" and self.no_optimize:
            raise UserError(
                "--precision=int8-static needs the optimised graph, whose updates it scales, but --no-optimize writes "
                "another graph. Leave --no-optimize out, or use --precision=int8-dynamic."
            )
        if self.to in SINGLE and (count := len(set(self.lengths or ()))) > 1:
            raise UserError(
                f"--lengths: a file for {SINGLE[self.to]} has one length, not {count}. Write a file for each length."
            )
        if self.size is not None and self.size < 1:
            raise UserError(f"--size={self.size} is below 1. Use the number of dimensions that a vector keeps.")
        if self.examples is not None and self.examples < 0:
            raise UserError(f"--examples={self.examples} is less than 0. Use 0 for all examples, or a positive number.")

    def _reject_calibration(self) -> None:
        if self.calibration is not None:
            raise UserError(
                f"--calibration applies only to --precision=int8-static, not to {self.precision or 'fp32'}. Use "
                "--precision=int8-static, or leave --calibration out."
            )
        raise UserError(
            "--precision=int8-static needs texts on which to measure the scales of activations. Add "
            "--calibration=FILE. Each line of FILE holds one text, or two texts with a tab between them."
        )
