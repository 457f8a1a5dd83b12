"""Use of vectors of texts: indexes, also of exported files and hostile ones, retrieval, and wrong arguments."""

import dataclasses
import json
import os
import resource
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from beginning import write_model
from embedding_runs import TOPICS, WORDS, write_beir
from in_jax import Export
from messages import mentioning, mentions
from tiers import quick

import bertzoo
from bertzoo.cli import main as cli
from bertzoo.conversion import heads
from bertzoo.conversion.tensors import read_safetensors, write_safetensors
from bertzoo.core.atomic import WriteError
from bertzoo.core.errors import UserError
from bertzoo.export.file_model import open_embedding_model
from bertzoo.finetuning import embed, embedding_scores
from bertzoo.finetuning.embed import build_index, read_index
from bertzoo.runs import load_model

TEXTS = [f"{a} {b}" for a in WORDS for b in WORDS]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in `model`, and in `run` one that embeds texts of at most 12 tokens; no test changes them."""
    folder = tmp_path_factory.mktemp("index")
    write_model(folder / "model", WORDS, np.random.default_rng(0))
    plain, _ = heads.keep_head(load_model.read_model(folder / "model"), "none")
    made = heads.add_pooling(plain, "mean")
    head, source = dataclasses.replace(made.head, normalise=True), made.source | {"max_length": 12}
    (folder / "run").mkdir()
    load_model.write_model(dataclasses.replace(made, head=head, source=source), folder / "run")
    return folder


@pytest.fixture(scope="module")
def sentences(place: Path) -> Path:
    """The run's model as a directory of sentence-transformers, with a pooler that no vector uses."""
    folder = place / "sentences"
    bertzoo.convert(place / "run", folder, to="huggingface")
    weights = read_safetensors(folder / "model.safetensors")
    pooler = {"pooler.dense.weight": np.eye(16, dtype=np.float32), "pooler.dense.bias": np.ones(16, np.float32)}
    write_safetensors(weights | pooler, folder / "model.safetensors")
    assert load_model.read_model(folder).unused
    return folder


@pytest.mark.parametrize("options", quick(["", "--precision=int8-dynamic", "--output=binary", "--size=8"], "--size=8"))
def test_a_file_queries_the_index_of_its_model(sentences: Path, tmp_path, monkeypatch, options: str):
    Export(tmp_path).stand_in(monkeypatch)
    file = Export(tmp_path)(sentences, "--lengths=12", *options.split())
    model, exported = open_embedding_model(sentences), open_embedding_model(file)
    build_index(model, TEXTS[:9], tmp_path / "index", size=8)
    index = read_index(tmp_path / "index")
    for other in (model, exported):
        index.check_model(other)
    bertzoo.convert(sentences, tmp_path / "own", to="bertzoo")
    index.check_model(open_embedding_model(tmp_path / "own"))
    assert cli.main(["search", "query", str(file), "bara", f"--index={tmp_path / 'index'}"]) == 0
    with pytest.raises(UserError, match=mentioning("batch_size", 4, file.name)):
        bertzoo.embed(file, ["bara"], batch_size=4)


def test_another_model_cannot_query_an_index(place: Path, tmp_path):
    model = open_embedding_model(place / "run")
    build_index(model, TEXTS[:9], tmp_path / "index")
    made, words, index = model.pretrained, cast(Any, model.pretrained.tokenizer), read_index(tmp_path / "index")
    name, entries = next(iter(made.params)), [words.token(i) for i in range(words.vocab_size)]
    cased = dataclasses.replace(words.config, lowercase=False)
    changes = (
        {"params": made.params | {name: made.params[name] + 1}},
        {"model": dataclasses.replace(made.model, norm_epsilon=0.5)},
        {"head": dataclasses.replace(made.head, pooling="max")},
        {"head": dataclasses.replace(made.head, normalise=False)},
        {"tokenizer": type(words)(words.config, [*entries[:-2], *entries[:-3:-1]], "here")},
        {"tokenizer": type(words)(cased, entries, "here")},
    )
    for change in changes:
        pretrained = dataclasses.replace(made, **change)
        with pytest.raises(UserError, match=mentioning("other", "not the model")):
            index.check_model(dataclasses.replace(model, pretrained=pretrained, path=Path("other")))


def test_a_query_of_another_model_stops(place: Path, tmp_path, capsys):
    build_index(open_embedding_model(place / "run"), TEXTS[:9], tmp_path / "index")
    bertzoo.convert(place / "model", tmp_path / "other", to="huggingface", head="none", pooling="max")
    assert cli.main(["search", "query", str(tmp_path / "other"), "a", f"--index={tmp_path / 'index'}"]) == 2
    assert mentions(capsys.readouterr().err, "not the model")


