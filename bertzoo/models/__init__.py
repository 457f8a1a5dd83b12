"""Configs that build Flax models, a file per paper; `kind` in a config's [model] table selects one of `Model`.

Every model config has `backbone(compute) -> Backbone` and `masked_head(compute)`. `pretraining` builds a model from
both. `replaced_detection` also builds a generator: ELECTRA's or, if the model config has a method
`generator(width)`, a generator with the config that the method returns.
"""

from bertzoo.models.albert import Albert
from bertzoo.models.bert import Bert
from bertzoo.models.compute import Compute
from bertzoo.models.convbert import ConvBert
from bertzoo.models.distilbert import DistilBert
from bertzoo.models.electra import Electra
from bertzoo.models.mobilebert import MobileBert
from bertzoo.models.parts import Backbone, Pretraining, PretrainingOutput, pretraining
from bertzoo.models.replaced import ReplacedDetection, replaced_detection
from bertzoo.models.schubert import SchuBert
from bertzoo.models.squeezebert import SqueezeBert

Model = Albert | Bert | ConvBert | DistilBert | Electra | MobileBert | SchuBert | SqueezeBert
