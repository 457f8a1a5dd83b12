"""Export models to files for phones: build and rewrite the graph, write a file, check it.

`conversion` reads and writes model directories and other projects' checkpoints; `benchmarking` measures speed.
"""