def test_a_relevant_document_may_have_its_querys_identifier(place: Path, tmp_path, monkeypatch):
    """One query is compared at a time, so each must be compared with its own documents."""
    monkeypatch.setattr(embed, "_QUERIES", 1)
    records = [{"_id": str(i), "text": text} for i, text in enumerate(TOPICS)]
    write_beir(tmp_path / "a", records, records, [(str(i), str(i)) for i in range(4)])
    found = bertzoo.evaluate(place / "run", task="retrieval", data_dir=tmp_path / "a")
    assert found["scores"]["test"]["mrr_10"] == 100
    other = [*records, {"_id": "9", "text": TOPICS[0]}]
    write_beir(tmp_path / "b", other, records, [("0", "9")])  # the query's own text is no result
    found = bertzoo.evaluate(place / "run", task="retrieval", data_dir=tmp_path / "b")
    assert found["scores"]["test"]["mrr_10"] == 100


def test_records_of_a_corpus(tmp_path):
    queries, judged = [{"_id": "q", "text": "c"}], [("q", "1")]
    write_beir(tmp_path / "a", [{"_id": 1, "text": "a"}, {"_id": "2", "title": "b", "text": "c"}], queries, judged)
    data = embedding_scores.read_retrieval(tmp_path / "a", "test")
    assert data.documents == {"1": "a", "2": "b c"}
    wrong = {
        "twice": ([{"_id": "1", "text": "a"}, {"_id": 1, "text": "b"}], ("line 2", "'1'", "earlier")),
        "none": ([{"_id": "1", "text": "a"}, {"text": "b"}], ("line 2", "_id", "None")),
        "true": ([{"_id": True, "text": "a"}], ("line 1", "_id", "True")),
        "textless": ([{"_id": "1", "text": "a"}, {"_id": "2"}], ("line 2", "text")),
        "titled": ([{"_id": "1", "text": "a", "title": 5}], ("line 1", "title", 5)),
    }
    for name, (documents, parts) in wrong.items():
        write_beir(tmp_path / name, documents, queries, judged)
        with pytest.raises(UserError, match=mentioning(*parts)):
            embedding_scores.read_retrieval(tmp_path / name, "test")


def test_an_empty_texts_vector_has_no_neighbours(place: Path):
    model = open_embedding_model(place / "run")
    (alone,) = model.embed([""], long="average")
    beside = model.embed(["", " ".join(WORDS * 2)], long="average")[0]
    assert np.abs(alone).max() > 0
    np.testing.assert_allclose(beside, alone, atol=1e-6)


@pytest.mark.parametrize("long", ["cut", "average"])
def test_parts_repeat_the_vectors_of_all_texts(place: Path, monkeypatch, long: Any):
    model = open_embedding_model(place / "run")
    texts = [" ".join(WORDS * 2), *TEXTS[:9], "", " ".join(WORDS[::-1] * 3)]
    whole = model.embed(texts, prompt="bara ", long=long)
    np.testing.assert_allclose(model.embed([f"bara {text}" for text in texts], long=long), whole, atol=1e-6)
    assert np.abs(model.embed(texts, long=long) - whole).max() > 0.01
    monkeypatch.setattr(embed, "_CHUNK", 5)
    parts = list(model.batches(texts, prompt="bara ", long=long))
    assert [len(part) for part, _ in parts] == [5, 5, 2] and [longer for _, longer in parts] == [1, 0, 1]
    np.testing.assert_allclose(np.concatenate([part for part, _ in parts]), whole, atol=1e-6)
    if long == "cut":
        np.testing.assert_allclose(model.embed([" ".join(WORDS)])[0], model.embed([" ".join(WORDS[:10])])[0], atol=1e-6)


def test_a_model_keeps_its_programs(place: Path, monkeypatch):
    model, built = open_embedding_model(place / "run"), []
    runner = embed.FlaxRunner
    monkeypatch.setattr(embed, "FlaxRunner", lambda *arguments: built.append(1) or runner(*arguments))
    monkeypatch.setattr(embed, "_CHUNK", 3)
    for _ in range(2):
        model.embed(TEXTS[:9])
    assert len(built) == 1


