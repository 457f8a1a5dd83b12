"""Pipelines: whole recipes of a paper as one command, each stage a run of another command.

recipe.load_pipeline(name, overrides, tasks) -> Pipeline: the steps of a TOML file and what each reads
verbs.VERBS: how the command line of each command is written, and what it reads and makes
fingerprint: hashes of inputs and outputs;  record.PipelineRecord: the directory of a pipeline and its finished steps
run.run_pipeline: every step that is not finished;  page: pipeline.md
"""
