"""Pretraining and knowledge transfer: config, batches, run directory, initial parameters, teacher, training and report.

A command such as `bertzoo pretrain` opens a run here and starts its training. The training loop is in `train`;
fine-tuning and pruning build on this package.
"""
