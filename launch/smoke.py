"""Print what the runs of launch/smoke.sh measured, and compare the demo's held-out losses with the recorded ones.

    python launch/smoke.py FOLDER

Exits with 1 if a loss differs by more than TOLERANCE, which covers the documentation of other versions of Python,
other numbers of devices, and the bfloat16 products of a TPU; without training the loss stays at 6.9.
"""

import argparse
import sys
from pathlib import Path

from bertzoo.runs.report import read_run, spent_seconds, time_shares

GOLDEN = {25: 6.005, 50: 5.981}  # step: held-out MLM loss in nats; three seeds differ by at most 0.07
TOLERANCE = 0.15


def main(folder: Path) -> int:
    """Print the times and return the exit code."""
    run = read_run(folder / "bert_base")
    facts, last, spent = run.provenance, run.history.train[-1], spent_seconds(run)
    seconds = run.stages()[0]["batch_size"] / last["examples_per_second"]
    versions = ", ".join(f"{name} {facts[name]}" for name in ("bertzoo", "git", "python", "jax") if facts.get(name))
    print(f"\nsmoke test of {', '.join(facts['devices'])}: {versions}")
    print(f"ms a step  {1000 * seconds:,.1f}")
    print(f"tokens/s   {last['tokens_per_second']:,.0f}")
    print(f"MFU        {last['mfu']:.1%}" if "mfu" in last else "MFU        unknown, as is the peak of this device")
    print(f"goodput    {spent['steps'] / sum(spent.values()):.1%} of these few steps' time:")
    print("\n".join(f"  {line}" for line in time_shares(run)))
    wrong = 0
    for line in read_run(folder / "demo").history.heldout:
        loss, expected = line["mlm_loss"], GOLDEN[line["step"]]
        differs = abs(loss - expected) > TOLERANCE
        wrong += differs
        print(f"demo, step {line['step']}: MLM loss {loss:.4f}, recorded {expected}{': WRONG' * differs}")
    print("the smoke test FAILED" if wrong else "the smoke test passed")
    return int(wrong > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the folder that launch/smoke.sh wrote")
    sys.exit(main(parser.parse_args().folder))
