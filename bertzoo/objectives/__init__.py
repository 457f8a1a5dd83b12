"""Loss terms and metrics of a batch; `train.objective.Objective` is the contract."""

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
    "Replaced",
    "ReplacedObjective",
    "SpanObjective",
    "TaughtObjective",
    "Teacher",
    "teacher",
]
