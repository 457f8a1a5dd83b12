"""Training: one loop for every model, independent of models, papers and data formats.

`loop.run(job)` trains a `job.Job`: stages (`stages.Stage`), their losses and optimisers (`stage_setup.StageSetup`),
batches, the device mesh (`sharding.Mesh`) and reporters (`progress`). `step` compiles a step. `state` holds what a
resumed run needs; `checkpoint`, `restore`, `contents` and `manifest` deal with the files of a saved state.
`hosts` connects processes.
"""
