"""A sweep: one task after another fine-tuned at every point of a grid of settings, each point a run of its own.

grid.load(name, overrides, tasks) -> Sweep;  Sweep.points(random, seed) -> Points
slots.slots(processes): the environments of processes side by side;  queue.run: all points by these
record.Record: the directory of a sweep, its table and its best points
"""
