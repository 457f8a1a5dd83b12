"""Run many fine-tunings: a sweep over all points (combinations of options) of a grid.

grid.load_sweep(name, overrides, tasks) -> Sweep;  Sweep.points(random, seed)
slots.device_environments: environment variables of each process;  queue.run_processes: run points in processes
record.Record: the directory of a sweep, its table and its best points
"""
