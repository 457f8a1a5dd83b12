"""Sweeps: fine-tune tasks at every point of a grid, each a run of its own.

grid.load_sweep(name, overrides, tasks) -> Sweep;  Sweep.points(random, seed)
slots.device_environments(processes): one environment per process;  queue.run_processes: all points in these
record.Record: the directory of a sweep, its table and its best points
"""
