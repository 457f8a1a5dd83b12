"""Time models in turns, each in its own process; measure latency tables for pruning; count operations by part.

`export` writes the files; `planning` estimates the cost of training.
"""
