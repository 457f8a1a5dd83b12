"""What choices of training are worth: masking shares, schedules and optimisers.

    python -m benchmarks learning.choices --text classic_books.txt.xz simplewiki.txt --glue=glue --tflops=300

Pretrains the BERT of configs/learning with one choice changed at a time and the same training FLOPs, and fine-tunes
every run on SST-2 with several seeds. Runs are kept under --runs, beside those of learning.budget, and resume;
--only=choice_muon makes some of them and writes no result.
"""

from benchmarks.learning.budget import describe, finished, parse, run_arms
from benchmarks.learning.budget_arms import CHOICES
from benchmarks.learning.budget_results import choice_row
from benchmarks.lib import results


def main() -> None:
    """Make the runs that are missing and write the result."""
    args = parse("choices", __doc__, tflops=300)
    if run_arms(CHOICES, args):
        runs = [finished(arm, args.tflops, args.runs) for arm in CHOICES]
        results.write(args.out, describe(args, runs), {"training": [choice_row(run) for run in runs]})
