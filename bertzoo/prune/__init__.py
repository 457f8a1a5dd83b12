"""schuBERT (Khetan and Karnin 2020, https://arxiv.org/abs/2005.06628): a trained model and a budget -> a smaller model.

`declare` says what of a model can be cut and which parameters that touches; `fold` multiplies prune vectors into them,
`cut` takes rows and columns out, `choose` says which, and the result is an ordinary config with its parameters.
"""

from bertzoo.prune.choose import choose, uniform
from bertzoo.prune.costs import betas, flops, parameters
from bertzoo.prune.latency import Table, latency
from bertzoo.prune.objective import Chances, Gates, Magnitudes, PruneObjective, proximal
from bertzoo.prune.penalty import HardConcrete, l1, soft_threshold
from bertzoo.prune.shapes import cuttable, resized
from bertzoo.prune.structure import Dimension, Structure, Touch, declare
from bertzoo.prune.surgery import cut, fold

__all__ = [
    "Chances",
    "Dimension",
    "Gates",
    "HardConcrete",
    "Magnitudes",
    "PruneObjective",
    "Structure",
    "Table",
    "Touch",
    "betas",
    "choose",
    "cut",
    "cuttable",
    "declare",
    "flops",
    "fold",
    "l1",
    "latency",
    "parameters",
    "proximal",
    "resized",
    "soft_threshold",
    "uniform",
]
