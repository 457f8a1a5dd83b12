# pyright: reportMissingImports=false
"""Hugging Face's side of train_step.py, and the settings that both sides have."""

from typing import Any

import lesson
import numpy as np
import sides
from sides import Setting, Step

LESSON = "mobilebert_transfer"
REPLACED = ("electra_small",)  # the others are compared under the masked language model
VOCABULARY, DROPOUT = 30522, 0.1
LEARNING_RATE, DECAY, CLIP, EPSILON = 1e-4, 0.01, 1.0, 1e-6


def their_step(model: str, setting: Setting, _: tuple[int, int, int]) -> Step:
    """One step of Hugging Face's model under torch -> its loss."""
    import torch

    torch.manual_seed(0)
    rates, adamw = lesson.their_rate if model == LESSON else None, {"weight_decay": DECAY, "eps": EPSILON}
    step = sides.torch_step(network(model), CLIP, setting, rates, lr=LEARNING_RATE, **adamw)

    def run(batch: dict[str, np.ndarray]) -> float:
        given = lesson.batch(batch)
        if model == LESSON:
            return step(given)
        if model in REPLACED:
            return step(given | {name: batch[name] for name in ("masked_positions", "masked_ids")})
        labels = np.full(batch["input_ids"].shape, -100, np.int64)
        np.put_along_axis(labels, batch["masked_positions"].astype(np.int64), batch["masked_ids"], axis=1)
        return step(given | {"labels": labels})

    return run


def network(model: str) -> Any:
    """A Hugging Face module that gives a loss as its masked language models do."""
    import torch
    import transformers

    if model == LESSON:
        return lesson.their_network()
    more = {"hidden_dropout_prob": DROPOUT, "attention_probs_dropout_prob": DROPOUT, "vocab_size": VOCABULARY}
    if model == "bert_base":
        return transformers.BertForMaskedLM(transformers.BertConfig(**more))
    if model == "squeezebert":
        return transformers.SqueezeBertForMaskedLM(transformers.SqueezeBertConfig(**more))
    if model == "mobilebert":
        config = transformers.MobileBertConfig(classifier_activation=False, **more)
        return transformers.MobileBertForMaskedLM(config)
    if model == "convbert_base":
        return transformers.ConvBertForMaskedLM(transformers.ConvBertConfig(embedding_size=768, **more))
    if model == "convbert_small":
        sizes = {"embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
        return transformers.ConvBertForMaskedLM(transformers.ConvBertConfig(**sizes, **more))

    class Electra(torch.nn.Module):
        """The generator and the discriminator of ELECTRA-small on one embedding, with the sampling between them."""

        def __init__(self) -> None:
            super().__init__()
            small: dict[str, Any] = {"embedding_size": 128, "num_hidden_layers": 12, **more}
            self.generator = transformers.ElectraForMaskedLM(
                transformers.ElectraConfig(hidden_size=64, num_attention_heads=1, intermediate_size=256, **small)
            )
            self.discriminator = transformers.ElectraForPreTraining(
                transformers.ElectraConfig(hidden_size=256, num_attention_heads=4, intermediate_size=1024, **small)
            )
            self.generator.electra.embeddings = self.discriminator.electra.embeddings
            self.generator.generator_lm_head.weight = self.discriminator.electra.embeddings.word_embeddings.weight

        def forward(self, input_ids: Any, masked_positions: Any, masked_ids: Any, **rest: Any) -> Any:
            labels = torch.full_like(input_ids, -100).scatter(1, masked_positions, masked_ids)
            made = self.generator(input_ids, labels=labels, **rest)
            with torch.no_grad():
                places = masked_positions[:, :, None].expand(-1, -1, made.logits.shape[-1])
                sampled = torch.distributions.Categorical(logits=made.logits.gather(1, places).float()).sample()
            mixed = input_ids.scatter(1, masked_positions, sampled)
            original = input_ids.scatter(1, masked_positions, masked_ids)
            told = self.discriminator(mixed, labels=(mixed != original).long(), **rest)
            return {"loss": made.loss + 50 * told.loss}

    return Electra()
