"""Loss terms and metrics of a batch; the contract is `Objective`."""

from bertzoo.objectives.base import Metrics, Objective, Sums
from bertzoo.objectives.knowledge import Knowledge
from bertzoo.objectives.masked import Masked, MaskedObjective
from bertzoo.objectives.replaced import Replaced, ReplacedObjective
from bertzoo.objectives.span import JointSpanObjective, SpanObjective
from bertzoo.objectives.taught import PROJECTIONS, TaughtObjective, Teacher, teacher

__all__ = [
    "PROJECTIONS",
    "JointSpanObjective",
    "Knowledge",
    "Masked",
    "MaskedObjective",
    "Metrics",
    "Objective",
    "Replaced",
    "ReplacedObjective",
    "SpanObjective",
    "Sums",
    "TaughtObjective",
    "Teacher",
    "teacher",
]