@pytest.mark.parametrize(
    ("texts", "options", "parts"),
    [
        (["a"], {"precision": "ubinary"}, ("ubinary", "float32, int8, binary")),
        ([], {"precision": "ubinary"}, ("ubinary", "float32, int8, binary")),
        (["a"], {"long": "avg"}, ("avg", "cut, average")),
        (["a"], {"truncate_dim": -3}, (-3, 16)),
        (["a"], {"truncate_dim": 17}, (17, 16)),
        (["a"], {"batch_size": -1}, ("batch_size", -1)),
        ([1], {}, ("text 1", "int")),
        (["a", ("b", "c")], {}, ("text 2", "tuple")),
        (["\ud800"], {}, ("text 1", "surrogate")),
    ],
)
def test_wrong_arguments_of_an_encoder(place: Path, texts: list[Any], options: dict[str, Any], parts: tuple[Any, ...]):
    with pytest.raises(UserError, match=mentioning(*parts)):
        bertzoo.embed(place / "run", texts, **options)


@pytest.mark.parametrize("length", [-4, 0, 2])
def test_rows_without_room_for_a_text(place: Path, length: int):
    model = dataclasses.replace(open_embedding_model(place / "run"), max_length=length)
    with pytest.raises(UserError, match=mentioning("max_length", length, 3)):
        model.embed(["bara"])


def test_an_encoder_of_queries_documents_and_bits(place: Path):
    encoder = bertzoo.TextEncoder(place / "run")
    model = encoder._model
    source = model.pretrained.source | {"prompts": {"query": "bara ", "passage": "doti "}}
    encoder._model = dataclasses.replace(model, pretrained=dataclasses.replace(model.pretrained, source=source))
    np.testing.assert_array_equal(encoder.encode_query("kelu"), encoder.encode("bara kelu"))
    np.testing.assert_array_equal(encoder.encode_document(["kelu"]), encoder.encode(["doti kelu"]))
    np.testing.assert_array_equal(encoder.encode_query("kelu", prompt="x "), encoder.encode("x kelu"))
    bits = encoder.encode(TEXTS[:5], precision="binary")
    signs = 2.0 * np.unpackbits(bits, axis=1) - 1
    np.testing.assert_allclose(encoder.similarity(bits, bits), signs @ signs.T / 16, atol=1e-6)
    with pytest.raises(UserError, match=mentioning("uint8", "float32")):
        encoder.similarity(bits, encoder.encode(TEXTS[:5]))


def rewrite(folder: Path, **changes: Any) -> None:
    path = folder / "index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def pipe(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)


def not_finite(folder: Path) -> None:
    rewrite(folder, precision="float32")
    (folder / "vectors.raw").write_bytes(np.full((9, 16), np.nan, np.float32).tobytes())


def hostile_text(folder: Path, line: str) -> None:
    (folder / "texts.jsonl").write_text((line + "\n") * 9)


HOSTILE = {
    "an empty file": (lambda folder: (folder / "vectors.raw").write_bytes(b""), "vectors.raw"),
    "no file": (lambda folder: (folder / "vectors.raw").unlink(), "vectors.raw"),
    "a longer file": (lambda folder: (folder / "vectors.raw").write_bytes(b"0" * (9 * 16 + 1)), "vectors.raw"),
    "a vast size": (lambda folder: rewrite(folder, size=10**30), "index.json"),
    **{f"a pipe {name}": (lambda folder, name=name: pipe(folder, name), name)
       for name in ("vectors.raw", "texts.jsonl", "index.json")},
    "no texts": (lambda folder: rewrite(folder, texts=0), "texts"),
    "negative texts": (lambda folder: rewrite(folder, texts=-9), "texts"),
    "no dimensions": (lambda folder: rewrite(folder, size=0), "size"),
    "an unknown long": (lambda folder: rewrite(folder, long="zzz"), "long"),
    "an unknown precision": (lambda folder: rewrite(folder, precision="int4"), "precision"),
    "another version": (lambda folder: rewrite(folder, version=1), "version"),
    "NaN": (not_finite, "vectors.raw"),
    "half of a surrogate pair": (lambda folder: hostile_text(folder, '"\\ud800"'), "texts.jsonl"),
    "a number": (lambda folder: hostile_text(folder, "7"), "texts.jsonl"),
    "not JSON": (lambda folder: hostile_text(folder, "x"), "texts.jsonl"),
    "a missing line": (lambda folder: hostile_text(folder, '"a"\n"b"'), "texts.jsonl"),
}  # fmt: skip


