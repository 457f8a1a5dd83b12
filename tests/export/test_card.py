"""The card of an exported file: what an app needs, from the tokenizer, the head and the source of each model."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import planted
import pytest
import yaml
import zoo
from huggingface_hub import ModelCard
from messages import mentions

from bertzoo.conversion import huggingface
from bertzoo.data.tokenizers.byte_bpe import ByteBpe
from bertzoo.export.card import metadata, use_steps
from bertzoo.heads import SequenceClassification
from bertzoo.models import ModernBert
from bertzoo.runs import load_model
from bertzoo.runs.warm_start import origin_record

pytestmark = pytest.mark.slow


def card_of(file: Path) -> str:
    return (file.with_name(f"{file.name}.files") / "README.md").read_text()


def described(file: Path) -> dict[str, Any]:
    return json.loads(file.with_name(f"{file.name}.json").read_text())


def test_the_rules_that_apps_tokenise_by(models: Path, export: Any):
    """The rules in the JSON are the tokenizer's; the apps in examples/ read no others."""
    rules = described(export(models / "rte", "--lengths=16"))["tokenizer"]
    tokenizer = load_model.read_model(models / "rte").tokenizer
    assert tokenizer is not None and rules["kind"] == "wordpiece" and rules["entries"] == tokenizer.vocab_size
    assert rules["normalization"] == {"lowercase": True, "strip_accents": True, "split_cjk": True}
    unknown = rules["specials"]["unk"]["id"]
    longest, longer = tokenizer.encode_batch(["a" * rules["longest_word"], "a" * (rules["longest_word"] + 1)])
    assert longer.tolist() == [unknown] and unknown not in longest


STEPS = [
    ("rte", ("[CLS] (2) A [SEP] (3) B [SEP] (3)",), ("softmax", "`not_entailment`, `entailment`")),
    ("stsb", ("[CLS] (2) A [SEP] (3) B [SEP] (3)",), ("times 5 ", "0 to 5")),
    ("tags", ("[CLS] (2) text [SEP] (3)",), ("softmax", "`O`, `B-X`, `I-X`", "first token")),
    ("span", ("[CLS] (2) question [SEP] (3) text [SEP] (3)",), ("start_logits", "end_logits", 29)),
    ("joint", ("[CLS] (2) question [SEP] (3) text [SEP] (3)",), ("log-softmax", "starts", "null_logit", "above 0")),
    ("masked", ("[MASK] (4)", "masked_positions"), ("softmax", "masked_logits", 65, "sentence_logits", "A follows B")),
    ("none", ("[CLS] (2) text [SEP] (3)",), ("embedding", "mean", "cosine")),
]


HEADERS = {
    **dict.fromkeys(("rte", "stsb"), ("text-classification", ["nyu-mll/glue"])),
    "tags": ("token-classification", None),
    "span": ("question-answering", ["rajpurkar/squad"]),
    "joint": ("question-answering", ["rajpurkar/squad_v2"]),
    "masked": ("fill-mask", None),
    "none": ("sentence-similarity", None),  # a file gets the head that embeds
}


def header(card: str) -> dict[str, Any]:
    """The YAML between the first two lines of dashes, which huggingface_hub reads alike."""
    fields = yaml.safe_load(card.split("---\n")[1])
    assert ModelCard(card, ignore_metadata_errors=False).data.to_dict().keys() >= fields.keys() - {"model-index"}
    return fields


@pytest.mark.parametrize(("name", "row", "outputs"), STEPS)
def test_the_steps_and_the_header_of_every_head(name, row, outputs, models, export):
    file = export(models / name, "--lengths=16,24", "--license=mit")
    description, fields = described(file), header(card_of(file))
    assert (fields["pipeline_tag"], fields.get("datasets")) == HEADERS[name] and fields["license"] == "mit"
    assert fields["library_name"] == "litert" and fields["tags"] == ["bertzoo", "bert", "tflite"]
    assert "model-index" not in fields and "base_model" not in fields  # nothing was scored
    steps, tokenizer = use_steps(description), load_model.read_model(models / name).tokenizer
    assert tokenizer is not None and len(steps) == 5 and all(step in card_of(file) for step in steps)
    assert mentions(steps[0], "Lower-case", "WordPiece", "vocab.txt", tokenizer.vocab_size)
    assert mentions(steps[1], *row) and ("token_type_ids" in steps[1]) == ("token_type_ids" in description["inputs"])
    assert mentions(steps[2], "16, 24", "[PAD] (0)", *([24] if name in ("rte", "span", "joint") else []))
    assert mentions(steps[3], *outputs)
    assert ("no answer" in steps[3]) == (name == "joint")
    assert mentions(steps[4], "golden.json")


def test_byte_pairs_keep_case(export: Any, tmp_path: Path) -> None:
    words = ByteBpe(vocab_size=300).train(lambda: iter(["The text is read", "and read again"] * 5))
    model = ModernBert(**zoo.SIZES | {"vocab_size": words.vocab_size}, **zoo.LAYERS)
    (source := tmp_path / "source").mkdir()
    load_model.write_model(replace(zoo.pretrained(model, SequenceClassification()), tokenizer=words), source)
    file = export(source, "--lengths=16")
    (first, *_), description = use_steps(described(file)), described(file)
    assert mentions(first, "Keep", "byte pairs", "tokenizer.json", words.vocab_size) and first in card_of(file)
    tokenizer = description["tokenizer"]
    assert tokenizer["kind"] == "byte_bpe" and not any(tokenizer["normalization"].values())
    ids = json.loads((file.with_name(f"{file.name}.files") / "golden.json").read_text())
    assert ids and (file.with_name(f"{file.name}.files") / "tokenizer.json").is_file()


