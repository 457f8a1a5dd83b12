"""Run many fine-tunings: a sweep over all points of a grid, or a chain of runs that use each other's models.

grid.load_sweep(name, overrides, tasks) -> Sweep;  Sweep.points(random, seed);  chain.load_chain
slots.device_environments: environment variables of each process;  queue.run_processes: run all points in them
record.Record: the directory of a sweep, its table and its best points
"""
