"""One short file per paper: its config and its wiring; `Model` is the union that [model] selects by `kind`.

Every model config offers `pretraining(compute, sentence) -> Pretraining`.
"""

from bertzoo.models.bert import Bert
from bertzoo.models.compute import Compute
from bertzoo.models.parts import Pretraining, PretrainingOutput
from bertzoo.models.squeezebert import SqueezeBert

Model = Bert | SqueezeBert

__all__ = ["Bert", "Compute", "Model", "Pretraining", "PretrainingOutput", "SqueezeBert"]
