"""Pretraining and knowledge transfer: config, batches, run directory, initial parameters, teacher, training and report.

The package opens a run and starts its training, for commands such as `bertzoo pretrain`. The training loop is in
`train`. Fine-tuning and pruning build on this package.
"""
