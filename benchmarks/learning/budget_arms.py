"""The models that budget.py trains, and how they are fine-tuned."""

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "configs" / "learning"
COMMON = str(FOLDER / "common.toml")
# Few buckets, as compiling takes as long as training; most rows for the task whose score they move.
TUNED = ("--seeds=3", "--batch_size=32", "--optimizer.learning_rate=1e-3")
TUNED_TASKS = {
    "cola": ("--max_length=64", "--buckets=1", "--epochs=2", "--train_rows=1000"),
    "mrpc": ("--max_length=96", "--buckets=1", "--epochs=2", "--train_rows=1000"),
    "stsb": ("--max_length=96", "--buckets=1", "--epochs=3", "--train_rows=1000"),
    "sst2": ("--max_length=64", "--buckets=2", "--epochs=3", "--train_rows=6000"),
}


@dataclass(frozen=True)
class Arm:
    """A model to train: config files, options, the arm that is its teacher, and whether it is fine-tuned."""

    name: str
    title: str
    configs: tuple[str, ...]
    options: tuple[str, ...] = ()
    teacher: str = ""
    tuned: bool = True


def _small(name: str, title: str, *options: str, file: str = "", teacher: str = "", tuned: bool = True) -> Arm:
    return Arm(name, title, (COMMON, str(FOLDER / f"{file or name}.toml")), options, teacher, tuned)


UNTRAINED = ("--optimizer.learning_rate=0", "--stages.*.steps=1")
ARMS = (  # longest run first
    _small("squeezebert", "SqueezeBERT"),
    _small("ib_bert", "IB-BERT, the teacher", tuned=False),
    _small("bert", "BERT"),
    _small("electra", "ELECTRA"),
    _small("convbert", "ConvBERT"),
    _small("mobilebert", "MobileBERT, bare"),
    _small("mobilebert_transfer", "MobileBERT, taught", teacher="ib_bert"),
    _small("untrained", "BERT, not pretrained", *UNTRAINED, file="bert"),
)
