"""The card of an exported file: what an app needs, from the tokenizer, the head and the source of each model."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import planted
import pytest
from messages import mentions

import bertzoo
from bertzoo.conversion import huggingface
from bertzoo.data.tokenizers import tokenizer as tokenizers
from bertzoo.data.tokenizers.sentencepiece import SentencePiece
from bertzoo.data.tokenizers.wordpiece import WordPiece
from bertzoo.export.card import use_steps
from bertzoo.export.check import verify
from bertzoo.runs import any_model


def card_of(file: Path) -> str:
    return (file.with_name(f"{file.name}.files") / "README.md").read_text()


def described(file: Path) -> dict[str, Any]:
    return json.loads(file.with_name(f"{file.name}.json").read_text())


@pytest.mark.parametrize(
    ("name", "row", "outputs"),
    [
        ("rte", ("[CLS] (2) A [SEP] (3) B [SEP] (3)",), ("softmax", "`not_entailment`, `entailment`")),
        ("stsb", ("[CLS] (2) A [SEP] (3) B [SEP] (3)",), ("times 5 ", "0 to 5")),
        ("tags", ("[CLS] (2) text [SEP] (3)",), ("softmax", "`O`, `B-X`, `I-X`", "first token")),
        ("span", ("[CLS] (2) question [SEP] (3) text [SEP] (3)",), ("start_logits", "end_logits", 29)),
        ("joint", ("[CLS] (2) question [SEP] (3) text [SEP] (3)",), ("log-softmax", "starts", "null_logit", "above 0")),
        (
            "masked",
            ("[MASK] (4)", "masked_positions"),
            ("softmax", "masked_logits", 65, "sentence_logits", "A follows B"),
        ),
        ("none", ("[CLS] (2) text [SEP] (3)",), ("embedding", "mean", "cosine")),
    ],
)
def test_the_steps_of_every_head(
    name: str, row: tuple[str, ...], outputs: tuple[object, ...], models: Path, export: Any
) -> None:
    file = export(models / name, "--lengths=16,24")
    description = described(file)
    steps, tokenizer = use_steps(description), any_model.read_model(models / name).tokenizer
    assert tokenizer is not None and len(steps) == 5 and all(step in card_of(file) for step in steps)
    assert mentions(steps[0], "Lower-case", "WordPiece", "vocab.txt", tokenizer.vocab_size)
    assert mentions(steps[1], *row) and ("token_type_ids" in steps[1]) == ("token_type_ids" in description["inputs"])
    assert mentions(steps[2], "16, 24", "[PAD] (0)", *([24] if name in ("rte", "span", "joint") else []))
    assert mentions(steps[3], *outputs)
    assert ("no answer" in steps[3]) == (name == "joint")
    assert mentions(steps[4], "golden.json")


def test_the_steps_follow_the_tokenizer(models: Path, export: Any, tmp_path: Path) -> None:
    base = any_model.read_model(models / "tags")
    for config, parts in (
        (WordPiece(vocab_size=90, lowercase=False), ("Keep", "keep accents", "WordPiece", "vocab.txt")),
        (WordPiece(vocab_size=90, strip_accents=False), ("Lower-case", "keep accents")),
        (SentencePiece(vocab_size=90), ("Lower-case", "strip accents", "SentencePiece", "spiece.model")),
    ):
        tokenizer = tokenizers.build(config, lambda: iter(verify.TEXT * 9))
        folder = tmp_path / f"{config.kind}-{config.lowercase}-{config.strip_accents}"
        model = replace(base.model, vocab_size=tokenizer.vocab_size)
        planted.write(folder, model, base.head, tokenizer)
        file, pad = export(folder, "--lengths=24"), tokenizer.specials.pad
        steps = use_steps(described(file))
        assert mentions(steps[0], *parts, tokenizer.vocab_size), steps[0]
        assert mentions(steps[2], f"{tokenizer.token(pad)} ({pad})", "Every row has 24")
        # The file that the card names is there, and gives the same tokens.
        assert (tmp_path / f"{file.name}.files" / described(file)["tokenizer"]["file"]).is_file()
        text = "The Harbour Café was quiet"
        assert bertzoo.predict(file, [text])[0]["tags"] == bertzoo.predict(folder, [text])[0]["tags"]


def test_the_licence_is_that_of_the_source(models: Path, export: Any, tmp_path: Path) -> None:
    (source := tmp_path / "source").mkdir()
    huggingface.write_huggingface(any_model.read_model(models / "rte"), source)

    def licence(*options: str) -> str:
        file = export(source, "--lengths=24", *options)
        text = card_of(file).partition("## Licence")[2].partition("##")[0]
        for path in sorted(tmp_path.glob("source.tflite*")):
            path.rename(tmp_path / f"{len(list(tmp_path.iterdir()))}-{path.name}")
        return text

    assert mentions(licence(), "unknown", "--license")
    (source / "LICENSE").write_text("\n                  Apache License\n            Version 2.0\n")
    assert mentions(licence(), "Apache License")
    (source / "README.md").write_text("---\nlanguage: en\nlicense: cc-by-4.0 # of the weights\n---\nlicense: other\n")
    assert mentions(licence(), "cc-by-4.0") and huggingface.stated_license(source) == "cc-by-4.0"
    assert "cc-by-4.0" not in (stated := licence("--license=mit")) and mentions(stated, "mit")
    any_model.write_model(any_model.read_model(source), tmp_path)  # a model directory keeps it
    assert any_model.read_model(tmp_path).source["license"] == "cc-by-4.0"


def test_a_fine_tuned_model_keeps_the_licence_of_its_source(tmp_path: Path) -> None:
    planted.fill(tmp_path)
    path = tmp_path / "model" / "model.toml"
    path.write_text(path.read_text().replace("[source]\n", '[source]\nlicense = "cc0-1.0"\n'))
    assert planted.finetune(tmp_path, tmp_path / "run", "--seeds=1", "--epochs=1") == 0
    assert any_model.read_model(tmp_path / "run").source["license"] == "cc0-1.0"


def test_the_limits_in_words_are_those_of_the_check(models: Path, export: Any) -> None:
    file = export(models / "rte", "--lengths=16,24")
    text = card_of(file).partition("## Differences")[2]
    limit, (signature, _) = verify.LIMITS["fp32"], described(file)["signatures"].values()
    assert mentions(text, f"{limit.error:g}", f"{limit.cosine:g}", f"{signature['rows']} rows", "float32", "absolute")
    assert mentions(text, f"{signature['outputs']['logits']['max_error']:.2g}")
