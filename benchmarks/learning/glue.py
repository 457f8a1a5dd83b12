# pyright: reportMissingImports=false
"""Scores on GLUE tasks beside transformers' from the same model: the same batches, steps and seeds.

    python -m benchmarks learning.glue --model=MODEL --data=glue --tasks=cola,mrpc,stsb,sst2 --epochs=3

MODEL is a Hugging Face directory. Ours is `bertzoo finetune`; theirs is `AutoModelForSequenceClassification` with
torch's AdamW on the same batches, starting from our head of every seed; each draws its own dropout. The best epoch
counts. Options that are not known here are passed to every run, --TASK.option to one (--sst2.train_rows=6000).
Finished work is kept. Fails if the medians of a score differ by more than the seeds' pooled standard deviation and than
one point. Needs torch and transformers: `make .venv-parity/stamp` installs them.
"""

import json
import math
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.lib import results, tables
from benchmarks.lib.program import finetune, options_of
from bertzoo.tasks.glue import GLUE

SHARED = ["--epochs=3", "--batch_size=16", "--max_length=128", "--optimizer.learning_rate=5e-5"]
# Options that only our side has.
OURS = ("accumulate", "alpha", "hidden", "layer_decay", "patience", "pooler", "reduction", "seed", "select")
POINT = 1.0  # medians may always differ by so much


def row(task: str, examples: int, metric: str, ours: list[float], theirs: list[float]) -> dict[str, Any]:
    """A score over the seeds of both sides, and whether the medians agree."""
    apart = statistics.median(ours) - statistics.median(theirs)
    variances = [statistics.variance(side) for side in (ours, theirs) if len(side) > 1]
    allowed = max(POINT, math.sqrt(statistics.mean(variances)) if variances else 0.0)
    cells = {"task": task, "examples": examples, "score": metric}
    cells |= {"bertzoo": tables.spread(ours, 2), "transformers": tables.spread(theirs, 2)}
    return cells | {"apart": round(apart, 2), "allowed": round(allowed, 2), "met": abs(apart) <= allowed}


def words_of(task: str, data: str, seeds: int, more: Sequence[str]) -> list[str]:
    """The options of a task's runs; options of other tasks are left out."""
    return [f"--task={task}", f"--data_dir={data}", f"--seeds={seeds}", *SHARED, *options_of(task, GLUE, more)]


class TransformersSide:
    """transformers' model on the batches of a run of ours."""

    def __init__(self, words: Sequence[str], model: str):
        from bertzoo.core import config
        from bertzoo.finetuning.run import resolve_task
        from bertzoo.finetuning.seeds import SeedJob
        from bertzoo.finetuning.settings import Finetune
        from bertzoo.finetuning.warm_start import load_starting_model
        from bertzoo.tasks.rows import encode
        from bertzoo.train import sharding

        pairs = [(key, value) for key, _, value in (word.removeprefix("--").partition("=") for word in words)]
        self.recipe = config.load(Finetune, ["finetune"], pairs)
        usual = config.load(Finetune, ["finetune"], [])
        if other := [name for name in OURS if getattr(self.recipe, name) != getattr(usual, name)]:
            sys.exit(f"--{other[0]} does not exist on transformers' side of this comparison: leave it out")
        self.task, self.model = GLUE[self.recipe.task], model
        family = resolve_task(self.recipe)
        start = self.start = load_starting_model(Path(model), self.recipe, family)
        mesh = self.mesh = sharding.make_mesh(sharding.Mesh(data=1), jax.devices()[:1])
        self.batches = SeedJob(family, start, mesh, None)
        self.dev = {split: self.task.read(split, self.recipe.data_dir).examples for split in self.task.dev}
        self.rows = {
            split: encode(examples, start.tokenizer, self.recipe.max_length, self.task.kind)
            for split, examples in self.dev.items()
        }

    def network(self, seed: int) -> Any:
        """Their model with the parameters and the dropout that our run of a seed starts with."""
        import transformers

        from bertzoo.conversion import huggingface
        from bertzoo.conversion.pretrained import Pretrained
        from bertzoo.heads import parameter_shapes
        from bertzoo.train import optim, state

        start, recipe = self.start, self.recipe
        optimizer = optim.build(recipe.optimizer, steps=1)
        fresh = state.fresh(start.objective, optimizer, self.mesh, seed, start.initial)
        shapes = parameter_shapes(start.model, start.head)
        params = {
            name: np.asarray(leaf)[tuple(slice(size) for size in shapes[name])]
            for name, leaf in state.named(fresh.params).items()
        }
        with tempfile.TemporaryDirectory() as folder:
            source = Pretrained(model=start.model, head=start.head, params=params, tokenizer=None, origin=self.model)
            huggingface.write_huggingface(source, Path(folder))
            load = transformers.AutoModelForSequenceClassification.from_pretrained
            network, report = load(folder, output_loading_info=True)
        if any(report[problem] for problem in ("missing_keys", "unexpected_keys", "mismatched_keys")):
            sys.exit(f"transformers does not read all initial parameters: {report}")
        return network

    def scores(self, seed: int) -> list[dict[str, dict[str, float]]]:
        """The scores after every epoch, by split and metric."""
        import torch

        from bertzoo.train import optim

        recipe = self.recipe
        torch.manual_seed(seed)
        network = self.network(seed)
        steps = -(-len(self.batches.train) // recipe.batch_size)
        rate = optim.schedule_of(recipe.optimizer, steps * recipe.epochs)
        parameters = [(name.endswith("bias") or "LayerNorm" in name, p) for name, p in network.named_parameters()]
        groups = [
            {"params": [p for bare, p in parameters if bare == exempt], "weight_decay": decay}
            for exempt, decay in ((False, recipe.optimizer.weight_decay), (True, 0.0))
        ]
        optimizer = torch.optim.AdamW(groups, eps=recipe.optimizer.epsilon)
        scores = []
        for step, batch in zip(range(steps * recipe.epochs), self.batches.batches(seed, 0), strict=False):
            network.train()
            for group in optimizer.param_groups:
                group["lr"] = float(rate(step))
            optimizer.zero_grad()
            real = batch["row_weight"] > 0
            labels = torch.from_numpy(batch["label"][real])
            labels = labels if labels.is_floating_point() else labels.long()
            network(**_inputs(batch, real), labels=labels).loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), recipe.optimizer.clip_norm)
            optimizer.step()
            if (step + 1) % steps == 0:
                scores.append({split: dict(self._scored(network, split)) for split in self.dev})
        return scores

    def _scored(self, network: Any, split: str) -> Iterator[tuple[str, float]]:
        import torch

        from bertzoo.tasks import metrics

        rows, size = self.rows[split], self.recipe.batch_size
        slots, logits = rows.plan(size, range(8, self.recipe.max_length + 8, 8)), []
        network.eval()
        with torch.no_grad():
            for slot in slots:
                batch = rows.batch(slot, size)
                logits.append(network(**_inputs(batch, batch["row_weight"] > 0)).logits.numpy())
        whole = rows.restore(slots, logits)
        predictions = whole[:, 0] * self.recipe.scale if self.task.kind == "regression" else whole.argmax(-1)
        yield from metrics.score(self.task, predictions, [example.label for example in self.dev[split]]).items()


