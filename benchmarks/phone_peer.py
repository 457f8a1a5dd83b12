# pyright: reportMissingImports=false
"""What phone.py is measured against: a Hugging Face classifier, random weights, and litert-torch's file of it.

    python benchmarks/phone_peer.py mobilebert DIRECTORY FILE.tflite

For a Python that has transformers, torch and litert-torch, which needs not have bertzoo. DIRECTORY is complete once the
file is there.
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
    """A classifier that gives its logits alone."""

    def __init__(self, classifier: torch.nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> torch.Tensor:
        given = {"attention_mask": attention_mask, "token_type_ids": token_type_ids}
        return self.classifier(input_ids, **given).logits


def main(name: str, directory: Path, file: Path) -> None:
    """Make the model of the library's own config, which is the published one of that size, and convert it."""
    family = FAMILIES[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")()
    classifier = getattr(transformers, f"{family}ForSequenceClassification")(config).eval()
    with torch.no_grad():
        for parameter in classifier.parameters():
            if parameter.dim() == 1:  # a scale of 1 or a bias of 0 would be no operation, as a trained one is
                parameter.add_(0.1 * torch.randn_like(parameter))
    classifier.save_pretrained(directory)
    # Tensors of their own, as the exporter takes one that is given twice for one input.
    given = {name: torch.ones((1, LENGTH), dtype=torch.long) for name in ("input_ids", "attention_mask")}
    given["token_type_ids"] = torch.zeros((1, LENGTH), dtype=torch.long)
    made = litert_torch.convert(Logits(classifier), sample_kwargs=given)
    temporary = file.with_suffix(".tmp.tflite")
    made.export(str(temporary))
    os.replace(temporary, file)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
