# pyright: reportMissingImports=false
"""Convert a Hugging Face classifier with other projects' converters, the other side of converters.py and int8_peers.py.

    python benchmarks/phone/convert_peer.py DIRECTORY FILE ... [--random=mobilebert]

FILE ends in .tflite (litert-torch), .int8.tflite (the .tflite file under Google's quantiser) or .int8.onnx (ONNX
Runtime's dynamic quantisation). Needs transformers, torch, litert-torch and, for .onnx, onnxruntime, onnx and
onnxscript, but not bertzoo. --random first writes a model of that name with random weights to DIRECTORY.
"""

import argparse
import os
from pathlib import Path

import torch
import transformers

LENGTH = 128
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
FAMILIES = {"bert_base": "Bert", "squeezebert": "SqueezeBert", "mobilebert": "MobileBert", "convbert_base": "ConvBert"}


class Logits(torch.nn.Module):
    """A classifier that returns only its logits."""

    def __init__(self, classifier: torch.nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> torch.Tensor:
        return self.classifier(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids).logits


def random_model(name: str, directory: Path) -> None:
    """Save a classifier of the library's default config, which is the published model of that size."""
    family = FAMILIES[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")()
    classifier = getattr(transformers, f"{family}ForSequenceClassification")(config)
    with torch.no_grad():
        for parameter in classifier.parameters():
            if parameter.dim() == 1:  # a converter may drop a scale of 1 or a bias of 0
                parameter.add_(0.1 * torch.randn_like(parameter))
    classifier.save_pretrained(directory)


def example(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Inputs of one row; separate tensors, as the exporter treats one tensor passed twice as one input."""
    inputs = {name: torch.ones((1, LENGTH), dtype=dtype) for name in INPUTS}
    return inputs | {"token_type_ids": torch.zeros((1, LENGTH), dtype=dtype)}


def write_litert(classifier: torch.nn.Module, file: Path) -> None:
    """Write litert-torch's float32 file."""
    import litert_torch

    converted = litert_torch.convert(classifier, sample_kwargs=example(torch.long))
    temporary = file.with_suffix(".tmp.tflite")
    converted.export(str(temporary))
    os.replace(temporary, file)


def quantise_litert(plain: Path, file: Path) -> None:
    """Quantise a LiteRT file with the recipe that bertzoo uses for int8-dynamic."""
    from litert_quantizer import quantizer, recipe

    result = quantizer.Quantizer(str(plain), recipe.dynamic_wi8_afp32()).quantize()
    assert result.quantized_model is not None
    file.write_bytes(bytes(result.quantized_model))


def write_onnx(classifier: torch.nn.Module, file: Path) -> None:
    """Export to ONNX, prepare as ONNX Runtime recommends, and quantise weights to int8 with a scale per channel."""
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    plain, prepared = (file.with_suffix(f".{step}.onnx") for step in ("plain", "prepared"))
    torch.onnx.export(classifier, (), plain, kwargs=example(torch.int32), dynamo=True, external_data=False)
    quant_pre_process(plain, prepared)
    quantize_dynamic(prepared, file, weight_type=QuantType.QInt8, per_channel=True)
    plain.unlink()
    prepared.unlink()


def main() -> None:
    """Write the files that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--random", choices=FAMILIES)
    args = parser.parse_args()
    if args.random:
        random_model(args.random, args.directory)
    classifier = Logits(transformers.AutoModelForSequenceClassification.from_pretrained(args.directory)).eval()
    for file in args.files:
        if file.name.endswith(".int8.tflite"):
            quantise_litert(file.with_name(file.name.replace(".int8", "")), file)
        elif file.suffix == ".tflite":
            write_litert(classifier, file)
        else:
            write_onnx(classifier, file)


if __name__ == "__main__":
    main()
