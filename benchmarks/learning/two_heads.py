r"""Two heads on one model: the topic of a made-up request and the personal data in it, beside a model for each.

    pip install faker
    python -m benchmarks learning.two_heads --model=runs/demo --runs=runs/two_heads --buckets=1 --batch_size=64 \
        --optimizer.learning_rate=1e-3

Faker draws names, addresses and numbers as in learning.entities. The sentences of the test set are in no training
text. Runs resume.
"""

import json
from pathlib import Path

from benchmarks.learning.entities import letters
from benchmarks.lib import results
from benchmarks.lib.program import bertzoo, finetune

TOPICS = {
    "address": (
        """We have moved to {STREET}, {CITY}.
My new address is {STREET}.
From {DATE} on please send everything to {STREET}, {CITY}.
{PERSON} no longer lives in {CITY}.
Please change my address to {STREET}.""",
        """Note that {PERSON} will live in {STREET} from {DATE} on.
As of {DATE} you find us in {CITY}.""",
    ),
    "refund": (
        """Please send the money back to {IBAN}.
I would like a refund to my account {IBAN}.
{COMPANY} still owes me the refund of {DATE}.
The refund should go to {PERSON}, {IBAN}.
When do I get my money back?""",
        """I returned the shoes on {DATE} and want to be paid back.
Could you refund {PERSON} at {IBAN}?""",
    ),
    "delivery": (
        """Where is the parcel that {COMPANY} sent on {DATE}?
My order of {DATE} has not arrived.
The driver left the parcel in {STREET}.
{COMPANY} says that it was delivered to {PERSON}.
Has my parcel reached {CITY} yet?""",
        """I am still waiting for what I ordered on {DATE}.
The tracking says {CITY}, but nothing came to {STREET}.""",
    ),
    "contact": (
        """Please call me at {PHONE}.
You can write to {EMAIL}.
My new number is {PHONE}.
{PERSON} can be reached at {PHONE} or {EMAIL}.
Please send the invoice to {EMAIL}.""",
        """The best way to reach {PERSON} is {EMAIL}.
Ring {PHONE} after six.""",
    ),
    "cancel": (
        """I want to cancel my contract with {COMPANY}.
Please end my subscription on {DATE}.
{PERSON} would like to cancel the order of {DATE}.
Cancel everything in the name of {PERSON}.
I do not need the contract any more.""",
        """Stop the subscription of {PERSON} by {DATE}, please.
We have decided to leave {COMPANY}.""",
    ),
}
KINDS = {"topic": ("classification", "accuracy"), "data": ("entities", "entity_f1")}
BOTH = '--own.heads=[{name="topic"},{name="data",kind="entities"}]'
OPTIONS = ["--task=own", "--max_length=48", "--optimizer.learning_rate=2e-4"]


def requests(part: int, count: int, seed: int) -> list[dict]:
    """Texts of one or two sentences of a topic, in turns; part: 0 of the sentences to learn from, 1 of the others."""
    each = count // len(TOPICS)
    drawn = (
        [text | {"label": topic} for text in letters(sentences[part].splitlines(), each, seed + place, 2)]
        for place, (topic, sentences) in enumerate(TOPICS.items())
    )
    return [text for texts in zip(*drawn, strict=True) for text in texts]


def main() -> None:
    """Write the requests, fine-tune three models, and write the scores; unknown options are passed to the runs."""
    parser = results.parser("two_heads", __doc__)
    parser.add_argument("--model", required=True, help="a model that bertzoo finetune --from reads")
    parser.add_argument("--runs", type=Path, default=Path("runs/two_heads"), help="where the runs are kept")
    results.add_numbers(parser, train=2000, test=400, seeds=1)
    args, more = parser.parse_known_args()
    args.runs.mkdir(parents=True, exist_ok=True)
    for name, drawn in {"train": (0, args.train, 10), "dev": (1, args.test, 30), "known": (0, args.test, 50)}.items():
        lines = (json.dumps(one) + "\n" for one in requests(*drawn))
        (args.runs / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")

    def scores(model: str, split: str) -> dict:
        said = bertzoo("evaluate", str(args.runs / model), f"--input={args.runs / split}.jsonl", "--json")
        return json.loads(said)["scores"]["test"]

    words = [*OPTIONS, *more, f"--from={args.model}", f"--data_dir={args.runs}", f"--seeds={args.seeds}"]
    whole, file = finetune([*words, BOTH], args.runs / "both"), "both.tflite"
    if not (args.runs / file).exists():
        options = ["--to=litert", "--lengths=48", "--precision=int8-dynamic"]
        bertzoo("convert", str(args.runs / "both"), str(args.runs / file), *options)
    known, known_file, new_file = scores("both", "known"), scores(file, "known"), scores(file, "dev")
    rows = []
    for name, (kind, metric) in KINDS.items():
        alone, key = finetune([*words, f"--own.kind={kind}"], args.runs / name), f"{name}_{metric}"
        cells = {"sentences": "known", "alone": scores(name, "known")[metric], "both": known[key]}
        rows.append({"head": f"{name}, {metric}", **cells, "file of both, int8": known_file[key]})
        cells = {"sentences": "new", "alone": alone["median"]["dev"][metric], "both": whole["median"]["dev"][key]}
        rows.append({"head": f"{name}, {metric}", **cells, "file of both, int8": new_file[key]})
    rows = [{key: round(cell, 1) if isinstance(cell, float) else cell for key, cell in row.items()} for row in rows]
    sizes = f"{whole['model']['kind']}, {whole['model']['parameters'] / 1e6:.1f} M parameters, seeds: {args.seeds}"
    context = [sizes, f"{args.train:,} requests, 3 epochs", results.packages("faker"), f"commit {results.commit()}"]
    results.write(args.out, context, {"scores": rows})


if __name__ == "__main__":
    main()
