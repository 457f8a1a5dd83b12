"""How fast models run, each in a process of its own and in turns, and what of a model takes the time."""
