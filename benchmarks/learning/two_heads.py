r"""Two heads on one model: the topic of a made-up request and the personal data in it, beside a model for each.

    pip install faker
    python -m benchmarks learning.two_heads --model=MODEL --runs=runs/two_heads

launch/demo_mails.py has the sentences: 60 to learn from, in several wordings, and 25 others. Faker draws names,
addresses and numbers as in learning.entities. Every run keeps its last epoch, so that no test set chooses one. Runs
resume.
"""

import json
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.learning.entities import letters, scores
from benchmarks.lib import results
from benchmarks.lib.program import bertzoo, finetune
from launch.demo_mails import TOPICS, sentences

KINDS = {"topic": ("classification", "accuracy"), "data": ("entities", "entity_f1")}
BOTH = '--own.heads=[{name="topic"},{name="data",kind="entities"}]'
OPTIONS = ["--task=own", "--max_length=48", "--optimizer.learning_rate=2e-4", "--select=last"]


def requests(part: int, count: int, seed: int) -> list[dict]:
    """Texts of one or two sentences of a topic, in turns; part: 0 of the sentences to learn from, 1 of the others."""
    each = count // len(TOPICS)
    drawn = (
        [text | {"label": topic} for text in letters(sentences(topic, part), each, seed + place, 2)]
        for place, topic in enumerate(TOPICS)
    )
    return [text for texts in zip(*drawn, strict=True) for text in texts]


def main() -> None:
    """Write the requests, fine-tune three models, and write the scores; unknown options are passed to the runs."""
    parser = results.parser("two_heads", __doc__)
    parser.add_argument("--model", required=True, help="a model that bertzoo finetune --from reads")
    parser.add_argument("--runs", type=Path, default=Path("runs/two_heads"), help="where the runs are kept")
    parser.add_argument("--epochs", type=int, default=5, help="passes over the requests")
    results.add_numbers(parser, train=2000, test=500, seeds=3)
    args, more = parser.parse_known_args()
    args.runs.mkdir(parents=True, exist_ok=True)
    for name, drawn in {"train": (0, args.train, 10), "dev": (1, args.test, 30), "known": (0, args.test, 50)}.items():
        lines = (json.dumps(one) + "\n" for one in requests(*drawn))
        (args.runs / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")

    def by_seed(model: str, run: dict[str, Any]) -> dict[str, list[dict[str, float]]]:
        seeds = [args.runs / model / f"seed-{one['seed']}" for one in run["seeds"]]
        known = [scores(seed, args.runs / "known.jsonl") for seed in seeds]
        return {"known": known, "new": [one["scores"]["dev"] for one in run["seeds"]]}

    words = [*OPTIONS, *more, f"--from={args.model}", f"--data_dir={args.runs}"]
    words += [f"--seeds={args.seeds}", f"--epochs={args.epochs}"]
    whole, file = finetune([*words, BOTH], args.runs / "both"), args.runs / "both.tflite"
    both = by_seed("both", whole)
    alone = {
        name: by_seed(name, finetune([*words, f"--own.kind={kind}"], args.runs / name))
        for name, (kind, _) in KINDS.items()
    }
    if not file.exists():
        bertzoo(
            "convert", str(args.runs / "both"), str(file), "--to=litert", "--lengths=48", "--precision=int8-dynamic"
        )
    files = {"known": args.runs / "known.jsonl", "new": args.runs / "dev.jsonl"}
    exported = {split: scores(file, texts) for split, texts in files.items()}
    rows = []
    for name, (_, metric) in KINDS.items():
        for split in ("known", "new"):
            key = f"{name}_{metric}"
            points = [one[metric] for one in alone[name][split]], [one[key] for one in both[split]]
            change = mean(points[1]) - mean(points[0])
            cells = {"alone": _format(points[0]), "both": _format(points[1]), "change": f"{change:+.1f}"}
            best = round(exported[split][key], 1)
            rows.append({"head": f"{name}, {metric}", "sentences": split, **cells, "best seed's file, int8": best})
    sizes = f"{whole['model']['kind']}, {whole['model']['parameters'] / 1e6:.1f} M parameters, seeds: {args.seeds}"
    numbers = f"{args.train:,} requests, {args.epochs} epochs"
    context = [sizes, numbers, results.packages("faker"), f"commit {results.commit()}"]
    results.write(args.out, context, {"scores": rows})


def _format(points: list[float]) -> str:
    spread = f" ({min(points):.1f} to {max(points):.1f})" if len(points) > 1 else ""
    return f"{mean(points):.1f}{spread}"


if __name__ == "__main__":
    main()
