# pyright: reportMissingImports=false
"""Fine-tuning beside Hugging Face's models in PyTorch, on the same cores.

    python -m benchmarks speed.finetune --sst2=glue/SST-2 --model=MODEL

First steps of 16 rows of 128 tokens: a classifier of two labels, dropout 0.1, clipping by the global norm, AdamW,
float32. Ours is the compiled step of `bertzoo finetune`; theirs is `AutoModelForSequenceClassification` with sdpa
attention and torch's fused AdamW. Each side draws its own parameters, as only time is compared.

With --sst2 and --model, a Hugging Face directory, then sentences of SST-2: ours in rows of few lengths (`buckets`),
ours and theirs in rows of 128 tokens, as the reference codes pad them, and theirs padded to the longest of a batch.

Sides take turns, step by step, and a ratio is the median of the rounds'. Fails if a step of ours is slower, or few
lengths are not twice as fast as 128. Needs torch and transformers: `make .venv-parity/stamp` installs them.
"""

import argparse
import functools
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lib import processes, results
from benchmarks.lib.processes import CPU, WALL, Setting, Step, StepProcess, take_turns
from benchmarks.speed import train_step
from benchmarks.speed.huggingface import SMALL, VOCABULARY

WARMUP = 2  # rounds
MODELS = {
    "bert_base": "bert", "squeezebert": "squeezebert", "mobilebert": "mobilebert", "convbert_base": "convbert",
    "electra_small": "electra",
}  # fmt: skip
RATE, CLIP = 3e-5, 1.0


def random_batch(rows: int, length: int, seed: int) -> dict[str, np.ndarray]:
    """Rows without padding, and their labels."""
    batch = train_step.random_batch(rows, length, 1, seed)
    labels = np.random.default_rng(seed).integers(0, 2, rows).astype(np.int32)
    return {name: array for name, array in batch.items() if not name.startswith("masked_")} | {"label": labels}


def our_step(model: str, threads: int) -> Step:
    """A step of a classifier of a shipped config or of a model directory."""
    processes.limit_jax(Setting(threads))
    import dataclasses

    from bertzoo.core import config
    from bertzoo.finetuning.settings import Finetune
    from bertzoo.heads import SequenceClassification
    from bertzoo.heads.labels import LabelledObjective
    from bertzoo.models import Compute
    from bertzoo.runs import load_model
    from bertzoo.runs.configs import Pretrain

    if model in MODELS:
        shape = dataclasses.replace(config.load(Pretrain, [model]).model, vocab_size=VOCABULARY)
    else:
        shape = load_model.read_model(Path(model)).model
    shape = dataclasses.replace(shape, dropout=0.1, attention_dropout=0.1)
    objective = LabelledObjective(model=SequenceClassification(labels=("0", "1")).build(shape, Compute()))
    return processes.our_step(objective, dataclasses.replace(Finetune().optimizer, learning_rate=RATE, clip_norm=CLIP))


def their_step(model: str, threads: int) -> Step:
    """A step of Hugging Face's classifier of the same sizes."""
    import torch
    import transformers

    torch.manual_seed(0)
    network = transformers.AutoModelForSequenceClassification.from_config(their_config(model))
    step = processes.torch_step(network, CLIP, Setting(threads), lr=RATE)
    names = ("input_ids", "token_type_ids", "attention_mask")
    return lambda batch: step({"labels": batch["label"]} | {name: batch[name] for name in names})


def their_config(model: str) -> Any:
    """Hugging Face's config of the same sizes."""
    import transformers

    if model not in MODELS:
        return transformers.AutoConfig.from_pretrained(model, num_labels=2)
    more = {"electra_small": SMALL, "convbert_base": {"embedding_size": 768}}.get(model, {})
    dropout = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    return transformers.AutoConfig.for_model(MODELS[model], vocab_size=VOCABULARY, num_labels=2, **dropout, **more)


