# pyright: reportMissingImports=false
"""Scores on tasks of GLUE beside transformers' from the same model: the same batches, steps and seeds.

    python benchmarks/glue.py --model=MODEL --data=glue --tasks=cola,mrpc,stsb,sst2 --epochs=3

MODEL is a Hugging Face directory. Ours is `bertzoo finetune`; theirs is `AutoModelForSequenceClassification` with
torch's AdamW on the batches that ours learns, begun with ours' head of every seed; dropout draws its own. Of either the
best epoch counts. Options that are not known here are those of every run, --TASK.option those of one
(--sst2.train_rows=6000).
What is done already is not done again; the section in docs/results.md is then written anew. Fails where the medians of
a score are further apart than the seeds' pooled standard deviation and than one point. Needs torch and transformers:
`make .venv-parity/stamp` makes an environment that has them.
"""

import argparse
import dataclasses
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from pages import write_section

from bertzoo.tasks.glue import GLUE

SHARED = ["--epochs=3", "--batch_size=16", "--max_length=128", "--optimizer.learning_rate=5e-5"]
# Options whose meaning is given to our side alone.
OURS = ("accumulate", "alpha", "hidden", "layer_decay", "patience", "pooler", "reduction", "seed", "select")
POINT = 1.0  # two medians may always be so far apart


@dataclasses.dataclass(frozen=True)
class Score:
    """One score of a task under every seed, ours and theirs."""

    task: str
    examples: int
    name: str
    ours: list[float]
    theirs: list[float]

    @property
    def apart(self) -> float:
        """The difference of the medians."""
        return statistics.median(self.ours) - statistics.median(self.theirs)

    @property
    def allowed(self) -> float:
        """The pooled standard deviation, or a point where that is more."""
        several = [statistics.variance(each) for each in (self.ours, self.theirs) if len(each) > 1]
        return max(POINT, math.sqrt(statistics.mean(several)) if several else 0.0)

    @property
    def row(self) -> str:
        """Of the table."""
        sides = [f"{statistics.median(s):.2f} ({min(s):.2f} to {max(s):.2f})" for s in (self.ours, self.theirs)]
        cells = [self.task, f"{self.examples:,}", self.name, *sides, f"{self.apart:+.2f}", f"{self.allowed:.2f}"]
        return f"| {' | '.join(cells)} |"


def words_of(task: str, data: str, seeds: int, more: Sequence[str]) -> list[str]:
    """The options of the runs of a task, whatever tasks the others' are for."""
    own = [word.replace(f"--{task}.", "--", 1) for word in more if word.startswith(f"--{task}.")]
    everywhere = [word for word in more if not any(word.startswith(f"--{other}.") for other in GLUE)]
    return [f"--task={task}", f"--data_dir={data}", f"--seeds={seeds}", *SHARED, *everywhere, *own]


def ours(words: Sequence[str], model: str, run: Path) -> dict[str, Any]:
    """What `bertzoo finetune` came to."""
    command = [sys.executable, "-m", "bertzoo", "finetune", "finetune", *words, f"--from={model}", f"--run_dir={run}"]
    subprocess.run(command, check=True)
    return json.loads((run / "results.json").read_text(encoding="utf-8"))


