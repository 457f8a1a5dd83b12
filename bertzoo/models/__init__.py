"""Model configs, one module per paper; `kind` in the [model] table of a TOML file selects a class of the union `Model`.

Every model config has the methods `backbone(compute) -> Backbone` and `masked_head(compute)`, which build Flax modules.
`pretraining` joins these modules to a model. `replaced_detection` builds a discriminator and a generator. The generator
is ELECTRA's, unless the model config has a method `generator(width)`, which returns the config of the generator.
"""

from bertzoo.models.albert import Albert
from bertzoo.models.bert import Bert
from bertzoo.models.compute import Compute
from bertzoo.models.convbert import ConvBert
from bertzoo.models.distilbert import DistilBert
from bertzoo.models.electra import Electra
from bertzoo.models.mobilebert import MobileBert
from bertzoo.models.modernbert import ModernBert
from bertzoo.models.parts import Backbone, Pretraining, PretrainingOutput, pretraining
from bertzoo.models.replaced import ReplacedDetection, replaced_detection
from bertzoo.models.schubert import SchuBert
from bertzoo.models.squeezebert import SqueezeBert
from bertzoo.models.static import Static

Model = Albert | Bert | ConvBert | DistilBert | Electra | MobileBert | ModernBert | SchuBert | SqueezeBert | Static
