# pyright: reportMissingImports=false
"""The reference, torch and transformers in float64: random tiny models, a random batch, the compared values."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import transformers
from torch.nn.functional import cross_entropy

Outputs = dict[str, torch.Tensor]


class Bert(torch.nn.Module):
    """Hugging Face's `BertForPreTraining` (MLM + NSP) on our batches."""

    def __init__(self, settings: Mapping) -> None:
        super().__init__()
        config = transformers.BertConfig(**settings, attn_implementation="eager")
        self.model = transformers.BertForPreTraining(config)

    def forward(self, batch: Mapping[str, np.ndarray]) -> Outputs:
        ids, rest = inputs(batch)
        labels, sentence = mlm_labels(batch), torch.tensor(batch["sentence_label"]).long()
        more = {"output_hidden_states": True, "output_attentions": True}
        out = self.model(ids, labels=labels, next_sentence_label=sentence, **rest, **more)
        pooled = self.model.bert(ids, **rest).pooler_output
        return collect(
            batch,
            out.hidden_states,
            out.attentions,
            pooled,
            out.prediction_logits,
            out.seq_relationship_logits,
            out.loss,
        )


class SqueezeBert(torch.nn.Module):
    """Hugging Face's `SqueezeBertForMaskedLM` with a 2-way sentence head on the pooled output, which it lacks."""

    def __init__(self, settings: Mapping) -> None:
        super().__init__()
        self.model = transformers.SqueezeBertForMaskedLM(transformers.SqueezeBertConfig(**settings))
        self.model.cls.seq_relationship = torch.nn.Linear(settings["hidden_size"], 2)

    def forward(self, batch: Mapping[str, np.ndarray]) -> Outputs:
        ids, rest = inputs(batch)
        out = self.model.transformer(ids, **rest, output_hidden_states=True, output_attentions=True)
        logits = self.model.cls.predictions(out.last_hidden_state)
        loss = self.model(ids, labels=mlm_labels(batch), **rest).loss
        sentence = self.model.cls.seq_relationship(out.pooler_output)
        loss = loss + cross_entropy(sentence, torch.tensor(batch["sentence_label"]).long())
        probabilities = [scores.softmax(-1) for scores in out.attentions]  # Hugging Face returns the masked scores
        return collect(batch, out.hidden_states, probabilities, out.pooler_output, logits, sentence, loss)


class Albert(torch.nn.Module):
    """Hugging Face's `AlbertForPreTraining` (MLM + SOP) on our batches."""

    def __init__(self, settings: Mapping) -> None:
        super().__init__()
        config = transformers.AlbertConfig(**settings, attn_implementation="eager")
        self.model = transformers.AlbertForPreTraining(config)

    def forward(self, batch: Mapping[str, np.ndarray]) -> Outputs:
        ids, rest = inputs(batch)
        labels, sentence = mlm_labels(batch), torch.tensor(batch["sentence_label"]).long()
        more = {"output_hidden_states": True, "output_attentions": True}
        out = self.model(ids, labels=labels, sentence_order_label=sentence, **rest, **more)
        pooled = self.model.albert(ids, **rest).pooler_output
        return collect(
            batch, out.hidden_states, out.attentions, pooled, out.prediction_logits, out.sop_logits, out.loss
        )


class DistilBert(torch.nn.Module):
    """Hugging Face's `DistilBertForMaskedLM` on our batches: no token types, no sentence head, no pooler."""

    def __init__(self, settings: Mapping) -> None:
        super().__init__()
        config = transformers.DistilBertConfig(**settings, attn_implementation="eager")
        self.model = transformers.DistilBertForMaskedLM(config)

    def forward(self, batch: Mapping[str, np.ndarray]) -> Outputs:
        ids, rest = inputs(batch)
        mask = rest["attention_mask"]
        more = {"output_hidden_states": True, "output_attentions": True}
        out = self.model(ids, labels=mlm_labels(batch), attention_mask=mask, **more)
        return collect(
            batch, out.hidden_states, out.attentions, out.hidden_states[-1][:, 0], out.logits, None, out.loss
        )