def test_the_licence_is_that_of_the_source(models: Path, export: Any, tmp_path):
    (source := tmp_path / "source").mkdir()
    huggingface.write_huggingface(load_model.read_model(models / "rte"), source)

    def licence(*options: str) -> str:
        file = export(source, "--lengths=24", *options)
        text = card_of(file).partition("## Licence")[2].partition("##")[0]
        for path in sorted(tmp_path.glob("source.tflite*")):
            path.rename(tmp_path / f"{len(list(tmp_path.iterdir()))}-{path.name}")
        return text

    assert mentions(licence(), "unknown", "--license")
    (source / "LICENSE").write_text("\n                  Apache License\n            Version 2.0\n")
    assert load_model.read_model(source).source["license"] == "Apache License"
    (source / "README.md").write_text("---\nlanguage: en\nlicense: cc-by-4.0 # of the weights\n---\nlicense: other\n")
    assert mentions(licence(), "cc-by-4.0") and huggingface.stated_in_card(source)["license"] == "cc-by-4.0"
    assert "cc-by-4.0" not in (stated := licence("--license=mit")) and mentions(stated, "mit")
    load_model.write_model(load_model.read_model(source), tmp_path)  # a model directory keeps it
    assert load_model.read_model(tmp_path).source["license"] == "cc-by-4.0"


def test_the_header_has_the_scores_of_a_file_and_the_licence_of_its_source(tmp_path, export: Any):
    planted.fill(tmp_path)
    path = tmp_path / "model" / "model.toml"
    path.write_text(path.read_text().replace("[source]\n", '[source]\nlicense = "cc0-1.0"\n'))
    assert planted.finetune(tmp_path, tmp_path / "run", "--seeds=1", "--epochs=1") == 0
    file = export(tmp_path / "run", "--lengths=16", "--examples=8")
    scores, fields = described(file)["scores"], header(card_of(file))
    (index,) = fields["model-index"]
    (result,) = index["results"]
    assert index["name"] == file.name and result["dataset"]["split"] == scores["split"] == "dev"
    measured = {metric["type"]: metric["value"] for metric in result["metrics"]}
    assert measured == {name: round(value, 2) for name, value in scores["file"].items()}
    assert fields["metrics"] == list(measured)
    assert fields["license"] == load_model.read_model(tmp_path / "run").source["license"] == "cc0-1.0"


@pytest.mark.parametrize(
    ("form", "library", "part"),
    [
        ("huggingface", "transformers", "BertForSequenceClassification"),
        ("pytorch", "pytorch", "import load"),
        ("bertzoo", "bertzoo", "bertzoo convert out"),
    ],
)
def test_the_card_of_a_directory(form: str, library: str, part: str, models: Path, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(models / "rte", source)
    table = (source / "model.toml").read_text()
    scores = '[source]\nbase_model = "nobody/tiny"\nscores = { dev = { accuracy = 61.234 } }\n'
    (source / "model.toml").write_text(table.replace("[source]\n", scores))
    out = tmp_path / "out"
    assert planted.cli.main(["convert", str(source), str(out), f"--to={form}", "--license=Apache License"]) == 0
    text = (out / "README.md").read_text()
    fields = header(text)
    assert (fields["library_name"], fields["license"], fields["base_model"]) == (library, "apache-2.0", "nobody/tiny")
    (metric,) = fields["model-index"][0]["results"][0]["metrics"]
    assert (metric["type"], metric["value"]) == ("accuracy", 61.23)
    assert mentions(text, part, 61.23, "Apache License")
    if form != "pytorch":  # which nothing of ours reads
        assert load_model.read_model(out).source["base_model"] == "nobody/tiny"


@pytest.mark.parametrize(
    ("stated", "fields"),
    [
        (None, {"license": "unknown"}),
        ("CC-BY-SA-3.0", {"license": "cc-by-sa-3.0"}),
        ("MIT License", {"license": "mit"}),
        ("My own, for 2 friends", {"license": "other", "license_name": "my-own-for-2-friends"}),
    ],
)
def test_a_licence_becomes_the_hubs_and_is_read_back(stated: str | None, fields: dict[str, str], tmp_path):
    description = {"head": {"kind": "none"}, "source": {"license": stated}, "model": {"kind": "bert"}}
    data = metadata("x", description | {"format": "bertzoo"})
    assert {name: data[name] for name in fields} == fields
    (tmp_path / "README.md").write_text(f"---\n{data.to_yaml()}\n---\n")
    expected = fields.get("license_name", fields["license"])
    assert huggingface.stated_in_card(tmp_path).get("license") == (None if stated is None else expected)


@pytest.mark.parametrize("key", ["from", "teacher"])
def test_a_run_keeps_the_licence_of_its_source(key: str, finished_run: Path, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(finished_run, run)
    model = load_model.read_model(run)
    assert model.source["language"] == "en" and "license" not in model.source
    source = replace(model, source={"license": "cc-by-4.0", "language": "de", "step": 3})
    record = json.loads((run / "run.json").read_text()) | {key: origin_record(source, run)}
    (run / "run.json").write_text(json.dumps(record))
    assert record[key]["license"] == load_model.read_model(run).source["license"] == "cc-by-4.0"
    assert load_model.read_model(run).source["language"] == "en"  # of its own text
