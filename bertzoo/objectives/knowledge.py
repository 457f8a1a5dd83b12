"""What passes from a teacher to a student, as numbers of a config."""

from dataclasses import dataclass
from typing import Literal

from bertzoo.core.errors import ConfigError

DISCREPANCIES = ("feature", "mean", "variance", "attention")


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """The weights of the discrepancies between layers, and what of distillation and copying there is.

    feature, mean, variance, attention: the authors' weights (run_pretraining.py); 0 leaves one out. pads: whether
    padding counts in them, as in the authors' code. ground_truth: the share of the true token in the labels of the
    masked language model, the rest being the teacher's distribution (the paper's α, §3.3); 1 does without the teacher.
    layers: the teacher's layer, counted from 1, that each of the student's learns from; needed where the numbers of
    layers differ. copy: start with the teacher's embedding and heads where they are of one kind and shape.
    dropout: whether the student has any while it is taught. dtype: of the teacher's parameters and computations.
    """

    feature: float = 100.0
    mean: float = 5000.0
    variance: float = 5.0
    attention: float = 1.0
    pads: bool = False
    ground_truth: float = 0.5
    layers: tuple[int, ...] = ()
    copy: bool = True
    dropout: bool = False
    dtype: Literal["float32", "bfloat16"] = "bfloat16"

    def __post_init__(self):
        for name in DISCREPANCIES:
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"{name} = {getattr(self, name)} is not a finite number of at least 0")
        if not 0 <= self.ground_truth <= 1:
            raise ConfigError(f"ground_truth = {self.ground_truth} is not a share between 0 and 1")

    @property
    def weights(self) -> dict[str, float]:
        """The discrepancies that count."""
        return {name: getattr(self, name) for name in DISCREPANCIES if getattr(self, name)}
