"""The models that budget.py trains, the FLOPs of each, and how they are fine-tuned."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertzoo.core import config, kinds
from bertzoo.pruning.settings import Prune
from bertzoo.runs.experiments import build_experiment

FOLDER = Path(__file__).parents[2] / "configs" / "learning"
TERA = 1e12
STEPS = {"transfer": "transfer.steps", "prune": "weigh.steps"}  # the key of the steps before the list of stages
STAGES = {"pretrain": "stages", "transfer": "distillation", "prune": "tuning"}
LENGTHS = (16, 96)  # tokens in a row, by stage
MUON_RATE, LAMB_RATE = 3e-3, 1e-2
SHARE_BEFORE_PRUNING = 0.75  # of schuBERT's budget, for the BERT that it is cut from
TUNING = ("--batch_size=32", "--optimizer.learning_rate=1e-3", "--log_every=1000")
TUNING_BY_TASK = {
    "cola": ("--max_length=48", "--buckets=2", "--epochs=3", "--train_rows=3000"),
    "mrpc": ("--max_length=96", "--buckets=2", "--epochs=2", "--train_rows=1500"),
    "stsb": ("--max_length=80", "--buckets=2", "--epochs=3", "--train_rows=2000"),
    "sst2": ("--max_length=64", "--buckets=3", "--epochs=2", "--train_rows=6000"),
}


@dataclass(frozen=True)
class Arm:
    """A model to train.

    file: its config in configs/learning, or the path of a .toml. share: of the budget; 0 leaves the parameters as they
    were drawn. source: the arm that is its teacher, or that it is pruned from. tasks: those it is fine-tuned on.
    """

    name: str
    title: str
    file: str
    verb: str = "pretrain"
    share: float = 1.0
    source: str = ""
    options: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()

    @property
    def configs(self) -> list[str]:
        if self.file.endswith(".toml"):  # somebody's own, complete
            return [self.file]
        return [str(FOLDER / "common.toml"), str(FOLDER / f"{self.file}.toml")]

    @property
    def is_trained(self) -> bool:
        return self.share > 0

    def recipe(self, options: Sequence[str] = ()) -> Any:
        """The arm's config with more options."""
        files = [Path(path) for path in self.configs]
        words = [word.removeprefix("--").partition("=") for word in (*self.options, *options)]
        recipe = Prune if self.verb == "prune" else kinds.config_class(files[-1])
        return config.load(recipe, files, [(key, value) for key, _, value in words])

    def steps(self, tflops: float) -> list[str]:
        """Options that give every stage its share of a budget in training TFLOPs."""
        if not self.is_trained:
            return ["--optimizer.learning_rate=0", *(f"--stages.{k}.steps=1" for k in range(len(self.recipe().stages)))]
        recipe = self.recipe()
        factor = tflops * TERA * self.share / sum(steps * flops for steps, flops in flops_by_stage(recipe))
        table, before = STAGES[self.verb], STEPS.get(self.verb)
        counts = {f"{table}.{k}.steps": stage.steps for k, stage in enumerate(getattr(recipe, table))}
        if before:
            counts[before] = getattr(recipe, before.partition(".")[0]).steps
        return [f"--{key}={max(1, round(count * factor))}" for key, count in counts.items()]


def flops_by_stage(recipe: Any) -> list[tuple[int, int]]:
    """Steps of every stage, and training FLOPs of a step; a pruning run's are those of the model before its cuts."""
    if not isinstance(recipe, Prune):
        flops = _row_flops(recipe)
    else:
        parts = recipe.scoring_recipe(recipe.model), recipe.tuning_recipe(recipe.model)
        flops = [count for part in parts for count in _row_flops(part)] * recipe.cut.iterations
    return [(stage.steps, row * stage.batch_size) for stage, row in zip(recipe.stages, flops, strict=True)]


def _row_flops(recipe: Any) -> list[int]:
    built = build_experiment(recipe)
    return [built.flops(index) for index in range(len(recipe.stages))]


def _choice(name: str, title: str, *options: str) -> Arm:
    """A BERT trained as common.toml says, except for one choice."""
    return Arm(f"choice_{name}", title, "bert", options=options, tasks=("sst2",))


