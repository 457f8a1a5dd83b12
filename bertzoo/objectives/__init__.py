"""Loss terms and metrics of a batch; the contract is `Objective`."""

from bertzoo.objectives.base import Metrics, Objective, Sums
from bertzoo.objectives.masked import Masked, MaskedObjective
from bertzoo.objectives.replaced import Replaced, ReplacedObjective

__all__ = ["Masked", "MaskedObjective", "Metrics", "Objective", "Replaced", "ReplacedObjective", "Sums"]
