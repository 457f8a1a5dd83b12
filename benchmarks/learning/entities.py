"""Entities in made-up letters with personal data: F1 on new sentences, of a run and of its files for phones.

    pip install faker
    python -m benchmarks learning.entities --model=MINILM --runs=runs/entities

Faker draws names, addresses and numbers of five countries. The sentences of the test set are in no training text. Runs
resume.
"""

import json
import random
import re
from collections.abc import Sequence
from datetime import datetime

from benchmarks.lib import results
from benchmarks.lib.program import check_litert, evaluate, finetune, litert_file

LOCALES = ["en_GB", "en_US", "de_DE", "fr_FR", "es_ES"]
FIELDS = {
    "PERSON": "name", "EMAIL": "ascii_email", "PHONE": "phone_number", "STREET": "street_address", "CITY": "city",
    "IBAN": "iban", "COMPANY": "company", "DATE": "date",
}  # fmt: skip
DATES = {"end_datetime": datetime(2026, 1, 1)}  # else they end today
LEARNT = """My name is {PERSON} and I live in {CITY}.
Please send the invoice to {EMAIL}.
You can reach me at {PHONE} after lunch.
The parcel went to {STREET}, {CITY}, but nobody was at home.
We ordered it from {COMPANY} on {DATE}.
{PERSON} from {COMPANY} will call you.
My bank account is {IBAN}, in the name of {PERSON}.
Dear {PERSON}, thank you for your letter.
Our new office is at {STREET}.
{COMPANY} has not answered since {DATE}.
Write to {EMAIL} or call {PHONE}.
Kind regards, {PERSON}
The meeting in {CITY} is on {DATE}.
Transfer the rest to {IBAN}, please.
I met {PERSON} and {PERSON} in {CITY}.
The order has not arrived yet.
Could you check what happened?
The device stopped working after a week, and the light is red.
I would like my money back.""".splitlines()
HELD_OUT = """Is {PERSON} still working for {COMPANY}?
The refund should go to {IBAN} before the end of the month.
On {DATE} the driver left it with our neighbour in {STREET}.
Since moving to {CITY}, {PERSON} has had no internet.
If there is a question, {PHONE} is my number, and {EMAIL} my address.
Signed by {PERSON}, {CITY}, {DATE}
Nobody at {COMPANY} picks up the phone.
The screen is broken, as you can see in the picture.""".splitlines()
OPTIONS = ["--task=own", "--own.kind=entities", "--max_length=64", "--seeds=1", "--optimizer.learning_rate=2e-4"]


def letters(templates: Sequence[str], count: int, seed: int) -> list[dict]:
    """Texts of one to four sentences, with the spans of what was filled in."""
    from faker import Faker  # pyright: ignore[reportMissingImports]

    draw, fakes = random.Random(seed), [Faker(locale) for locale in LOCALES]
    for fake in fakes:
        fake.seed_instance(seed)
    rows = []
    for _ in range(count):
        fake, text, spans = draw.choice(fakes), "", []
        for template in draw.sample(templates, draw.randint(1, 4)):
            for part in re.split(r"\{(\w+)\}", (" " if text else "") + template):
                value = part
                if part in FIELDS:
                    drawn = getattr(fake, FIELDS[part])(**(DATES if part == "DATE" else {}))
                    value = " ".join(str(drawn).split())
                    spans.append({"start": len(text), "end": len(text) + len(value), "label": part})
                text += value
        rows.append({"text": text, "spans": spans})
    return rows


def main() -> None:
    """Write the letters, fine-tune, convert, and write the scores; unknown options are passed to the run."""
    parser = results.parser("entities", __doc__, "runs/entities")
    parser.add_argument("--model", required=True, help="a model that bertzoo finetune --from reads")
    results.add_numbers(parser, train=1200, test=300)
    args, more = parser.parse_known_args()
    check_litert()
    args.runs.mkdir(parents=True, exist_ok=True)
    sets = {"train": (LEARNT, args.train, 1), "dev": (LEARNT, args.test // 2, 2), "test": (HELD_OUT, args.test, 3)}
    for name, drawn in sets.items():
        lines = (json.dumps(letter) + "\n" for letter in letters(*drawn))
        (args.runs / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    run = args.runs / "run"
    words = [*OPTIONS, *more, f"--from={args.model}", f"--data_dir={args.runs}"]
    learnt = finetune(words, run)
    models = {"the run, float32": run}
    for precision in ("fp32", "int8-dynamic"):
        file, options = args.runs / f"{precision}.tflite", ("--lengths=64", f"--precision={precision}")
        models[f"LiteRT file, {precision}"] = litert_file(run, file, *options)
    rows = []
    for name, path in models.items():
        files = [args.runs / f"{split}.jsonl" for split in ("dev", "test")]
        known, new = (evaluate(path, f"--input={file}")["scores"]["test"] for file in files)
        cells = {"model": name, "MB": round(path.stat().st_size / 1e6, 1) if path.is_file() else None}
        cells |= {"F1, known sentences": round(known["entity_f1"], 1), "F1, new sentences": round(new["entity_f1"], 1)}
        cells |= {metric: round(new[f"entity_{metric}"], 1) for metric in ("precision", "recall")}
        rows.append(cells)
    sizes = f"{learnt['model']['kind']}, {learnt['model']['parameters'] / 1e6:.1f} M parameters"
    context = [sizes, f"{args.train:,} letters, 3 epochs", results.packages("faker"), f"commit {results.commit()}"]
    results.write(args.out, context, {"scores": rows})
