"""Time models in turns, each in its own process; measure latency tables for pruning; count FLOPs by component.

`export` converts models to files; `planning` estimates the cost of training.
"""
