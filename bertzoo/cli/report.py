"""Draw the curves of a run and write a page about it.

Writes loss.png, accuracy.png and report.md into RUN, which may still be training, and prints its held-out metrics. A
pruning run also gets layers.png, the sizes left in each layer. A fine-tuning run gets scores.png instead of
accuracy.png.

examples:
  bertzoo report runs/first
  bertzoo report runs/sst2
  bertzoo report gs://bucket/first
"""

from dataclasses import dataclass

from bertzoo.core.options import option


@dataclass(frozen=True)
class ReportFlags:
    """The command's argument."""

    run: str = option("the directory or gs:// URL of a run", metavar="RUN")


def main(options: ReportFlags) -> int:
    """Write the report and print the run's held-out metrics."""
    from bertzoo.core import kinds
    from bertzoo.core.paths import run_directory
    from bertzoo.runs.bucket import Bucket

    bucket = Bucket(options.run) if options.run.startswith("gs://") else None
    if bucket is not None:
        bucket.fetch()
    directory = bucket.directory if bucket else run_directory(options.run)
    kind = kinds.kind_of_run(directory) or kinds.KINDS["pretrain"]  # its report rejects a directory without a run
    files, summary = kind.report()(directory)
    if bucket is not None:
        bucket.send([str(path.relative_to(bucket.directory)) for path in files])
    print(summary)
    print("Wrote " + ", ".join(f"{options.run.rstrip('/')}/{path.name}" for path in files) + ".")
    return 0