class MobileBert(torch.nn.Module):
    """Hugging Face's `MobileBertForPreTraining` (MLM + NSP) on our batches.

    Without `pad_token_id` no row of the word table is kept from its gradient: the trigrams see padding. Its layer_norm
    mode has torch's default epsilon in two places whatever the config says, so that only 1e-5 is one epsilon for all.
    """

    def __init__(self, settings: Mapping) -> None:
        super().__init__()
        more = {"pad_token_id": None, "layer_norm_eps": 1e-5, "attn_implementation": "eager"}
        self.model = transformers.MobileBertForPreTraining(transformers.MobileBertConfig(**settings, **more))

    def forward(self, batch: Mapping[str, np.ndarray]) -> Outputs:
        ids, rest = inputs(batch)
        labels, sentence = mlm_labels(batch), torch.tensor(batch["sentence_label"]).long()
        more = {"output_hidden_states": True, "output_attentions": True}
        out = self.model(ids, labels=labels, next_sentence_label=sentence, **rest, **more)
        pooled = self.model.mobilebert(ids, **rest).pooler_output
        logits, sentence_logits = out.prediction_logits, out.seq_relationship_logits
        return collect(batch, out.hidden_states, out.attentions, pooled, logits, sentence_logits, out.loss)


class ConvBert(torch.nn.Module):
    """Hugging Face's `ConvBertForMaskedLM`; no pooler, no sentence head."""

    def __init__(self, settings: Mapping) -> None:
        super().__init__()
        config = transformers.ConvBertConfig(**settings, attn_implementation="eager", pad_token_id=0)
        self.model = transformers.ConvBertForMaskedLM(config)
        # An ordinary row, as in the original code: its windows see the padding, so that the row has a gradient.
        self.model.convbert.embeddings.word_embeddings.padding_idx = None

    def forward(self, batch: Mapping[str, np.ndarray]) -> Outputs:
        ids, rest = inputs(batch)
        more = {"output_hidden_states": True, "output_attentions": True}
        out = self.model(ids, labels=mlm_labels(batch), **rest, **more)
        pooled = out.hidden_states[-1][:, 0]
        return collect(batch, out.hidden_states, out.attentions, pooled, out.logits, None, out.loss)


class Electra(torch.nn.Module):
    """Hugging Face's `ElectraForPreTraining` and `ElectraForMaskedLM` on one embedding; `batch["drawn"]` (B,P) are the
    ids that the generator would have drawn.
    """

    def __init__(self, settings: Mapping, generator: Mapping, weight: float) -> None:
        super().__init__()
        config, smaller = (
            transformers.ElectraConfig(**sizes, attn_implementation="eager") for sizes in (settings, generator)
        )
        self.discriminator, self.generator = (
            transformers.ElectraForPreTraining(config),
            transformers.ElectraForMaskedLM(smaller),
        )
        self.generator.electra.embeddings = self.discriminator.electra.embeddings
        self.generator.generator_lm_head.weight = self.discriminator.electra.embeddings.word_embeddings.weight
        self.weight = weight

    def forward(self, batch: Mapping[str, np.ndarray]) -> Outputs:
        ids, rest = inputs(batch)
        more = {**rest, "output_hidden_states": True, "output_attentions": True}
        masked = self.generator(ids, labels=mlm_labels(batch), **more)
        rows, slots = np.nonzero(batch["masked_weights"])
        places, labels = batch["masked_positions"][rows, slots], np.zeros(batch["input_ids"].shape)
        labels[rows, places] = (batch["drawn"] != batch["masked_ids"])[rows, slots]
        ids = ids.clone()
        ids[rows, places] = torch.tensor(batch["drawn"][rows, slots]).long()
        replaced = self.discriminator(ids, labels=torch.tensor(labels), **more)
        every = torch.arange(len(ids))[:, None]
        return {
            "generator_hidden_states": torch.stack(masked.hidden_states),
            "generator_attentions": torch.stack(masked.attentions),
            "masked_logits": masked.logits[every, torch.tensor(batch["masked_positions"]).long()],
            "masked_loss": masked.loss,
            "hidden_states": torch.stack(replaced.hidden_states),
            "attentions": torch.stack(replaced.attentions),
            "replaced_logits": replaced.logits,
            "replaced_loss": replaced.loss,
            "loss": masked.loss + self.weight * replaced.loss,
        }


def drawn(random: np.random.Generator, batch: Mapping[str, np.ndarray], vocabulary: int) -> np.ndarray:
    """(B,P) random ids for the slots; about a third equal the original ids."""
    ids = random.integers(1, vocabulary, batch["masked_ids"].shape)
    return np.where(random.random(ids.shape) < 0.3, batch["masked_ids"], ids).astype(np.int32)


