"""Fine-tune a model on a task with several seeds: score each epoch, and save the best one as a model directory.

`sweep` runs grids of fine-tunings; `results` compares their scores with published ones. `tasks` defines tasks, their
files and their metrics.
"""
