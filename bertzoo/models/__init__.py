"""One short file per paper: its config and its wiring; `Model` is the union that [model] selects by `kind`.

Every model config offers `backbone(compute) -> Backbone` and `masked_head(compute)`; `pretraining` puts them together.
"""

from bertzoo.models.bert import Bert
from bertzoo.models.compute import Compute
from bertzoo.models.parts import Backbone, Pretraining, PretrainingOutput, pretraining
from bertzoo.models.squeezebert import SqueezeBert

Model = Bert | SqueezeBert

__all__ = ["Backbone", "Bert", "Compute", "Model", "Pretraining", "PretrainingOutput", "SqueezeBert", "pretraining"]
