"""Models as phones run them: the graph, its rewrites, a file of each format, and the checks of each file.

Other projects' checkpoints and model directories are in `conversion`; how fast a file runs is in `benchmarking`.
"""
