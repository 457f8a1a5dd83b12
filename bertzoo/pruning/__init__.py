"""schuBERT (Khetan and Karnin 2020, https://arxiv.org/abs/2005.06628): a trained model and a budget -> a smaller model.

`structure.declare` lists the dimensions that can be cut and the parameters that each touches. `surgery.fold` multiplies
prune vectors into the parameters, `choose` selects the elements that stay, and `surgery.cut` removes the others; the
result is an ordinary config with its parameters.
"""
