"""schuBERT (Khetan and Karnin 2020, https://arxiv.org/abs/2005.06628): a trained model and a budget -> a smaller model.

`declare` says what of a model can be cut and which parameters that touches."""

from bertzoo.prune.shapes import cuttable, resized
from bertzoo.prune.structure import Dimension, Structure, Touch, declare

__all__ = ["Dimension", "Structure", "Touch", "cuttable", "declare", "resized"]
