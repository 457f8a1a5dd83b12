# pyright: reportMissingImports=false
"""Make a Hugging Face classifier with random weights and litert-torch's file of it, the other side of converters.py.

    python benchmarks/phone/convert_peer.py mobilebert DIRECTORY FILE.tflite

Needs transformers, torch and litert-torch, but not bertzoo. DIRECTORY is complete once the file is there.
"""

import os
import sys
from pathlib import Path

import litert_torch
import torch
import transformers

LENGTH = 128
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


def main(name: str, directory: Path, file: Path) -> None:
    """Build the library's default config, which is the published model of that size, and convert it."""
    family = FAMILIES[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")()
    classifier = getattr(transformers, f"{family}ForSequenceClassification")(config).eval()
    with torch.no_grad():
        for parameter in classifier.parameters():
            if parameter.dim() == 1:  # a converter may drop a scale of 1 or a bias of 0
                parameter.add_(0.1 * torch.randn_like(parameter))
    classifier.save_pretrained(directory)
    # Separate tensors: the exporter treats one tensor passed twice as one input.
    inputs = {name: torch.ones((1, LENGTH), dtype=torch.long) for name in ("input_ids", "attention_mask")}
    inputs["token_type_ids"] = torch.zeros((1, LENGTH), dtype=torch.long)
    converted = litert_torch.convert(Logits(classifier), sample_kwargs=inputs)
    temporary = file.with_suffix(".tmp.tflite")
    converted.export(str(temporary))
    os.replace(temporary, file)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
