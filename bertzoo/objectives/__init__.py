"""Loss terms and metrics of a batch; `train.objective.Objective` is the contract."""

from bertzoo.objectives.masked import Masked, MaskedObjective
from bertzoo.objectives.replaced import Replaced, ReplacedObjective
from bertzoo.objectives.span import JointSpanObjective, SpanObjective
from bertzoo.objectives.transfer import PROJECTIONS, Knowledge, Teacher, TransferObjective, build_teacher
