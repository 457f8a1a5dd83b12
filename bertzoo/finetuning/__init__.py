"""Fine-tune a model on a task with several seeds: score each epoch, and save the best epoch's model.

`results` compares scores with published ones. The package `bertzoo.tasks` defines tasks, files and metrics.
"""