def _masking(*shares: float | tuple[float, float]) -> tuple[str, ...]:
    """Options for the masked shares of the stages, and for as many predictions as the largest needs."""
    per_stage = shares * len(LENGTHS) if len(shares) == 1 else shares
    options = []
    for stage, (share, length) in enumerate(zip(per_stage, LENGTHS, strict=True)):
        first = max(share) if isinstance(share, tuple) else share
        value = f"[{share[0]}, {share[1]}]" if isinstance(share, tuple) else share
        options += [
            f"--stages.{stage}.masking_share={value}",
            f"--stages.{stage}.max_predictions={round(first * length)}",
        ]
    return tuple(options)


def _optimizer(name: str, rate: float) -> tuple[str, ...]:
    """Options for an optimiser that replaces the one of common.toml, with the same schedule."""
    return tuple(f"--optimizer.{key}" for key in (f"kind={name}", f"learning_rate={rate}", "schedule.warmup_share=0.1"))


def _modern(name: str, title: str, *fields: str) -> Arm:
    """A model of ModernBERT's layers with one paper's idea."""
    options = tuple(f"--model.{field}" for field in fields)
    return Arm(f"modern_{name}", f"ModernBERT's layers, {title}", "modern", options=options, tasks=GLUE)


GLUE = tuple(TUNING_BY_TASK)
MODELS = (
    Arm("bert", "BERT", "bert", tasks=GLUE),
    Arm("squeezebert", "SqueezeBERT", "squeezebert", tasks=GLUE),
    Arm("ib_bert", "IB-BERT, the teacher", "ib_bert"),
    Arm("mobilebert", "MobileBERT, bare", "mobilebert", tasks=GLUE),
    Arm("mobilebert_transfer", "MobileBERT, taught", "mobilebert_transfer", "transfer", source="ib_bert", tasks=GLUE),
    Arm("convbert", "ConvBERT", "convbert", tasks=GLUE),
    Arm("electra", "ELECTRA", "electra", tasks=GLUE),
    Arm("bert_to_prune", "BERT, to be pruned", "bert", share=SHARE_BEFORE_PRUNING),
    Arm("schubert", "schuBERT", "schubert", "prune", 1 - SHARE_BEFORE_PRUNING, "bert_to_prune", tasks=GLUE),
)
MODERN = (  # entries of learning.hour, with 0.92 to 1.07 times the latency of the first one in LiteRT at 96 tokens
    Arm("modern", "ModernBERT's layers", "modern", tasks=GLUE),
    _modern(
        "grouped",
        "groups",
        "hidden_size=192",
        "feed_forward_size=512",
        "feed_forward_groups=4",
        "attention.kind=grouped",
    ),
    _modern("bottleneck", "bottlenecks", "hidden_size=192", "bottleneck_size=96", "feed_forward_size=384"),
    _modern("mixed", "convolution heads", "feed_forward_size=400", "attention.kind=mixed"),
    _modern(
        "both",
        "groups and convolution heads",
        "hidden_size=160",
        "feed_forward_size=512",
        "feed_forward_groups=4",
        "attention.kind=mixed",
    ),
    _modern("uneven", "uneven layers", "feed_forward_size=[512,384,288,192]"),
    Arm("mixture", "Our mixture", "mixture", tasks=GLUE),
)
UNTRAINED = tuple(
    Arm(f"untrained_{file}", f"{title}, not pretrained", file, share=0, tasks=GLUE)
    for file, title in (
        ("bert", "BERT"),
        ("squeezebert", "SqueezeBERT"),
        ("mobilebert", "MobileBERT"),
        ("convbert", "ConvBERT"),
        ("electra", "ELECTRA"),
    )
)
CHOICES = (
    replace(MODELS[0], title="25 % masked, AdamW, linear decay", tasks=("sst2",)),  # learning.budget's run
    _choice("mask15", "15 % masked", *_masking(0.15)),
    _choice("mask20", "20 % masked", *_masking(0.2)),
    _choice("mask30", "30 % masked", *_masking(0.3)),
    _choice("mask40", "40 % masked", *_masking(0.4)),
    _choice("falling", "30 % falling to 15 % masked", *_masking((0.3, 0.25), (0.25, 0.15))),
    _choice("wsd", "warm-up, stable, decay", "--optimizer.schedule.kind=wsd"),
    _choice("muon", "Muon", *_optimizer("muon", MUON_RATE)),
    _choice("lamb", "LAMB", *_optimizer("lamb", LAMB_RATE)),
)
BASELINE = {  # an arm's name -> the same model without pretraining; schuBERT's shape is not known before it is pruned
    **{arm.name: f"untrained_{arm.file}" for arm in MODELS if arm.verb == "pretrain" and arm.tasks},
    "mobilebert_transfer": "untrained_mobilebert",
    "schubert": "untrained_bert",
}
