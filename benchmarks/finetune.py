# pyright: reportMissingImports=false
"""Fine-tuning beside Hugging Face PyTorch's, on the same cores: `python benchmarks/finetune.py --sst2=glue/SST-2`.

Steps of 16 rows of 128 tokens first: a classifier of two labels, dropout 0.1, global-norm clip, AdamW, float32; ours is
the compiled step of `bertzoo finetune`, theirs is `AutoModelForSequenceClassification` with sdpa attention and torch's
fused AdamW. The same parameters are drawn on neither side: it is time that is compared.

With --sst2 and --model, a Hugging Face directory, then sentences of SST-2: ours in rows of few lengths (`buckets`),
beside rows of 128 of either side, as the reference codes pad them, and theirs padded to the longest of a batch. Fails
where a step of ours is slower, or few lengths are not twice as fast as 128.

Sides take turns, step by step, and a ratio is the median of the rounds'. Needs torch and transformers: `make test-all`
makes an environment that has them.
"""

import argparse
import functools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import sides
from sides import Setting, Side, Step, ratio, take_turns

MODELS = {
    "bert_base": "bert", "squeezebert": "squeezebert", "mobilebert": "mobilebert", "convbert_base": "convbert",
    "electra_small": "electra",
}  # fmt: skip
VOCABULARY, RATE, CLIP = 30522, 3e-5, 1.0


def random_batch(rows: int, length: int, seed: int) -> dict[str, np.ndarray]:
    """Rows without padding."""
    random = np.random.default_rng(seed)
    return {
        "input_ids": random.integers(1, VOCABULARY, (rows, length), np.int32),
        "token_type_ids": np.zeros((rows, length), np.int32),
        "attention_mask": np.ones((rows, length), np.int32),
        "label": random.integers(0, 2, rows).astype(np.int32),
        "row_weight": np.ones(rows, np.float32),
    }


def our_step(model: str, threads: int) -> Step:
    """A step of the model of a shipped config or of a directory."""
    sides.keep_to(Setting(threads))
    import dataclasses

    from bertzoo.core import config
    from bertzoo.finetuning.settings import Finetune
    from bertzoo.models import Compute
    from bertzoo.models.tasks import SequenceClassification
    from bertzoo.objectives.labelled import LabelledObjective
    from bertzoo.runs import any_model
    from bertzoo.runs.pretrain_config import Pretrain

    if model in MODELS:
        shape = dataclasses.replace(config.load(Pretrain, [model]).model, vocab_size=VOCABULARY)
    else:
        shape = any_model.read_model(Path(model)).model
    shape = dataclasses.replace(shape, dropout=0.1, attention_dropout=0.1)
    objective = LabelledObjective(model=SequenceClassification(labels=("0", "1")).build(shape, Compute()))
    return sides.our_step(objective, dataclasses.replace(Finetune().optimizer, learning_rate=RATE, clip_norm=CLIP))


def their_step(model: str, threads: int) -> Step:
    """A step of Hugging Face's model of that kind, or of that directory."""
    import torch
    import transformers

    torch.manual_seed(0)
    network = transformers.AutoModelForSequenceClassification.from_config(their_config(model))
    step = sides.torch_step(network, CLIP, Setting(threads), lr=RATE)
    names = ("input_ids", "token_type_ids", "attention_mask")
    return lambda batch: step({"labels": batch["label"]} | {name: batch[name] for name in names})


def their_config(model: str) -> Any:
    """Hugging Face's config of the same sizes."""
    import transformers

    if model not in MODELS:
        return transformers.AutoConfig.from_pretrained(model, num_labels=2)
    more: dict[str, Any] = {"electra_small": {"embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4,
                                              "intermediate_size": 1024},
                            "convbert_base": {"embedding_size": 768}}.get(model, {})  # fmt: skip
    dropout = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    return transformers.AutoConfig.for_model(MODELS[model], vocab_size=VOCABULARY, num_labels=2, **dropout, **more)


