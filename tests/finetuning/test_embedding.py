"""Fine-tuning of vectors: learning, a teacher's vectors, scores, search; vectors equal numpy's from the same states."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiers
from embedding_runs import TOPICS, WORDS, finetune, write_beir
from messages import mentioning, mentions
from planted import said
from tiny import devices

import bertzoo
from bertzoo.cli import main as cli
from bertzoo.core import config
from bertzoo.core.errors import ConfigError
from bertzoo.export.file_model import open_embedding_model
from bertzoo.finetuning import embedding_scores
from bertzoo.finetuning.embed import quantised, unit_vectors
from bertzoo.finetuning.embedding import TextSplit
from bertzoo.finetuning.settings import EmbeddingOptions, Finetune
from bertzoo.heads import SentenceEmbedding
from bertzoo.runs import load_model


def test_a_run_learns_and_its_model_repeats_the_score(place: Path):
    results = json.loads((place / "run" / "results.json").read_text())
    history = results["seeds"][0]["history"]
    assert history[-1]["scores"]["dev"]["mrr"] > history[0]["scores"]["dev"]["mrr"]
    assert history[-1]["loss"] < history[0]["loss"]
    found = bertzoo.evaluate(place / "run")
    best = results["seeds"][0]
    assert found["scores"]["dev"] == pytest.approx(best["scores"]["dev"], abs=1e-3)
    assert found["scores"]["dev"].keys() == {"mrr", "accuracy", "mrr_4", "accuracy_4"}


def test_vectors_are_the_normalised_means_of_states(place: Path):
    texts = ["bara doti", "kelu mopi nuro sati vexo"]
    model = load_model.read_model(place / "run")
    module, params = model.module()
    found = bertzoo.embed(place / "run", texts)
    specials = model.tokenizer.specials
    for text, vector in zip(texts, found, strict=True):
        ids = np.array([[specials.cls, *model.tokenizer.encode_batch([text])[0], specials.sep]])
        states = module.apply({"params": params}, ids, 0 * ids, 0 * ids + 1).hidden_states[-1][0]
        mean = np.asarray(states).mean(0)
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)
    cut = bertzoo.embed(place / "run", texts, truncate_dim=4)
    np.testing.assert_allclose(cut, unit_vectors(found[:, :4]), atol=1e-6)


def test_a_long_text_is_the_weighted_mean_of_its_pieces(place: Path):
    model = open_embedding_model(place / "run")
    words = WORDS * 2  # 24 words and no room for more than 10 in a row
    (whole,) = model.embed([" ".join(words)], long="average")
    pieces = np.array_split(np.array(words), 3)
    parts = model.embed([" ".join(piece) for piece in pieces])
    (counts,) = [[len(model.tokenizer.encode_batch([" ".join(piece)])[0]) for piece in pieces]]
    assert sum(counts) > 2 * 10 and max(counts) <= 10
    mean = np.average(parts, axis=0, weights=counts)
    np.testing.assert_allclose(whole, mean / np.linalg.norm(mean), atol=1e-5)
    (cut,) = model.embed([" ".join(words)])
    np.testing.assert_allclose(cut, model.embed([" ".join(words[:10])])[0], atol=1e-5)


def split_of(pairs: list[tuple[str, ...]], similarity: list[float] | None = None, **fields: Any) -> TextSplit:
    number = {text: i for i, text in enumerate(dict.fromkeys(text for pair in pairs for text in pair))}
    index = np.array([[number[text] for text in pair] for pair in pairs], np.int32)
    rows: Any = None
    given = None if similarity is None else np.array(similarity, np.float32)
    return TextSplit(examples=[], rows=rows, index=index, similarity=given, **fields)


def test_the_rank_of_a_partner_by_brute_force():
    draw = np.random.default_rng(3)
    pairs = [(f"q{i % 9}", f"d{i}") for i in range(14)] + [("d3", "d5")]  # some queries have two partners
    split = split_of(pairs)
    vectors = draw.normal(size=(len({t for p in pairs for t in p}), 6))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    names = list(dict.fromkeys(t for p in pairs for t in p))
    ranks, losses = [], []
    for query, partner in pairs:
        others = {d for q, d in pairs if q == query} | {query}
        candidates = [d for d in dict.fromkeys(d for _, d in pairs) if d == partner or d not in others]
        cosines = np.array([unit[names.index(query)] @ unit[names.index(d)] for d in candidates])
        own = cosines[candidates.index(partner)]
        ranks.append(1 + int((cosines > own).sum()))
        losses.append(np.log(np.exp(cosines / 0.05).sum()) - own / 0.05)
    scores = split.scores(vectors)
    assert scores["mrr"] == pytest.approx(100 * np.mean([1 / r if r <= 10 else 0 for r in ranks]))
    assert scores["accuracy"] == pytest.approx(100 * np.mean(np.array(ranks) == 1))
    assert split.loss(vectors) == pytest.approx(np.mean(losses))
    assert split.scores(vectors * np.nan) == {"mrr": 0, "accuracy": 0} and np.isnan(split.loss(vectors * np.nan))


def test_equal_cosines_share_their_ranks():
    """A collapsed model finds nothing: each of 5 partners has the rank 3."""
    split = split_of([(f"q{i}", f"d{i}") for i in range(5)])
    assert split.scores(np.ones((10, 4))) == {"mrr": pytest.approx(100 / 3), "accuracy": 0}


def test_similarities_are_ranked():
    split = split_of([("a", "b"), ("a", "c"), ("b", "c")], [0.1, 0.9, 0.5], sizes=(1,))
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.3]])
    assert split.scores(vectors)["spearman"] == pytest.approx(100)
    cosines = [0.0, 1 / np.hypot(1, 0.3), 0.3 / np.hypot(1, 0.3)]
    assert split.loss(vectors) == pytest.approx(np.mean(np.square(np.array(cosines) - [0.1, 0.9, 0.5])))
    assert len(split.distinct(np.ones((3, 2)))) == 1 and len(split.distinct(vectors)) == 3


def test_a_student_learns_a_teachers_directions(place: Path, tmp_path):
    run = tmp_path / "student"
    more = ("--own.text_b=", "--alpha=0", "--epochs=3", f"--embedding.vectors_dir={tmp_path}")
    assert finetune(place, run, f"--teacher={place / 'run'}", *more) == 0
    history = json.loads((run / "results.json").read_text())["seeds"][0]["history"]
    assert history[-1]["scores"]["dev"]["teacher_cosine"] > max(80, history[0]["scores"]["dev"]["teacher_cosine"])
    assert history[-1]["loss"] == pytest.approx(1 - history[-1]["scores"]["dev"]["teacher_cosine"] / 100, abs=1e-4)


def test_quantised_vectors():
    vectors = np.random.default_rng(1).normal(size=(50, 20))
    whole = quantised(vectors, "int8")
    assert whole.dtype == np.int8 and (np.abs(whole).max(1) == 127).all()
    np.testing.assert_array_equal(whole, np.round(127 * vectors / np.abs(vectors).max(1, keepdims=True)))
    bits = quantised(vectors, "binary")
    assert bits.shape == (50, 3) and bits.dtype == np.uint8
    np.testing.assert_array_equal(np.unpackbits(bits, axis=1)[:, :20], vectors > 0)


def test_the_verbs(place: Path, tmp_path, capsys):
    run, index = str(place / "run"), f"--index={tmp_path / 'index'}"
    out, _ = said(capsys, "embed", run, "bara doti", "vexo")
    expected = bertzoo.embed(run, ["bara doti", "vexo"])
    np.testing.assert_allclose([json.loads(line) for line in out.splitlines()], expected, atol=1e-5)
    out, _ = said(capsys, "embed", run, "bara doti", "bara doti", "--cosines")
    np.testing.assert_allclose([[float(value) for value in line.split()] for line in out.splitlines()], 1, atol=1e-3)
    said(capsys, "search", "index", run, *(f"{a} {b}" for a in WORDS for b in WORDS), index)
    out, _ = said(capsys, "search", "query", run, "bara doti", index, "--top=2", "--json")
    hits = json.loads(out)
    assert len(hits) == 2 and hits[0]["text"] in ("bara doti", "doti bara") and hits[0]["score"] > 0.99
    for words, parts in (
        (("embed", run, "a", "--output=x.txt"), ("x.txt", ".npy")),
        (("embed", run, "--cosines", *["bara"] * 1001), ("1,001", "1,000")),
        (("embed", run, "a", "--prompt=query"), ("query",)),
        (("embed", run, "a", f"--input={place / 'dev.jsonl'}"), ("TEXT", "--input")),
        (("embed", str(place / "model"), "a"), ("--head=embedding",)),
        (("predict", run, "a"), ("bertzoo embed",)),
        (("search", "index", run, "a", index), (str(tmp_path / "index"),)),
        (("search", "query", run, "a", index, "--precision=int8"), ("--precision",)),
        (("search", "query", run, "a", index, "--top=0"), ("--top", 0)),
    ):
        assert mentions(said(capsys, *words, code=2)[1], *parts), words


def test_scores_of_a_ranking_equal_scikit_learn():
    import sklearn.metrics

    draw = np.random.default_rng(5)
    scores = draw.normal(size=(30, 40))
    gains = draw.choice([0, 0, 0, 0, 1, 2], size=(30, 40))
    gains[:, 0] = 1
    names = [str(i) for i in range(40)]
    ranked = {str(q): [names[i] for i in np.argsort(-row)] for q, row in enumerate(scores)}
    relevance = {str(q): {names[i]: float(g) for i, g in enumerate(row) if g} for q, row in enumerate(gains)}
    found = embedding_scores.retrieval_scores(ranked, relevance)
    assert found["ndcg_10"] == pytest.approx(100 * sklearn.metrics.ndcg_score(gains, scores, k=10))
    first = [
        next((1 / (r + 1) for r, i in enumerate(np.argsort(-s)[:10]) if g[i]), 0)
        for s, g in zip(scores, gains, strict=True)
    ]
    assert found["mrr_10"] == pytest.approx(100 * np.mean(first))
    recalled = [(g[np.argsort(-s)[:10]] > 0).sum() / (g > 0).sum() for s, g in zip(scores, gains, strict=True)]
    assert found["recall_10"] == pytest.approx(100 * np.mean(recalled)) and found["recall_100"] == 100


def test_tasks_of_embeddings(place: Path, tmp_path):
    draw = np.random.default_rng(2)
    rows = [(TOPICS[i % 4], TOPICS[(i + (i // 4) % 2) % 4], 1 - (i // 4) % 2) for i in range(16)]
    pairs = "sentence1,sentence2,label\n" + "".join(f"{a},{b} {draw.choice(WORDS)},{c}\n" for a, b, c in rows)
    (tmp_path / "pairs.csv").write_text(pairs)
    texts = "text,label\n" + "".join(f"{' '.join(draw.permutation(t.split()))},{t[:4]}\n" for t in TOPICS * 6)
    (tmp_path / "topics.csv").write_text(texts)
    documents, queries = (
        [{"_id": f"{prefix}{i}", "text": t, "title": ""} for i, t in enumerate(TOPICS)] for prefix in "dq"
    )
    write_beir(tmp_path, documents, queries, [(f"q{i}", f"d{i}") for i in range(4)])

    def score(task: str, **source: Any) -> dict[str, float]:
        return bertzoo.evaluate(place / "run", task=task, **source)["scores"]["test"]

    assert score("retrieval", data_dir=tmp_path) == dict.fromkeys(("ndcg_10", "mrr_10", "recall_10", "recall_100"), 100)
    assert score("clustering", input=tmp_path / "topics.csv")["v_measure"] > 90
    found = score("pair_classification", input=tmp_path / "pairs.csv")
    assert found["average_precision"] > 90 and found["accuracy"] >= 87.5 and found["f1"] > 85
    assert score("sts", input=tmp_path / "pairs.csv")["spearman"] > 60


def test_options_of_embeddings_are_checked():
    for temperature in (-1.0, 0.0, float("inf")):
        with pytest.raises(ConfigError, match=mentioning("temperature", temperature)):
            EmbeddingOptions(temperature=temperature)
    SentenceEmbedding(size=32, sizes=(32, 16))
    with pytest.raises(ConfigError, match=mentioning("sizes", 64, "size = 32")):
        SentenceEmbedding(size=32, sizes=(64,))
    for options in ({"l2": -1.0}, {"directions": 0.0}, {"sizes": (0,)}, {"projection": -1}):
        with pytest.raises(ConfigError):
            EmbeddingOptions(**options)


def test_prompts(place: Path, tmp_path: Path):
    model = open_embedding_model(place / "run")
    source = model.pretrained.source | {"prompts": {"query": "bara ", "passage": "doti "}, "default_prompt": "passage"}
    model = dataclasses.replace(model, pretrained=dataclasses.replace(model.pretrained, source=source))
    assert (model.prompt("query"), model.prompt(None), model.prompt(None, "query")) == ("bara ", "doti ", "bara ")
    np.testing.assert_array_equal(model.embed(["kelu"], prompt=model.prompt(None)), model.embed(["doti kelu"]))
    with pytest.raises(bertzoo.core.errors.UserError, match=mentioning("answer", "query, passage")):
        model.prompt("answer")
    pairs, scores = [("kelu", "bara", 1), ("doti", "kera", 2), ("bara", "doti kera", 3)], []
    bare = dataclasses.replace(model, pretrained=dataclasses.replace(model.pretrained, source={}))
    for scored, before in ((model, ""), (bare, "doti ")):
        lines = [json.dumps({"sentence1": before + a, "sentence2": before + b, "score": c}) for a, b, c in pairs]
        (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
        scores.append(embedding_scores.score_embeddings(scored, "sts", input=str(tmp_path / "pairs.jsonl"))["scores"])
    assert scores[0]["test"]["pearson"] == pytest.approx(scores[1]["test"]["pearson"])


CONFIGS = {file.stem: file for file in (Path(__file__).parents[2] / "configs").glob("embed_*.toml")}
WIDE = ("squeezebert", "schubert", "static")  # as wide as their words
FILES = [("data_dir", "texts"), ("own.train", "train.jsonl"), ("own.dev", "dev.jsonl")]


@pytest.mark.parametrize("name", tiers.quick(CONFIGS, "embed_static"))
def test_a_few_steps(name: str, place: Path, tmp_path: Path) -> None:
    kind = config.load(Finetune, [name], FILES).model.kind
    width = "hidden_size" if kind in WIDE else "embedding_size"
    words = [f"--data_dir={place}", f"--from={place / 'run'}", f"--teacher={place / 'run'}", f"--run_dir={tmp_path}"]
    small = ["--model.vocab_size=73", f"--model.{width}=16", "--embedding.projection=16", "--batch_size=16"]
    with devices(1):
        assert cli.main(["finetune", name, *words, *small, "--epochs=1", f"--embedding.vectors_dir={tmp_path}"]) == 0
    assert load_model.read_model(tmp_path).model.kind == kind