@pytest.mark.parametrize("attack", HOSTILE)
def test_a_hostile_index_is_named(place: Path, tmp_path, capsys, attack: str):
    build_index(open_embedding_model(place / "run"), TEXTS[:9], tmp_path / "index")
    change, name = HOSTILE[attack]
    change(tmp_path / "index")
    capsys.readouterr()
    assert cli.main(["search", "query", str(place / "run"), "bara", f"--index={tmp_path / 'index'}"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and mentions(said.err, name, "index")


def test_printed_texts_have_no_control_characters(place: Path, tmp_path, capsys):
    text = "bara\x1b[2J \x9b1m \u202e doti"
    build_index(open_embedding_model(place / "run"), [text], tmp_path / "index")
    words = ["search", "query", str(place / "run"), "kelu\x07", f"--index={tmp_path / 'index'}"]
    for more in ([], ["--json"]):
        capsys.readouterr()
        assert cli.main([*words, *more]) == 0
        out = capsys.readouterr().out
        assert out.replace("\n", "").isprintable()
    assert json.loads(out)[0]["text"] == text


def test_an_index_on_a_full_disk(place: Path, tmp_path, monkeypatch):
    """The vectors are written as they come, so that an error stops the command; a memory map would get a signal."""
    monkeypatch.setattr(embed, "_CHUNK", 10)
    model, sizes = open_embedding_model(place / "run"), []

    def measure(line: str) -> None:
        sizes.extend(file.stat().st_size for file in tmp_path.rglob("vectors.raw"))

    monkeypatch.setattr(embed._LOG, "info", measure)
    build_index(model, TEXTS, tmp_path / "index", precision="float32")
    assert sizes[0] < (tmp_path / "index" / "vectors.raw").stat().st_size == len(TEXTS) * 16 * 4
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limits[1]))
    try:
        with pytest.raises(WriteError, match=mentioning("full")):
            build_index(model, TEXTS, tmp_path / "full", precision="float32")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (tmp_path / "full").exists()


@pytest.mark.parametrize("precision", ["float32", "int8", "binary"])
def test_an_index_finds_the_nearest_texts(place: Path, tmp_path, monkeypatch, precision: Any):
    """Parts and groups of queries change nothing, and equal vectors keep their order."""
    model, texts = open_embedding_model(place / "run"), [*TEXTS * 2, "a\u2028b\nc"]
    build_index(model, texts, tmp_path / "index", precision=precision)
    index, queries = read_index(tmp_path / "index"), model.embed(["bara doti", "zupi vexo tami", "kelu"])
    assert [index.text(row) for row in range(len(texts))] == texts
    whole = index.search(queries, 6)
    for hits, cosines in zip(whole, queries @ model.embed(texts).T, strict=True):
        scores, tolerance = [hit.score for hit in hits], 1e-6 if precision == "float32" else 0.01
        np.testing.assert_allclose(scores, np.sort(cosines)[::-1][:6], atol=tolerance)
        assert [hit.text for hit in hits] == [texts[hit.row] for hit in hits]
        assert [hit.row for hit in hits] == [hit.row for hit in sorted(hits, key=lambda hit: (-hit.score, hit.row))]
    monkeypatch.setattr(embed, "_COMPARED", 7)
    monkeypatch.setattr(embed, "_QUERIES", 2)
    again = index.search(queries, 6)
    assert [[hit.text for hit in hits] for hits in again] == [[hit.text for hit in hits] for hits in whole]
    np.testing.assert_allclose(*([[hit.score for hit in hits] for hits in both] for both in (again, whole)), atol=1e-6)
    assert [len(hits) for hits in index.search(queries, 1000)] == [len(texts)] * 3


def test_a_text_file_has_a_text_in_each_line(place: Path, tmp_path, capsys):
    file, run = tmp_path / "texts.txt", str(place / "run")
    file.write_text("bara doti\n\nkelu\r\n")
    assert cli.main(["embed", run, f"--input={file}"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    np.testing.assert_allclose(printed, bertzoo.embed(run, ["bara doti", "", "kelu"]), atol=1e-5)
    assert cli.main(["embed", run, f"--input={file}", "--text_a=x"]) == 2
    assert mentions(capsys.readouterr().err, "--text_a=x")


def test_written_vectors_have_the_precision(place: Path, tmp_path, monkeypatch):
    monkeypatch.setattr(embed, "_CHUNK", 5)
    for precision in ("float32", "int8", "binary"):
        path = tmp_path / f"{precision}.npy"
        assert cli.main(["embed", str(place / "run"), *TEXTS[:12], f"--precision={precision}", "-o", str(path)]) == 0
        np.testing.assert_array_equal(np.load(path), bertzoo.embed(place / "run", TEXTS[:12], precision=precision))
