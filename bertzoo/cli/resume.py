"""Resume a run with the config and the models that its directory records.

RUN is the directory or gs:// URL of a run of pretrain, transfer, prune or finetune that was stopped, killed or
preempted. A finished run has no steps left.

examples:
  bertzoo resume runs/first
  bertzoo resume gs://bucket/first
  bertzoo resume runs/sst2
"""

from dataclasses import dataclass

from bertzoo.cli.support import log
from bertzoo.core.errors import UserError
from bertzoo.core.options import option

PASSES_ON = "--NAME=VALUE, such as --run.save_every=100, is an option or a config key of the run's command."


@dataclass(frozen=True)
class ResumeFlags:
    run: str = option("the directory or gs:// URL of a run", metavar="RUN")
    overrides: tuple[tuple[str, str], ...] = ()


def main(options: ResumeFlags) -> int:
    from bertzoo.cli.main import run
    from bertzoo.core.kinds import CONFIG, KINDS, kind_of_run
    from bertzoo.core.paths import run_directory
    from bertzoo.runs.bucket import Bucket
    from bertzoo.runs.provenance import RUN_JSON, check_local, read_run_json

    if named := [value for key, value in options.overrides if key == "run_dir"]:
        raise UserError(
            f"--run_dir={named[0]} does not apply, because RUN = {options.run} names the run. Leave it out."
        )
    bucket = Bucket(options.run) if options.run.startswith("gs://") else None
    if bucket is not None:
        bucket.fetch([CONFIG, RUN_JSON])
    directory = bucket.directory if bucket else run_directory(options.run)
    missing = next((name for name in (CONFIG, RUN_JSON) if not (directory / name).is_file()), None)
    if missing or (kind := kind_of_run(directory)) is None:
        raise UserError(
            f"{options.run} is not a run: it has no {missing}. Name the directory of a run of "
            f"{', '.join(sorted(KINDS))}."
        )
    words = [kind.name, str(directory / CONFIG), f"--run_dir={options.run}"]
    record = read_run_json(directory, options.run)
    for key in ("from", "teacher"):
        if key in record and key not in dict(options.overrides):
            advice = f"If you trust it, add --{key}={record[key]['path']}."
            words.append(f"--{key}={check_local(record[key]['path'], 'model', options.run, advice)}")
    words += [f"--{key}={value}" for key, value in options.overrides]
    log(f"bertzoo {' '.join(words)}")
    return run(words)