def steps(options: argparse.Namespace) -> bool:
    """The table of steps; whether every one of ours is at least as fast."""
    print(f"batch {options.batch}x{options.length}, two labels, {options.threads} threads, fp32")
    print(f"{'model':14s} {'ours, s':>9s} {'theirs, s':>9s} {'theirs / ours':>14s} {'of CPU time':>12s}")
    reached = True
    for model in options.models:
        ours, theirs = pair = [Side(make, model, options.threads) for make in (our_step, their_step)]
        batches = [random_batch(options.batch, options.length, index) for index in range(2 + options.rounds)]
        take_turns(pair, batches)
        seconds, ratios = [side.median(0, 2) for side in pair], [ratio(ours, theirs, column, 2) for column in (0, 1)]
        print(f"{model:14s} {seconds[0]:9.3f} {seconds[1]:9.3f} {ratios[0]:14.2f} {ratios[1]:12.2f}", flush=True)
        reached &= ratios[0] >= 1
    return reached


def epoch(make: Any, model: str, threads: int) -> Step:
    """As a step, of a list of batches."""
    step = make(model, threads)
    return lambda batches: sum(step(batch) for batch in batches)


def sentences(options: argparse.Namespace) -> bool:
    """The table of SST-2's sentences; whether few lengths are at least twice as fast as one."""
    from bertzoo.runs import any_model
    from bertzoo.tasks.encode import encode
    from bertzoo.tasks.glue import GLUE
    from bertzoo.tasks.rows import Slot, bucket_lengths

    task, size = GLUE["sst2"], options.batch
    tokenizer = any_model.read_model(Path(options.model)).tokenizer
    if tokenizer is None:
        sys.exit(f"{options.model} has no tokenizer")
    rows = encode(task.read("train", options.sst2).examples, tokenizer, options.length, task.kind)
    lengths = bucket_lengths([rows], 4, options.length)
    plan = functools.partial(rows.plan, size)
    # The same share of every length as in an epoch: batches evenly spread over those of an epoch.
    planned = plan(lengths, 0)
    every = max(1, len(planned) // options.steps)
    bucketed = sorted(planned, key=lambda slot: slot.length)[every // 2 :: every]
    shuffled = plan((options.length,), 0)[: len(bucketed)]
    longest = [Slot(slot.rows, int(rows.lengths[slot.rows].max())) for slot in shuffled]
    variants = {
        f"ours, rows of {', '.join(map(str, lengths))}": (our_step, bucketed),
        f"ours, rows of {options.length}": (our_step, shuffled),
        f"theirs, rows of {options.length}": (their_step, shuffled),
        "theirs, to the longest of a batch": (their_step, longest),
    }
    found = {}
    timed = {name: Side(epoch, make, options.model, options.threads) for name, (make, _) in variants.items()}
    for turn in range(1 + options.rounds):
        for name in list(timed)[:: 1 if turn % 2 else -1]:
            timed[name].step([rows.batch(slot, size) for slot in variants[name][1]])
    for name, side in timed.items():
        side.close()
        found[name] = len(bucketed) * size / side.median(0, 1)
    first = next(iter(timed.values()))
    print(f"\nSST-2, {len(rows):,} sentences, {len(bucketed)} batches of {size} a round, {Path(options.model).name}")
    for name, side in timed.items():
        print(f"{name:40s} {found[name]:8.1f} sentences/s, ours in few lengths {ratio(first, side, 0, 1):5.2f} times")
    return all(ratio(first, side, 0, 1) >= 2 for name, side in timed.items() if name.endswith(f"of {options.length}"))


def main() -> None:
    """Print both tables; exit code 1 where a target is missed."""
    parser = argparse.ArgumentParser(description="Fine-tuning, ours beside Hugging Face PyTorch's.")
    parser.add_argument("--models", default=",".join(MODELS), type=lambda names: [n for n in names.split(",") if n])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sst2", help="the folder of SST-2's files")
    parser.add_argument("--model", help="a Hugging Face directory, for --sst2")
    parser.add_argument("--steps", type=int, default=40, help="batches of sentences in a round")
    options = parser.parse_args()
    if unknown := set(options.models) - set(MODELS):
        parser.error(f"unknown models {sorted(unknown)}; there are {', '.join(MODELS)}")
    if bool(options.sst2) != bool(options.model):
        parser.error("--sst2 and --model go together")
    reached = steps(options)
    if options.sst2:
        reached &= sentences(options)
    if not reached:
        sys.exit("a target is missed: 1 for steps, 2 for few lengths beside rows that are all as long")


if __name__ == "__main__":
    main()
