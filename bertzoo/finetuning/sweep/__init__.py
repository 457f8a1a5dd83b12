"""Sweeps and chains: fine-tune tasks at every point of a grid, or runs that need one another, each a run of its own.

grid.load_sweep(name, overrides, tasks) -> Sweep;  Sweep.points(random, seed);  chain.load_chain
slots.device_environments(processes): one environment per process;  queue.run_processes: all points in these
record.Record: the directory of a sweep, its table and its best points
"""
