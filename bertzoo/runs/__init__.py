"""Training runs: config, batches, directory, warm start, teacher, job, parameters and report.

A command such as `bertzoo pretrain` opens a run here and starts its job. The training loop is in `train`; fine-tuning
and pruning build on this package.
"""
