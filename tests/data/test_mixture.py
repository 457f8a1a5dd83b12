"""Mixtures: the meaning of a weight, determinism, and the corpus's hash."""

import json
from collections import Counter
from dataclasses import replace

import pytest
import tomli_w
from made_up import made_up_documents, small, write_documents
from messages import mentioning, mentions

from bertzoo.cli.main import main
from bertzoo.core import config
from bertzoo.core.errors import ConfigError
from bertzoo.data.corpus import tokenize as module
from bertzoo.data.corpus.reader import Corpus
from bertzoo.data.corpus.tokenize import tokenize
from bertzoo.data.hashes import is_chosen, is_heldout
from bertzoo.data.pipeline import open_corpus
from bertzoo.data.settings import Data, MixtureSource
from bertzoo.data.sources.pieces import cut_pieces

HELDOUT = 0.1


@pytest.fixture
def sources(tmp_path):
    for name, count in {"a": 3000, "b": 2000}.items():
        (tmp_path / f"{name}.txt").write_text("\n\n".join(f"{name} number {i}" for i in range(count)))
    return {name: str(tmp_path / f"{name}.txt") for name in "ab"}


def read(parts, piece_bytes=5000):
    found = list(cut_pieces(parts, heldout=HELDOUT, piece_bytes=piece_bytes))
    assert [piece.index for piece in found] == list(range(len(found)))
    return found


def test_a_weight_is_the_number_of_copies_of_each_document(sources):
    parts = [MixtureSource(source=sources["a"], weight=0.25), MixtureSource(source=sources["b"], weight=2.5)]
    found = read(parts)
    counts = Counter(document for piece in found for document in piece.documents)
    a = {document for document in counts if document.startswith("a")}
    assert set(counts[document] for document in a) == {1}
    assert a == {f"a number {i}" for i in range(3000) if is_chosen(f"a number {i}", 0.25)}
    assert abs(len(a) - 750) < 5 * (3000 * 0.25 * 0.75) ** 0.5
    assert sum(piece.left_out for piece in found) == 3000 - len(a)
    for i in range(2000):
        document = f"b number {i}"
        expected = 1 if is_heldout(document, HELDOUT) else 3 if is_chosen(document, 0.5) else 2
        assert counts[document] == expected
    assert abs(sum(counts[f"b number {i}"] == 3 for i in range(2000)) - 900) < 5 * (2000 * 0.45 * 0.55) ** 0.5
    assert {piece.source for piece in found} == {0, 1} and {piece.repetition for piece in found} == {0, 1, 2}
    assert found == read(parts)


def test_a_larger_weight_includes_the_documents_of_a_smaller_one(sources):
    taken = [
        {text for piece in read([MixtureSource(source=sources["a"], weight=weight)]) for text in piece.documents}
        for weight in (0.1, 0.4, 1.0)
    ]
    assert taken[0] < taken[1] < taken[2]


def test_the_weighted_choice_is_independent_of_the_heldout_choice(sources):
    chosen = [d for piece in read([MixtureSource(source=sources["a"], weight=0.5)]) for d in piece.documents]
    share = sum(is_heldout(document, HELDOUT) for document in chosen) / len(chosen)
    assert abs(share - HELDOUT) < 5 * (HELDOUT * (1 - HELDOUT) / len(chosen)) ** 0.5


def test_a_last_piece_without_documents_still_counts_what_was_left_out(tmp_path):
    documents = [d for d in (f"document {i}" for i in range(200)) if not is_chosen(d, 0.01)]
    (tmp_path / "a.txt").write_text("\n\n".join(documents))
    (piece,) = read([MixtureSource(source=str(tmp_path / "a.txt"), weight=0.01)])
    assert (piece.documents, piece.left_out) == ((), len(documents))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    directory = tmp_path_factory.mktemp("mixed")
    write_documents(directory / "a.txt", made_up_documents(80, seed=1))
    lines = [json.dumps({"body": "\n".join(document)}) for document in made_up_documents(80, seed=2)]
    (directory / "b.jsonl").write_text("\n".join(lines))
    parts = (
        MixtureSource(source=str(directory / "a.txt"), weight=2.0),
        MixtureSource(source=str(directory / "b.jsonl"), text_field="body", weight=0.5),
    )
    return small("mixture", mixture=parts)


