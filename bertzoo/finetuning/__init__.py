"""Fine-tuning a model on a task: several seeds, scores after each epoch, the best epoch kept as a model directory.

`sweep` runs grids of fine-tunings, `results` puts their scores beside published ones. What a task is, its
files and its metrics are in `tasks`.
"""
