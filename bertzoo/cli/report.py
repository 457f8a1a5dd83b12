"""Draw the curves of a run and write a page about it.

Writes loss.png, accuracy.png and report.md into RUN, which may still be training, and prints its held-out metrics. A
pruning run also gets layers.png, the remaining sizes of each layer. A fine-tuning run gets scores.png instead of
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
    run: str = option("the directory or gs:// URL of a run", metavar="RUN")


def main(options: ReportFlags) -> int:
    from bertzoo.core import kinds
    from bertzoo.runs.run_dir import RunDirectory

    run = RunDirectory(options.run)
    run.fetch()
    kind = kinds.kind_of_run(run.path) or kinds.KINDS["pretrain"]  # its report rejects a directory without a run
    files, summary = kind.report()(run.path)
    if run.bucket is not None:
        run.bucket.send([str(path.relative_to(run.path)) for path in files])
    print(summary)
    print("Wrote " + ", ".join(f"{options.run.rstrip('/')}/{path.name}" for path in files) + ".")
    return 0
