"""Training objectives: loss terms and metrics of a batch, with the interface of `train.objective.Objective`."""

from bertzoo.objectives.masked import Masked, MaskedObjective
from bertzoo.objectives.replaced import Replaced, ReplacedObjective
from bertzoo.objectives.span import JointSpanObjective, SpanObjective
from bertzoo.objectives.transfer import PROJECTIONS, Knowledge, Teacher, TransferObjective, build_teacher
