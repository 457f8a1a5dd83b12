"""schuBERT (Khetan and Karnin 2020, https://arxiv.org/abs/2005.06628): cut a trained model down to a budget.

`structure.declare` lists the dimensions that can be cut, and the parameter axes of each. `surgery.fold` multiplies
prune vectors (a trained factor per element) into the parameters. `choose` selects the elements that stay, and
`surgery.cut` removes the others; the result is an ordinary config with its parameters.
"""
