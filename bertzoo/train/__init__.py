"""Training: one loop for every model, without knowledge of models, papers or data formats.

`loop.run(job)` trains a `job.Job`: stages of steps (`stages.Stage`), what each trains (`stage_setup.StageSetup`), the
batches, the device mesh (`sharding.Mesh`) and where records go (`progress`). `step` compiles a step, `state` holds what
a resumed run needs, `checkpoint`, `restore`, `contents` and `manifest` keep it on disk, and `hosts` connects processes.
"""
