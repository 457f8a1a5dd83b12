"""Convert other projects' checkpoints to bertzoo's parameters and back, by rules for each architecture.

Formats: Hugging Face, TensorFlow 1 (read only), and bertzoo's PyTorch module (write only). The package `runs` reads
bertzoo's checkpoints, and `export` chooses the format to write.
"""
