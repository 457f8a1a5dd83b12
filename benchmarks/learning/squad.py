"""SQuAD 1.1 from a small model on a small part of its training set: F1 on held-out articles.

    python -m benchmarks learning.squad --model=MODEL --data=train-v1.1.json --runs=runs/squad

One run has a learning rate of 0 and shows what the fresh head scores; the other trains for one epoch. Both resume.
Fails if the first has an F1 of 10 or more, or the second less than 40.
"""

from benchmarks.lib import results
from benchmarks.lib.program import finetune

SHARED = ("--task=squad1", "--squad.heldout=0.06", "--max_length=256", "--batch_size=16", "--seeds=1", "--epochs=1")
RUNS = {
    "untrained": ["--train_rows=16", "--optimizer.learning_rate=0"],
    "trained": ["--train_rows=6000", "--optimizer.learning_rate=2e-4"],
}
TARGETS = {"untrained": (0, 10), "trained": (40, 100)}  # F1


def main() -> None:
    """Run both and write the result; unknown options are passed to both."""
    parser = results.parser("squad", __doc__, "runs/squad")
    parser.add_argument("--model", required=True, help="a model that bertzoo finetune --from reads")
    parser.add_argument("--data", required=True, help="SQuAD's training file")
    args, more = parser.parse_known_args()
    rows, model = [], {}
    for name, options in RUNS.items():
        words = [*SHARED, "--encoder_dropout=0", *options, *more, f"--from={args.model}", f"--data_dir={args.data}"]
        result = finetune(words, args.runs / name, "finetune_squad")
        model, scores, (least, most) = result["model"], result["median"]["dev"], TARGETS[name]
        row = {"run": name, "questions learnt": result["examples"]["train"], "asked": result["examples"]["dev"]}
        row |= {"exact match": round(scores["exact_match"], 2), "F1": round(scores["f1"], 2)}
        rows.append(row | {"met": least <= scores["f1"] < most})
    context = [f"{model['kind']}, {model['parameters'] / 1e6:.1f} M parameters"]
    results.write(args.out, context, {"runs": rows})
