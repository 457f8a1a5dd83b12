"""How fast models run, each in a process of its own, timed in turns; latency tables for pruning; operations by part.

Files are written by `export`; the cost of training is estimated by `planning`.
"""
