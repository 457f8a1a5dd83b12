"""A model as a phone runs it: the graph, its rewrites, a file of each format, and the proof that it computes the same.

Other projects' checkpoints and model directories are in `conversion`; how fast a file runs is in `benchmarking`.
"""
