"""Estimate the cost of a run on a TPU slice before renting it: memory, operations, time, the TPU compiler's figures.

This package lowers the training step of `train` for absent devices and reads no run directory.
"""
