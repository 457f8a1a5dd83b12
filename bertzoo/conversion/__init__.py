"""Other projects' checkpoints under our names and back: one table per architecture, used in both directions.

Hugging Face, TensorFlow 1 and a PyTorch module of its own. Reading runs and choosing among formats is above, in `runs`
and `export`.
"""