def compare_steps(model: str, args: argparse.Namespace) -> dict[str, Any]:
    """A model's step on both sides."""
    sides = [StepProcess(make, model, args.threads) for make in (our_step, their_step)]
    take_turns(sides, [random_batch(args.batch, args.length, index) for index in range(WARMUP + args.rounds)])
    ours, theirs = (side.median(WALL, WARMUP) for side in sides)
    ratio = processes.ratio(*sides, WARMUP)
    row = {"model": model, "a step, ours, s": round(ours, 3), "theirs, s": round(theirs, 3), "theirs / ours": ratio}
    return row | {"by CPU time": processes.ratio(*sides, WARMUP, CPU), "met": ratio["median"] >= 1}


def epoch(make: Any, model: str, threads: int, batches: list[Any]) -> Step:
    """A step over all batches."""
    step = make(model, threads)
    return lambda _: sum(step(batch) for batch in batches)


def compare_sentences(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Sentences a second of SST-2, by how each side pads them."""
    from bertzoo.runs import load_model
    from bertzoo.tasks.glue import GLUE
    from bertzoo.tasks.rows import Slot, bucket_lengths, encode

    task, size = GLUE["sst2"], args.batch
    tokenizer = load_model.read_model(Path(args.model)).tokenizer
    if tokenizer is None:
        sys.exit(f"--model={args.model} has no tokenizer; give a directory with one")
    rows = encode(task.read("train", args.sst2).examples, tokenizer, args.length, task.kind)
    lengths = bucket_lengths([rows], 4, args.length)
    plan = functools.partial(rows.plan, size)
    # Batches evenly spread over an epoch's, so that every length has its share.
    planned = plan(lengths, 0)
    stride = max(1, len(planned) // args.steps)
    bucketed = sorted(planned, key=lambda slot: slot.length)[stride // 2 :: stride]
    shuffled = plan((args.length,), 0)[: len(bucketed)]
    longest = [Slot(slot.rows, int(rows.lengths[slot.rows].max())) for slot in shuffled]
    variants = {
        f"bertzoo, rows of {', '.join(map(str, lengths))} (`buckets = 4`)": (our_step, bucketed),
        f"bertzoo, rows of {args.length}": (our_step, shuffled),
        f"transformers, rows of {args.length}": (their_step, shuffled),
        "transformers, each batch as long as its longest sentence": (their_step, longest),
    }
    sides = {
        name: StepProcess(epoch, make, args.model, args.threads, [rows.batch(slot, size) for slot in slots])
        for name, (make, slots) in variants.items()
    }
    take_turns([*sides.values()], range(1 + args.rounds))
    first = next(iter(sides.values()))
    table = []
    for name, side in sides.items():
        ratio = processes.ratio(first, side, 1)["median"]
        met = ratio >= 2 if name.endswith(f"of {args.length}") else None
        speed = len(bucketed) * size / side.median(WALL, 1)
        row = {"padding": name, "sentences a second": round(speed, 1), "time of the first": ratio}
        table.append(row | {"met": met})
    return table


def main() -> None:
    """Measure and write the result."""
    parser = results.parser("finetune", __doc__)
    parser.add_argument("--models", default=",".join(MODELS), help="(default: %(default)s)")
    results.add_numbers(parser, rounds=5, batch=16, length=128, threads=2, steps=40)
    parser.add_argument("--sst2", help="the folder of SST-2's files")
    parser.add_argument("--model", help="a Hugging Face directory, for --sst2")
    args = parser.parse_args()
    models = results.names(parser, "models", args.models, MODELS)
    if bool(args.sst2) != bool(args.model):
        parser.error("--sst2 and --model go together: give both or neither")
    tables = {"steps": [compare_steps(model, args) for model in models]}
    if args.sst2:
        tables["sentences"] = compare_sentences(args)
    context = [results.packages("jax", "torch", "transformers"), f"{args.threads} threads"]
    results.write(args.out, context, tables)
