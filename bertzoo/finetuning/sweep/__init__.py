"""Run many fine-tunings: a sweep over all points of a grid.

grid.load_sweep(name, overrides, tasks) -> Sweep;  Sweep.points(random, seed)
slots.device_environments(processes): one environment per process;  queue.run_processes: all points in these
record.Record: the directory of a sweep, its table and its best points
"""