MODELS: dict[str, Callable[[Mapping], torch.nn.Module]] = {
    "albert": Albert,
    "bert": Bert,
    "convbert": ConvBert,
    "distilbert": DistilBert,
    "mobilebert": MobileBert,
    "squeezebert": SqueezeBert,
}


def inputs(batch: Mapping[str, np.ndarray]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Ids, and the other two arguments of a Hugging Face model."""
    rest = {name: torch.tensor(batch[name]).long() for name in ("attention_mask", "token_type_ids")}
    return torch.tensor(batch["input_ids"]).long(), rest


def mlm_labels(batch: Mapping[str, np.ndarray]) -> torch.Tensor:
    """(B, L): the masked ids at the masked positions, -100 elsewhere."""
    labels = np.full(batch["input_ids"].shape, -100)
    rows, slots = np.nonzero(batch["masked_weights"])
    labels[rows, batch["masked_positions"][rows, slots]] = batch["masked_ids"][rows, slots]
    return torch.tensor(labels)


def collect(batch, hidden, attentions, pooled, logits, sentence_logits, loss) -> Outputs:
    """All outputs under our names, `masked_logits` (B,P,V) of unused slots too; there may be no sentence logits."""
    rows, positions = torch.arange(len(logits))[:, None], torch.tensor(batch["masked_positions"]).long()
    masked_loss = cross_entropy(logits.flatten(0, 1), mlm_labels(batch).flatten())
    out = {"hidden_states": torch.stack(tuple(hidden)), "attentions": torch.stack(tuple(attentions)), "pooled": pooled}
    out |= {"masked_logits": logits[rows, positions], "loss": loss, "masked_loss": masked_loss}
    if sentence_logits is not None:
        out |= {"sentence_logits": sentence_logits, "sentence_loss": loss - masked_loss}
    return out


def randomise(model: torch.nn.Module, random: np.random.Generator) -> None:
    """Fill every parameter with sizable float32 values, then go to float64 with dropout off.

    Embedding tables are small, so that a wrong epsilon of the embedding norm shows; kernels keep outputs near one.
    Tables beside the bias of an embedding transformation are large, or all tokens would look alike, and kernels are
    smaller where no norm (NoNorm) keeps the sums from growing.
    """
    table = 1.0 if any("embedding_transformation" in name for name, _ in model.named_parameters()) else 0.03
    kernel = 0.7 if any(type(module).__name__ == "NoNorm" for module in model.modules()) else 1.2
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            fan_in = parameter[0].numel() if parameter.ndim > 1 else 1
            scale = table if "_embeddings." in name and parameter.ndim > 1 else kernel / np.sqrt(fan_in)
            values = scale * random.normal(size=parameter.shape)
            if parameter.ndim == 1:
                values = 0.4 * values + (1.0 if "norm.weight" in name.lower() else 0.0)
            parameter.copy_(torch.tensor(values.astype(np.float32)))
    model.double().eval()


def calm(model: torch.nn.Module) -> None:
    """Make the layers' kernels and biases small beside the stream, as trained ones are.

    Otherwise all tokens of a deep random model become equal, and no gradient reaches its queries.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".encoder." in name:
                parameter.mul_(0.4 if parameter.ndim > 1 else 0.05 if name.endswith("bias") else 1)


def random_batch(
    random: np.random.Generator, vocabulary: int, lengths: tuple[int, ...], predictions: int = 4
) -> dict[str, Any]:
    """A batch of pairs by `pipeline.array_shapes`: rows of these lengths, padded to the longest; some slots unused."""
    rows, length = len(lengths), max(lengths)
    batch: dict[str, Any] = {
        name: np.zeros((rows, length), np.int32) for name in ("input_ids", "token_type_ids", "attention_mask")
    }
    batch |= {name: np.zeros((rows, predictions), np.int32) for name in ("masked_positions", "masked_ids")}
    batch["masked_weights"] = np.zeros((rows, predictions), np.float32)
    for row, size in enumerate(lengths):
        batch["input_ids"][row, :size] = random.integers(1, vocabulary, size)
        batch["token_type_ids"][row, size // 2 : size] = 1
        batch["attention_mask"][row, :size] = 1
        used = max(1, predictions - row)
        batch["masked_positions"][row, :used] = np.sort(random.choice(np.arange(1, size), used, replace=False))
        batch["masked_ids"][row, :used] = random.integers(1, vocabulary, used)
        batch["masked_weights"][row, :used] = 1.0
    batch["sentence_label"] = np.arange(rows, dtype=np.int32) % 2
    batch["row_weight"] = np.ones(rows, np.float32)
    return batch
