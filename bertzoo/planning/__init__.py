"""Cost of a run on a TPU slice before renting it: memory, operations, time, the TPU compiler's figures.

It lowers the step of `train` for devices that are not there and reads no run directory.
"""
