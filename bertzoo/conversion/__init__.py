"""Convert other projects' checkpoints to our parameters and back, by rules for each architecture.

Formats: Hugging Face, TensorFlow 1 (read only), and our own PyTorch module (write only). The package `runs` reads
bertzoo's own checkpoints, and `export` chooses the format to write.
"""
