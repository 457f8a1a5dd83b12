"""What learning.py trains, and how it is fine-tuned."""

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "configs" / "learning"
COMMON = str(FOLDER / "common.toml")
# Few buckets, as compiling takes as long as learning; most rows for the task whose score they move.
TUNED = ("--seeds=3", "--batch_size=32", "--optimizer.learning_rate=1e-3")
TUNED_TASKS = {
    "cola": ("--max_length=64", "--buckets=1", "--epochs=2", "--train_rows=1000"),
    "mrpc": ("--max_length=96", "--buckets=1", "--epochs=2", "--train_rows=1000"),
    "stsb": ("--max_length=96", "--buckets=1", "--epochs=3", "--train_rows=1000"),
    "sst2": ("--max_length=64", "--buckets=2", "--epochs=3", "--train_rows=6000"),
}


@dataclass(frozen=True)
class Arm:
    """A model that is trained: its config files, options, the arm that teaches it, and whether it is fine-tuned."""

    name: str
    title: str
    configs: tuple[str, ...]
    options: tuple[str, ...] = ()
    teacher: str = ""
    tuned: bool = True

    @property
    def verb(self) -> str:
        return "transfer" if self.teacher else "pretrain"


def _small(name: str, title: str, *options: str, file: str = "", teacher: str = "", tuned: bool = True) -> Arm:
    return Arm(name, title, (COMMON, str(FOLDER / f"{file or name}.toml")), options, teacher, tuned)


UNTRAINED = _small(
    "untrained", "BERT, not pretrained", "--optimizer.learning_rate=0", "--stages.*.steps=1", file="bert"
)
ARMS = (  # the longest first
    _small("squeezebert", "SqueezeBERT"),
    _small("ib_bert", "IB-BERT, the teacher", tuned=False),
    _small("bert", "BERT"),
    _small("electra", "ELECTRA"),
    _small("convbert", "ConvBERT"),
    _small("mobilebert", "MobileBERT, bare"),
    _small("mobilebert_transfer", "MobileBERT, taught", teacher="ib_bert"),
    UNTRAINED,
)
PAPER = tuple(
    Arm(f"{name}_small", f"{title}-small", (f"{name}_small",))
    for name, title in {"bert": "BERT", "electra": "ELECTRA", "convbert": "ConvBERT"}.items()
)
# ELECTRA's fine-tuning of its small models, which ConvBERT's is too (docs/finetune.md).
PAPER_TUNED = (
    *("--seeds=3", "--layer_decay=0.8", "--reduction=sum", "--compute.dtype=bfloat16", "--optimizer.kind=bert_adam"),
    *(
        "--optimizer.learning_rate=3e-4",
        "--optimizer.schedule.warmup=multiply",
        "--optimizer.schedule.decay_from=start",
    ),
)
PAPER_TASKS = {"mrpc": ("--double_unordered=true",), "stsb": ("--double_unordered=true", "--scale=5", "--epochs=10")}
