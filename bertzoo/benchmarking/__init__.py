"""How fast models run: each in a process of its own, timed in turns, and which part of a graph takes the time.

How files are written is in `export`, how training is planned in `planning`.
"""
