"""Estimate the cost of a run on a TPU slice before renting it: memory, operations, time, the TPU compiler's results.

The package lowers the training step of `train` for devices that this machine lacks, and reads no run directory.
"""
