"""Training objectives, which compute loss terms and metrics of a batch, as `train.step.Objective` defines."""

from bertzoo.objectives.masked import Masked, MaskedObjective
from bertzoo.objectives.replaced import Replaced, ReplacedObjective
from bertzoo.objectives.transfer import PROJECTIONS, Knowledge, Teacher, TransferObjective, build_teacher

TextLoss = Masked | Replaced  # the configs of the losses that learn from plain text
