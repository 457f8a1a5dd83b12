"""Export models to files for phones: build and rewrite a graph, write a file, compare the file with the model.

The package `conversion` reads and writes model directories and other projects' checkpoints; `benchmarking` measures
speed.
"""
