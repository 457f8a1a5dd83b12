"""A run on raw texts with spans, longer than its rows; predictions of entities, by its model and by others' tags."""

import json
from pathlib import Path

import numpy as np
import planted
import pytest
from messages import mentions
from planted import BAD, GOOD, WORDS, records, results, said

import bertzoo
from bertzoo.heads import TokenClassification
from bertzoo.runs import load_model

OPTIONS = ["--own.kind=entities", "--own.train=train.jsonl", "--own.dev=dev.jsonl", "--max_length=16", "--seeds=1"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts of up to 50 words: a good word is a NAME, with its surname if it has one, and a bad one is a PLACE."""
    folder, draw = tmp_path_factory.mktemp("spans"), np.random.default_rng(4)
    for name, count in (("train", 160), ("dev", 30)):
        lines = []
        for _ in range(count):
            text, spans = "", []
            for _ in range(draw.integers(1, 12)):
                kind = int(draw.integers(3))
                names = [draw.choice(GOOD), *draw.choice(WORDS[8:10], draw.integers(2))]
                words = [names, draw.choice(BAD, 1), draw.choice(WORDS[10:], 4)][kind]
                text += f" {draw.choice(WORDS[10:])} "
                if kind < 2:
                    end = len(text) + len(" ".join(words))
                    spans.append({"start": len(text), "end": end, "label": ("NAME", "PLACE")[kind]})
                text += " ".join(words)
            lines.append(json.dumps({"text": text, "spans": spans}))
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def untrained(folder: Path, data: Path) -> dict[str, Path]:
    """Models with drawn heads: one for spans, one for tags of words without prefixes."""
    base = load_model.read_model(folder / "model")
    head = TokenClassification(labels=("O", "B-NAME", "I-NAME", "B-PLACE", "I-PLACE"))
    own = {"kind": "entities", "train": "", "aggregation": "average"}
    planted.write(data / "spans", base.model, head, base.tokenizer, task="own", max_length=16, own=own)
    planted.write(data / "tags", base.model, TokenClassification(labels=("NAME", "O")), base.tokenizer)
    return {name: data / name for name in ("spans", "tags")}


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--own.scheme=BIOES", "--own.aggregation=average"]], ids=["BIO", "BIOES"])
def test_a_run_finds_the_entities_of_texts_longer_than_its_rows(options, folder: Path, data: Path, tmp_path, capsys):
    run = tmp_path / "run"
    assert planted.finetune(folder, run, f"--data_dir={data}", *OPTIONS, *options, "--epochs=6") == 0
    (seed,) = results(run)["seeds"]
    assert list(seed["scores"]["dev"]) == ["entity_f1", "entity_precision", "entity_recall"]
    assert seed["score"] == seed["scores"]["dev"]["entity_f1"] > 90
    for path in (run, run / "seed-0" / "model"):
        words = ["evaluate", path, f"--input={data / 'dev.jsonl'}"] if path != run else ["evaluate", run]
        document = json.loads(said(capsys, *words, "--json")[0])
        assert list(document["scores"].values()) == [seed["scores"]["dev"]]
    rows = [json.loads(line) for line in (data / "dev.jsonl").read_text().splitlines()]
    found = records(capsys, run, f"--input={data / 'dev.jsonl'}")
    true, predicted = (
        {(nth, e["start"], e["end"], e["label"]) for nth, spans in enumerate(both) for e in spans}
        for both in ([row["spans"] for row in rows], [record["entities"] for record in found])
    )
    f1 = 200 * len(true & predicted) / (len(true) + len(predicted))
    assert f1 == pytest.approx(seed["score"])  # of characters, as of words
    assert max(span[1] for span in true & predicted) > 120  # characters; a row has 14 tokens
    for row, record in zip(rows, found, strict=True):
        assert all(row["text"][e["start"] : e["end"]] == e["text"] for e in record["entities"])


def test_a_text_of_any_length_gives_the_same_in_any_batch(untrained: dict[str, Path], capsys, tmp_path):
    texts = ["", " bara, doti", "Bara " * 60, "doti\nbaso keti"]
    found = records(capsys, untrained["spans"], *texts)
    assert [record["index"] for record in found] == ["0", "1", "2", "3"] and found[0]["entities"] == []
    assert max(e["end"] for e in found[2]["entities"]) > 250
    for record, text in zip(found, texts, strict=True):
        assert all(e["text"] == text[e["start"] : e["end"]] and 0 < e["score"] <= 1 for e in record["entities"])
    for size in (1, 3):
        again = records(capsys, untrained["spans"], *texts, f"--batch_size={size}")
        for one, other in zip(again, found, strict=True):
            assert [{**e, "score": 0} for e in one["entities"]] == [{**e, "score": 0} for e in other["entities"]]
    assert bertzoo.predict(untrained["spans"], texts) == found
    out, err = said(capsys, "predict", untrained["spans"], *texts)
    lines = [f"    {e['start']}-{e['end']} {e['label']} {e['score']:.0%} " for e in found[1]["entities"]]
    assert all(line in out for line in lines) and lines and mentions(err, "1 of 4", "empty")
    said(capsys, "predict", untrained["spans"], *texts, f"--output={tmp_path / 'out.tsv'}")
    table = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()]
    assert table[0] == ["index", "start", "end", "label", "score", "text"]
    assert [row[:4] for row in table[1:]] == [
        [record["index"], str(e["start"]), str(e["end"]), e["label"]] for record in found for e in record["entities"]
    ]


def test_a_model_that_tags_words_finds_entities_on_request(untrained: dict[str, Path], finished: Path, capsys):
    text = "batien basora baenti baraso dotien dosora " * 9  # words of two tokens and more
    tags = records(capsys, untrained["tags"], text)[0]
    assert tags.keys() >= {"words", "tags"} and tags["cut"]
    found = {name: records(capsys, untrained["tags"], text, f"--aggregation={name}") for name in ("first", "simple")}
    for (record,) in found.values():
        assert record["entities"] and {e["label"] for e in record["entities"]} == {"NAME"}
    assert bertzoo.predict(untrained["tags"], [text], aggregation="first") == found["first"]
    assert found["first"] != found["simple"]
    usual, average, other = (
        records(capsys, untrained["spans"], text, *words)
        for words in ([], ["--aggregation=average"], ["--aggregation=max"])
    )
    assert usual == average != other
    err = said(capsys, "predict", finished, "bara", "--aggregation=max", code=2)[1]
    assert mentions(err, "--aggregation=max", finished)


def test_a_span_that_splits_a_word_stops_the_run(folder: Path, data: Path, tmp_path, capsys):
    for name in ("train", "dev"):
        (tmp_path / f"{name}.jsonl").write_text((data / f"{name}.jsonl").read_text())
    with (tmp_path / "dev.jsonl").open("a") as file:
        file.write('{"text": "bara doti", "spans": [{"start": 0, "end": 2, "label": "NAME"}]}\n')
    assert planted.finetune(folder, tmp_path / "run", f"--data_dir={tmp_path}", *OPTIONS) == 2
    assert mentions(capsys.readouterr().err, "dev.jsonl", "line 31", "span 1", "'ba'", "'bara'")
    assert not (tmp_path / "run").exists()
