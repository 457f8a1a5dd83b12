# pyright: reportMissingImports=false
"""Examples/s of one training step, ours beside Hugging Face PyTorch's: `python benchmarks/train_step.py --rounds 5`.

The same sizes, batch (every token real, `--predictions` masked a row), dropout 0.1, global-norm clip, AdamW, float32,
and the same number of threads. Each side is what its user would run: ours `bertzoo.train`'s compiled step, theirs
`BertForMaskedLM` with sdpa attention, `loss.backward()` and torch's fused AdamW. `electra_small` is a whole step of
replaced token detection: theirs is two of its classes on one embedding and the sampling between them. Each side lives
in a process of its own, so that the peak memory is its own; they take turns, step by step, and the ratio is the median
of the rounds' ratios. On a busy machine compare the CPU times of `--threads 1`: what other processes take away does not
count there. Needs torch and transformers: `make parity` makes an environment that has them.
"""

import argparse
import dataclasses
import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import sides
from sides import Side, Step, ratio, take_turns

MODELS = ("bert_base", "squeezebert", "mobilebert", "convbert_base", "electra_small")
REPLACED = ("electra_small",)  # the others are compared under the masked language model
VOCABULARY, DROPOUT = 30522, 0.1
LEARNING_RATE, DECAY, CLIP, EPSILON = 1e-4, 0.01, 1.0, 1e-6


def random_batch(rows: int, length: int, predictions: int, seed: int) -> dict[str, np.ndarray]:
    """A batch by docs/architecture.md without padding."""
    random = np.random.default_rng(seed)
    positions = [np.sort(random.choice(np.arange(1, length), predictions, replace=False)) for _ in range(rows)]
    return {
        "input_ids": random.integers(1, VOCABULARY, (rows, length), np.int32),
        "token_type_ids": np.repeat((np.arange(length) > length // 2)[None].astype(np.int32), rows, 0),
        "attention_mask": np.ones((rows, length), np.int32),
        "masked_positions": np.stack(positions).astype(np.int32),
        "masked_ids": random.integers(1, VOCABULARY, (rows, predictions), np.int32),
        "masked_weights": np.ones((rows, predictions), np.float32),
        "row_weight": np.ones(rows, np.float32),
    }


def our_step(model: str, threads: int) -> Step:
    """One step of bertzoo -> its loss; XLA's thread pool has as many threads as the process has cores."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    from bertzoo import config
    from bertzoo.models import Compute
    from bertzoo.objectives import Masked
    from bertzoo.recipe import Pretrain
    from bertzoo.train.optim import AdamW

    recipe = config.load(Pretrain, [model])
    shape = dataclasses.replace(recipe.model, vocab_size=VOCABULARY, dropout=DROPOUT, attention_dropout=DROPOUT)
    settings = recipe.objective if model in REPLACED else Masked(sentence="none")
    adamw = AdamW(learning_rate=LEARNING_RATE, weight_decay=DECAY, clip_norm=CLIP, epsilon=EPSILON)
    return sides.our_step(settings.build(shape, Compute()), adamw)


def their_step(model: str, threads: int) -> Step:
    """One step of Hugging Face's model under torch -> its loss."""
    import torch

    torch.manual_seed(0)
    step = sides.torch_step(their_network(model), CLIP, threads, lr=LEARNING_RATE, weight_decay=DECAY, eps=EPSILON)

    def run(batch: dict[str, np.ndarray]) -> float:
        labels = np.full(batch["input_ids"].shape, -100, np.int64)
        np.put_along_axis(labels, batch["masked_positions"].astype(np.int64), batch["masked_ids"], axis=1)
        names = ("input_ids", "token_type_ids", "attention_mask")
        return step({"labels": labels} | {name: batch[name] for name in names})

    return run


def their_network(model: str) -> Any:
    """A Hugging Face module that gives a loss as its masked language models do."""
    import torch
    import transformers

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

        def forward(self, input_ids: Any, labels: Any, **rest: Any) -> Any:
            made = self.generator(input_ids, labels=labels, **rest)
            masked = labels >= 0
            with torch.no_grad():
                sampled = torch.distributions.Categorical(logits=made.logits[masked]).sample()
            mixed = input_ids.clone()
            mixed[masked] = sampled
            original = torch.where(masked, labels, input_ids)
            told = self.discriminator(mixed, labels=(mixed != original).long(), **rest)
            return SimpleNamespace(loss=made.loss + 50 * told.loss)

    return Electra()


def compare(model: str, options: argparse.Namespace) -> str:
    """Take turns and return the table's row."""
    ours, theirs = pair = [Side(make, model, options.threads) for make in (our_step, their_step)]
    shape = options.batch, options.length, options.predictions
    take_turns(pair, [random_batch(*shape, seed=index) for index in range(options.warmup + options.rounds)])
    cells = [f"{model:12s}"]
    for side in pair:
        seconds = side.median(0, options.warmup)
        cells += [
            f"{seconds:8.2f}",
            f"{options.batch / seconds:8.2f}",
            f"{side.rounds[-1][3]:8.0f}",
            f"{side.rounds[-1][2]:7.2f}",
        ]
    return " ".join([*cells, *(f"{ratio(ours, theirs, column, options.warmup):9.2f}" for column in (0, 1))])


def main() -> None:
    parser = argparse.ArgumentParser(description="One training step, ours beside Hugging Face PyTorch's.")
    parser.add_argument("--models", default=",".join(MODELS), type=lambda names: names.split(","))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2, help="rounds not counted, the first of which compiles")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--predictions", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if unknown := set(options.models) - set(MODELS):
        parser.error(f"unknown models {sorted(unknown)}; there are {', '.join(MODELS)}")
    print(
        f"batch {options.batch}x{options.length}, {options.predictions} masked a row, {options.threads} threads, fp32"
    )
    print(f"{'':12s} {'ours':^34s} {'Hugging Face PyTorch':^34s} {'theirs / ours':^19s}")
    print(
        " ".join(
            [
                f"{'model':12s}",
                *2 * [f"{'s/step':>8s}", f"{'ex/s':>8s}", f"{'peak MB':>8s}", f"{'loss':>7s}"],
                f"{'wall':>9s} {'CPU time':>9s}",
            ]
        )
    )
    for model in options.models:
        print(compare(model, options), flush=True)


if __name__ == "__main__":
    main()
