"""schuBERT (Khetan and Karnin 2020, https://arxiv.org/abs/2005.06628): a trained model and a budget -> a smaller model.

`declare` says what of a model can be cut and which parameters that touches; `fold` multiplies prune vectors into them,
`cut` takes rows and columns out, `choose` says which, and the result is an ordinary config with its parameters.
"""

from bertzoo.pruning.choose import choose, uniform
from bertzoo.pruning.costs import betas, flops, parameters
from bertzoo.pruning.latency import Table, latency
from bertzoo.pruning.objective import Chances, Gates, Magnitudes, PruneObjective, proximal
from bertzoo.pruning.penalty import HardConcrete, l1, soft_threshold
from bertzoo.pruning.shapes import cuttable, resized
from bertzoo.pruning.structure import Dimension, Structure, Touch, declare
from bertzoo.pruning.surgery import cut, fold

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