def _inputs(batch: Any, real: np.ndarray) -> dict[str, Any]:
    import torch

    names = ("input_ids", "token_type_ids", "attention_mask")
    return {name: torch.from_numpy(batch[name][real]).long() for name in names}


def theirs(words: Sequence[str], model: str, seeds: int, folder: Path) -> list[dict[str, dict[str, float]]]:
    """The scores of every seed's best epoch; a file for each keeps them, with the options that they are for."""
    side, best = None, []
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(seeds):
        file, options = folder / f"seed-{seed}.json", [word for word in words if not word.startswith("--seeds=")]
        if not file.is_file():
            side = side or TransformersSide(words, model)
            file.write_text(json.dumps({"words": options, "epochs": side.scores(seed)}))
        record = json.loads(file.read_text())
        if record["words"] != options:
            sys.exit(
                f"{file} has the options {' '.join(record['words'])}, not {' '.join(options)}: give another --runs"
            )
        best.append(max(record["epochs"], key=_mean))
    return best


def _mean(scores: dict[str, dict[str, float]]) -> float:
    return statistics.fmean(value for metrics in scores.values() for value in metrics.values())


def compare(task: str, ours: dict[str, Any], theirs: list[dict[str, dict[str, float]]]) -> Iterator[dict[str, Any]]:
    """The rows of a task, one for each metric of each split."""
    for split, scores in ours["median"].items():
        for metric in scores:
            label = metric if len(ours["median"]) == 1 else f"{split} {metric}"
            our_scores = [seed["scores"][split][metric] for seed in ours["seeds"]]
            yield row(task, ours["examples"]["train"], label, our_scores, [seed[split][metric] for seed in theirs])


def main() -> None:
    """Run both sides of every task and write the result."""
    parser = results.parser("glue", __doc__, "runs/glue_beside")
    parser.add_argument("--model", required=True, help="a Hugging Face directory")
    parser.add_argument("--data", required=True, help="the folder of GLUE's folders")
    parser.add_argument("--tasks", default="cola,mrpc,stsb,sst2", help="(default: %(default)s)")
    results.add_numbers(parser, seeds=5)
    args, more = parser.parse_known_args()
    rows, sizes = [], {}
    for task in args.tasks.split(","):
        words = words_of(task, args.data, args.seeds, more)
        ours = finetune([*words, f"--from={args.model}"], args.runs / "ours" / task)
        sizes = ours["model"]
        rows += compare(task, ours, theirs(words, args.model, args.seeds, args.runs / "theirs" / task))
    context = [f"{sizes['kind']}, {sizes['parameters'] / 1e6:.1f} M parameters, {args.seeds} seeds"]
    results.write(args.out, context, {"scores": rows})
