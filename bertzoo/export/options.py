"""The options of a conversion: formats, heads, precisions. Imports no jax."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from bertzoo.core.config import nearest
from bertzoo.core.errors import UserError
from bertzoo.core.options import flag_of, option

Precision = Literal["fp32", "fp16", "int8-dynamic", "int8-static", "int8-weight", "int4-dynamic"]
KeptHead = Literal["none", "masked", "replaced"]
VectorOutput = Literal["float32", "int8", "binary"]  # as in heads/embedding.py, which imports jax
VectorPooling = Literal["mean", "first", "max", "weighted_mean"]  # as there
DIRECTORIES = ("huggingface", "bertzoo", "pytorch")
# Formats of files, and their suffixes.
SUFFIXES = {"litert": ".tflite", "mediapipe": ".tflite", "onnx": ".onnx", "onnx-text": ".onnx", "executorch": ".pte"}
FILES = tuple(SUFFIXES)
LITERT = ("litert", "mediapipe")
TEXT_FORMATS = {"mediapipe": "litert", "onnx-text": "onnx"}  # whose files take texts: the format that takes ids
SINGLE = {"mediapipe": "MediaPipe", "executorch": "ExecuTorch"}  # runtimes whose files have one length, by format
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
# Precisions of the weights by format.
FORMAT_PRECISIONS: dict[str, tuple[Precision, ...]] = {
    **dict.fromkeys(FILES, ("fp32",)),
    **dict.fromkeys(LITERT, PRECISIONS),
    "executorch": ("fp32", "int8-dynamic"),
}
EXAMPLES = 1500  # examples to score on by default; GLUE's smaller development sets have no more
_phones = partial(option, group="files for phones")
# The formats that an option applies to; unlisted options apply to all formats.
_ONLY = {
    "lengths": FILES,
    "precision": FILES,
    "pooling": (*FILES, "bertzoo", "huggingface"),
    "output": tuple(form for form in FILES if form != "mediapipe"),  # whose embedder has an option `quantize`
    "examples": FILES,
    "calibration": LITERT,
    "python": ("executorch",),
}
_VALUES = {
    "to": (*DIRECTORIES, *FILES),
    "head": get_args(KeptHead),
    "precision": PRECISIONS,
    "pooling": get_args(VectorPooling),
    "output": get_args(VectorOutput),
}


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of a conversion; raises UserError for an unknown value or options that do not apply to the format.

    "tflite" means litert. Without `pooling`, a file of a model without a head has "mean", a directory no pooling.
    """

    to: str = option(f"the format of DST: {', '.join((*DIRECTORIES, *FILES))}", metavar="FORMAT", group="output")
    head: KeptHead | None = option(
        "keep only this head; in replaced token detection, masked: the generator's, replaced: the discriminator's "
        "(default: all but the generator's)",
        None,
        group="model",
    )
    leak_padding: bool = option(
        "let convolutions and trigrams see padding, as Hugging Face's classes do", False, group="model"
    )
    lengths: tuple[int, ...] | None = _phones(
        "row lengths in tokens; mediapipe, executorch: only one; onnx: one fixes the length (default: 128; onnx: any "
        "length)",
        None,
        metavar="N,…",
    )
    precision: Precision | None = _phones(
        f"precision of the weights: {', '.join(PRECISIONS)}; .pte: fp32, int8-dynamic; .onnx: fp32 (default: fp32)",
        None,
        metavar="NAME",
        parse=str,
    )
    pooling: VectorPooling | None = _phones("vector of a model without a head (default: mean)", None)
    size: int | None = option(
        "first dimensions of a vector to keep (default: all)", None, group="model", metavar="N", least=0
    )
    output: VectorOutput | None = _phones("numbers of a vector, for a model that embeds texts (default: float32)", None)
    calibration: Path | None = _phones(
        "for int8-static: texts or tab-separated pairs to calibrate on, one per line (default: none)",
        None,
        metavar="FILE",
    )
    license: str | None = option(
        "licence of the weights, for the card (default: SRC's licence)", None, group="output", metavar="NAME"
    )
    examples: int | None = _phones(
        f"development examples to score model and file on; 0: all (default: {EXAMPLES:,})", None, metavar="N", least=0
    )
    python: Path | None = _phones(
        "for executorch: a Python that has executorch (default: this Python)", None, metavar="FILE"
    )

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
                flag = flag_of(ExportOptions, name)
                raise UserError(f"{flag} applies only to {where}, not to --to={self.to}. Leave {flag} out.")
        if self.precision is not None and self.precision not in (known := FORMAT_PRECISIONS[self.to]):
            raise UserError(
                f"--to={self.to} does not write --precision={self.precision}. Use {' or '.join(known)}, or --to=litert."
            )
        if self.calibration is not None and self.precision != "int8-static":
            raise UserError(
                f"--calibration applies only to --precision=int8-static, not to {self.precision or 'fp32'}. Use "
                "--precision=int8-static, or leave --calibration out."
            )
        if self.precision == "int8-static" and self.calibration is None:
            raise UserError(
                "--precision=int8-static needs texts on which to measure the scales of activations. Add "
                "--calibration=FILE. Each line of FILE holds one text, or two texts with a tab between them."
            )
        if self.to in SINGLE and (count := len(set(self.lengths or ()))) > 1:
            raise UserError(
                f"--lengths: a file for {SINGLE[self.to]} has one length, not {count}. Write a file for each length."
            )
        if self.size is not None and self.size < 1:
            raise UserError(f"--size={self.size} is below 1. Use the number of dimensions that a vector keeps.")
        if self.examples is not None and self.examples < 0:
            raise UserError(f"--examples={self.examples} is less than 0. Use 0 for all examples, or a positive number.")
