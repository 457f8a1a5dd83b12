"""Training: one loop for every model, independent of models, papers and data formats.

`loop.run(job)` trains a `loop.Job`: a built run (`experiment.Experiment`, with a `StageSetup` and a `Stage` for each
stage), batches and reporters (`progress`). `step` compiles a step. `state` holds the arrays that a resumed run needs;
`checkpoint` and `contents` deal with the files of a saved state. `hosts` connects processes.
"""
