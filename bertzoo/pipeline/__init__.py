"""Run a whole recipe, such as a paper's, as one command: a pipeline of steps, each a run of another command.

recipe.load_pipeline(name, overrides, tasks) -> Pipeline: reads the steps, and what each step reads, from a TOML file
verbs.VERBS: describes each command's arguments, inputs and output
record.PipelineRecord: keeps a pipeline's directory, its finished steps and the hashes of what they read and made
run.run_pipeline: runs the unfinished steps;  page: writes pipeline.md
"""
