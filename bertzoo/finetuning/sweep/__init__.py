"""Run many fine-tunings: a sweep over all points of a grid.

grid.load_sweep(name, overrides, tasks) -> Sweep;  Sweep.points(random, seed)
slots.device_environments: environment variables of each process;  queue.run_processes: run all points in them
record.Record: the directory of a sweep, its table and its best points
"""