@pytest.fixture(scope="module")
def corpus(mixed, tmp_path_factory):
    return tokenize(mixed, tmp_path_factory.mktemp("corpus") / "c", workers=1)


def test_a_mixed_corpus_counts_the_documents_of_every_part(mixed, corpus, tmp_path):
    first, second = corpus.manifest.raw["parts"]
    texts = [
        list(module._training_documents(replace(part, weight=1.0), replace(mixed, heldout=1e-9)))
        for part in mixed.sources
    ]
    heldout = sum(is_heldout(document, mixed.heldout) for document in texts[0])
    assert heldout and first["documents"] == 160 - heldout, "both copies, and the held-out documents once"
    assert second["documents"] == sum(is_chosen(document, 0.5) for document in texts[1])
    assert corpus.manifest.raw["dropped"]["left_out"] == 80 - second["documents"]
    assert corpus.manifest.raw["dropped"]["duplicate"] == 0
    assert sum(part["tokens"] for part in (first, second)) == sum(s.tokens for s in corpus.manifest.splits.values())
    assert [(part["source"], part["weight"]) for part in (first, second)] == [
        (part.source, part.weight) for part in mixed.mixture
    ]
    assert tokenize(mixed, tmp_path / "again", workers=1).hash == corpus.hash
    other = replace(mixed, mixture=(mixed.mixture[0], replace(mixed.mixture[1], weight=0.6)))
    assert tokenize(other, tmp_path / "other", workers=1).hash != corpus.hash


def test_the_verb_prints_the_documents_of_every_part(mixed, tmp_path, capsys):
    file = tmp_path / "mixture.toml"
    file.write_text(tomli_w.dumps({"data": config.plain(mixed)}))
    arguments = ["tokenize", "mixture", str(tmp_path / "c"), "--config=squeezebert", f"--config={file}", "--workers=1"]
    assert main(arguments) == 0
    told = capsys.readouterr().out
    made = Corpus.open(tmp_path / "c").manifest.raw
    for part, weight in zip(made["parts"], (2, 0.5), strict=True):
        (line,) = (line for line in told.splitlines() if line.startswith(part["source"]))
        assert mentions(line, f"weight {weight}:", f"{part['documents']:,}", f"{part['tokens']:,}")
    assert mentions(told, made["dropped"]["left_out"], f"--data.source={tmp_path / 'c'}")
    assert main([*arguments, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["hash"], printed["parts"]) == (made["hash"], made["parts"])
    documents = {split: counts["documents"] for split, counts in printed["splits"].items()}
    assert documents == {split: made["splits"][split]["documents"] for split in ("train", "heldout")}


def test_a_corpus_is_known_by_its_mixture(mixed, corpus, tmp_path):
    data = small(corpus.directory)
    assert open_corpus(data, tmp_path / "unused").hash == corpus.hash
    assert open_corpus(replace(data, mixture=mixed.mixture), tmp_path / "unused").hash == corpus.hash
    other = (mixed.mixture[0], replace(mixed.mixture[1], weight=0.6))
    with pytest.raises(ConfigError, match=mentioning(corpus.directory, "mixture")):
        open_corpus(replace(data, mixture=other), tmp_path / "unused")
    with pytest.raises(ConfigError, match=mentioning("source", "mixture")):
        tokenize(replace(mixed, source=mixed.mixture[0].source), tmp_path / "d", workers=1)


def test_every_part_contributes_text_to_the_vocabulary(mixed, monkeypatch):
    monkeypatch.setattr(module, "TRAIN_BYTES", 8000)
    trained = list(module._training_texts(mixed))
    texts = [set(module._training_documents(replace(part, weight=1.0), mixed)) for part in mixed.sources]
    sizes = [sum(len(document.encode()) for document in trained if document in own) for own in texts]
    longest = max(len(document.encode()) for own in texts for document in own)
    assert all(4000 <= size < 4000 + longest for size in sizes)


def test_a_config_file_has_tables_of_parts(tmp_path):
    file = tmp_path / "mixture.toml"
    file.write_text(
        'source = "mixture"\n[[mixture]]\nsource = "tfds:c4/en"\nweight = 0.01\n[[mixture]]\nsource = "w"\n'
    )
    data = config.load(Data, [str(file)])
    assert data.sources == (
        MixtureSource(source="tfds:c4/en", text_field="text", weight=0.01),
        MixtureSource(source="w", text_field="text"),
    )
