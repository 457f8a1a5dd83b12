"""schuBERT (Khetan and Karnin 2020, https://arxiv.org/abs/2005.06628): cut a trained model down to a budget.

`structure.declare` lists the dimensions of the model that can be cut, and the parameter axes of each dimension. A prune
vector holds a trained factor for each element of a dimension; `structure.fold` multiplies it into the parameters.
`costs.choose` selects the elements to keep, and `structure.cut` removes all others. The result is an ordinary, smaller
model.
"""