class Theirs:
    """transformers' model on the batches of a run of ours."""

    def __init__(self, words: Sequence[str], model: str):
        from bertzoo.core import config
        from bertzoo.finetuning.families import family_of
        from bertzoo.finetuning.settings import Finetune
        from bertzoo.finetuning.warm_start import begin
        from bertzoo.models.parts import padding_seen
        from bertzoo.tasks.encode import encode
        from bertzoo.train import sharding

        pairs = [(key, value) for key, _, value in (word.removeprefix("--").partition("=") for word in words)]
        self.recipe = config.load(Finetune, ["finetune"], pairs)
        usual = config.load(Finetune, ["finetune"], [])
        if other := [name for name in OURS if getattr(self.recipe, name) != getattr(usual, name)]:
            sys.exit(
                f"--{other[0]} is an option that transformers' side of this comparison does not have: leave it out"
            )
        self.task, self.model = GLUE[self.recipe.task], model
        family = family_of(self.recipe)
        begun = self.begun = begin(Path(model), self.recipe, family)
        mesh = self.mesh = sharding.make_mesh(sharding.Mesh(data=1), jax.devices()[:1])
        self.lessons = family.lessons(begun.objective, begun.tokenizer, padding_seen(begun.model), mesh, None, print)
        self.dev = {split: self.task.read(split, self.recipe.data_dir).examples for split in self.task.dev}
        self.rows = {
            split: encode(examples, begun.tokenizer, self.recipe.max_length, self.task.kind)
            for split, examples in self.dev.items()
        }

    def network(self, seed: int) -> Any:
        """Theirs with the parameters and the dropout that our run of a seed begins with."""
        import transformers

        from bertzoo.conversion import huggingface
        from bertzoo.conversion.pretrained import Pretrained
        from bertzoo.models.tasks import parameter_shapes
        from bertzoo.train import optim, state

        begun, recipe = self.begun, self.recipe
        fresh = state.fresh(
            begun.objective,
            optim.build(recipe.optimizer, steps=1),
            self.mesh,
            seed,
            begun.initial,
            recipe.mesh.fallbacks,
        )
        shapes = parameter_shapes(begun.model, begun.head)
        params = {
            name: np.asarray(leaf)[tuple(slice(size) for size in shapes[name])]
            for name, leaf in state.named(fresh.params).items()
        }
        with tempfile.TemporaryDirectory() as folder:
            source = Pretrained(model=begun.model, head=begun.head, params=params, tokenizer=None, origin=self.model)
            huggingface.write_huggingface(source, Path(folder))
            network, said = transformers.AutoModelForSequenceClassification.from_pretrained(
                folder, output_loading_info=True
            )
        if any(said[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys")):
            sys.exit(f"transformers does not read all that a run begins with: {said}")
        return network

    def scores(self, seed: int) -> list[dict[str, dict[str, float]]]:
        """After every epoch."""
        import torch

        from bertzoo.train import optim

        recipe = self.recipe
        torch.manual_seed(seed)
        network = self.network(seed)
        steps = -(-self.lessons.rows // recipe.batch_size)
        rate = optim.schedule_of(recipe.optimizer, steps * recipe.epochs)
        parts = [(name.endswith("bias") or "LayerNorm" in name, p) for name, p in network.named_parameters()]
        optimizer = torch.optim.AdamW(
            [
                {"params": [p for bare, p in parts if not bare], "weight_decay": recipe.optimizer.weight_decay},
                {"params": [p for bare, p in parts if bare], "weight_decay": 0.0},
            ],
            eps=recipe.optimizer.epsilon,
        )
        found = []
        for step, batch in zip(range(steps * recipe.epochs), self.lessons.batches(seed, 0), strict=False):
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
                found.append({split: dict(self._scored(network, split)) for split in self.dev})
        return found

    def _scored(self, network: Any, split: str) -> Iterator[tuple[str, float]]:
        import torch

        from bertzoo.tasks import metrics

        rows, size = self.rows[split], self.recipe.batch_size
        slots, said = rows.plan(size, range(8, self.recipe.max_length + 8, 8)), []
        network.eval()
        with torch.no_grad():
            for slot in slots:
                batch = rows.batch(slot, size)
                said.append(network(**_inputs(batch, batch["row_weight"] > 0)).logits.numpy())
        whole = rows.restore(slots, said)
        predictions = whole[:, 0] * self.recipe.scale if self.task.kind == "regression" else whole.argmax(-1)
        yield from metrics.score(self.task, predictions, [example.label for example in self.dev[split]]).items()


def _inputs(batch: Any, real: np.ndarray) -> dict[str, Any]:
    import torch

    names = ("input_ids", "token_type_ids", "attention_mask")
    return {name: torch.from_numpy(batch[name][real]).long() for name in names}


def theirs(words: Sequence[str], model: str, seeds: int, folder: Path) -> list[dict[str, dict[str, float]]]:
    """The scores of every seed's best epoch; each is kept in a file, with the options that it is of."""
    made, chosen = None, []
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(seeds):
        file, said = folder / f"seed-{seed}.json", [word for word in words if not word.startswith("--seeds=")]
        if not file.is_file():
            made = made or Theirs(words, model)
            file.write_text(json.dumps({"words": said, "epochs": made.scores(seed)}))
        kept = json.loads(file.read_text())
        if kept["words"] != said:
            sys.exit(f"{file} is of other options: {' '.join(kept['words'])}; name other --runs")
        chosen.append(max(kept["epochs"], key=_mean))
    return chosen


def _mean(scores: dict[str, dict[str, float]]) -> float:
    return statistics.fmean(value for each in scores.values() for value in each.values())


def compared(task: str, mine: dict[str, Any], other: list[dict[str, dict[str, float]]]) -> Iterator[Score]:
    """The scores of a task, of every split that it is judged by."""
    for split, scores in mine["median"].items():
        for name in scores:
            called = name if len(mine["median"]) == 1 else f"{split} {name}"
            each = [seed["scores"][split][name] for seed in mine["seeds"]]
            yield Score(task, mine["examples"]["train"], called, each, [seed[split][name] for seed in other])


def section(scores: Sequence[Score], sizes: dict[str, Any], model: str, seeds: int, more: Sequence[str]) -> str:
    """Markdown; sizes: the model's, of a run's results."""
    rows = "\n".join(score.row for score in scores)
    tasks = ",".join(dict.fromkeys(score.task for score in scores))
    dropped = not {"--dropout=0", "--encoder_dropout=0"} <= set(more)
    drawn = "Each draws its own dropout" if dropped else "There is no dropout, which each would draw in its own way"
    return f"""## GLUE beside transformers

{sizes["kind"]}, {sizes["parameters"] / 1e6:.1f} M parameters, fine-tuned by bertzoo and by transformers on the same
batches, from the same head of each of {seeds} seeds. {drawn}.
On the development sets the median of the seeds' best epochs, with the least and the greatest. The medians may be as far
apart as the pooled standard deviation of the seeds, or a point. Examples are those that were learnt; where a task has
more, they were drawn, the same for both.

| task | examples | score | bertzoo | transformers | apart | allowed |
|---|---|---|---|---|---|---|
{rows}

```bash
python benchmarks/glue.py --model={Path(model).name} --data=glue --tasks={tasks} --seeds={seeds} {" ".join(more)}
```"""


def main() -> None:
    """Run both sides of every task, write the section, and fail where they are too far apart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a Hugging Face directory")
    parser.add_argument("--data", required=True, help="the folder of GLUE's folders")
    parser.add_argument("--tasks", default="cola,mrpc,stsb,sst2", type=lambda text: text.split(","))
    parser.add_argument("--seeds", type=int, default=5, help="of either side (default: 5)")
    parser.add_argument("--runs", type=Path, default=Path("runs/glue_beside"), help="where the runs are kept")
    args, more = parser.parse_known_args()
    scores, mine = list[Score](), dict[str, Any]()
    for task in args.tasks:
        words = words_of(task, args.data, args.seeds, more)
        mine = ours(words, args.model, args.runs / "ours" / task)
        scores += compared(task, mine, theirs(words, args.model, args.seeds, args.runs / "theirs" / task))
    write_section(Path(__file__).name, section(scores, mine["model"], args.model, args.seeds, more))
    if far := [score for score in scores if abs(score.apart) > score.allowed]:
        sys.exit("; ".join(f"{one.task} {one.name}: {one.apart:+.2f}, allowed {one.allowed:.2f}" for one in far))


if __name__ == "__main__":
    main()
