"""Convert other projects' checkpoints to our parameters and back; one table per architecture serves both directions.

Formats: Hugging Face, TensorFlow 1 (read only), and our own PyTorch module (write only). `runs` reads runs, and
`export` chooses among formats.
"""
