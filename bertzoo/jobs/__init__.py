"""Run many commands of bertzoo as one: the steps of a pipeline, such as a paper's recipe, or the points of a sweep.

job.CommandJob: a command with its options and inputs;  JobList: the jobs of a pipeline or a sweep
pipeline.load_pipeline, sweep.load_sweep: read a list of jobs from TOML
search.Study, search.Halving: choose points of a sweep
record.JobRecord: the directory of a list, and the hashes that identify finished jobs
run.Checks: checks every job before the first one starts, and estimates what each costs
run.run_jobs: runs the unfinished jobs;  local: as processes of this machine, each with a device of its own
progress: the table of all jobs, as CSV, Markdown or lines of a console
"""
