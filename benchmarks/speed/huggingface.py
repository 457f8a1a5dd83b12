# pyright: reportMissingImports=false
"""Hugging Face's side of train_step.py, and the settings that both sides share."""

from typing import Any

import numpy as np

from benchmarks.lib import processes
from benchmarks.lib.processes import Setting, Step
from benchmarks.speed import transfer_stage

TRANSFER = "mobilebert_transfer"
REPLACED = ("electra_small",)  # all others train as masked language models
VOCABULARY, DROPOUT = 30522, 0.1
SMALL = {"embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {  # masked language models: Hugging Face's family and fields
    "bert_base": ("Bert", {}),
    "squeezebert": ("SqueezeBert", {}),
    "mobilebert": ("MobileBert", {"classifier_activation": False}),
    "convbert_base": ("ConvBert", {"embedding_size": 768}),
    "convbert_small": ("ConvBert", SMALL),
}
LEARNING_RATE, DECAY, CLIP, EPSILON = 1e-4, 0.01, 1.0, 1e-6


def their_step(model: str, setting: Setting, _: tuple[int, int, int]) -> Step:
    """A training step of Hugging Face's model in torch."""
    import torch

    torch.manual_seed(0)
    rates, adamw = transfer_stage.their_rate if model == TRANSFER else None, {"weight_decay": DECAY, "eps": EPSILON}
    step = processes.torch_step(network(model), CLIP, setting, rates, lr=LEARNING_RATE, **adamw)

    def run(batch: dict[str, np.ndarray]) -> float:
        inputs = transfer_stage.inputs(batch)
        if model == TRANSFER:
            return step(inputs)
        if model in REPLACED:
            return step(inputs | {name: batch[name] for name in ("masked_positions", "masked_ids")})
        labels = np.full(batch["input_ids"].shape, -100, np.int64)
        np.put_along_axis(labels, batch["masked_positions"].astype(np.int64), batch["masked_ids"], axis=1)
        return step(inputs | {"labels": labels})

    return run


def network(model: str) -> Any:
    """A Hugging Face module whose output has a "loss", with random weights."""
    import torch
    import transformers

    if model == TRANSFER:
        return transfer_stage.their_network()
    more = {"hidden_dropout_prob": DROPOUT, "attention_probs_dropout_prob": DROPOUT, "vocab_size": VOCABULARY}
    if model in FAMILIES:
        family, sizes = FAMILIES[model]
        config = getattr(transformers, f"{family}Config")(**sizes, **more)
        return getattr(transformers, f"{family}ForMaskedLM")(config)

    class Electra(torch.nn.Module):
        """ELECTRA-small's generator and discriminator on one embedding, with the sampling between them."""

        def __init__(self) -> None:
            super().__init__()
            large: dict[str, Any] = {**SMALL, "num_hidden_layers": 12, **more}
            small = large | {"hidden_size": 64, "num_attention_heads": 1, "intermediate_size": 256}
            self.generator = transformers.ElectraForMaskedLM(transformers.ElectraConfig(**small))
            self.discriminator = transformers.ElectraForPreTraining(transformers.ElectraConfig(**large))
            self.generator.electra.embeddings = self.discriminator.electra.embeddings
            self.generator.generator_lm_head.weight = self.discriminator.electra.embeddings.word_embeddings.weight

        def forward(self, input_ids: Any, masked_positions: Any, masked_ids: Any, **rest: Any) -> Any:
            labels = torch.full_like(input_ids, -100).scatter(1, masked_positions, masked_ids)
            generated = self.generator(input_ids, labels=labels, **rest)
            with torch.no_grad():
                places = masked_positions[:, :, None].expand(-1, -1, generated.logits.shape[-1])
                logits = generated.logits.gather(1, places).float()
                sampled = torch.distributions.Categorical(logits=logits).sample()
            mixed = input_ids.scatter(1, masked_positions, sampled)
            original = input_ids.scatter(1, masked_positions, masked_ids)
            detected = self.discriminator(mixed, labels=(mixed != original).long(), **rest)
            return {"loss": generated.loss + 50 * detected.loss}

    return Electra()
