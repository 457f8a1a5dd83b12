"""What a run needs and costs on a TPU slice that is not there: memory, time, the compiler's account.

It lowers the step of `train` for imagined devices and reads no run directory.
"""
