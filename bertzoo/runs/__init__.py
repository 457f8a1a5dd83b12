"""One training run: its config, batches, directory, warm start, teacher, job, parameters and report.

A verb opens a run here and starts its job. The training loop is in `train`; fine-tuning and pruning build on runs.
"""
