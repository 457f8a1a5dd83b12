"""Fine-tune a model on a task with several seeds: score each epoch, and save the best epoch's model.

`sweep` runs grids of fine-tunings; `results` compares their scores with published ones. `tasks` defines tasks, their
files and their metrics.
"""
