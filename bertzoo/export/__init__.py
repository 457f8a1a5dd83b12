"""Export models to files for phones: build a graph for inference, rewrite it, write a file, compare it with the model.

`conversion` reads and writes model directories and other projects' checkpoints; `benchmarking` measures speed.
"""
