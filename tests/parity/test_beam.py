"""Tokenisation by Apache Beam writes the bytes that this machine's processes write."""

import json
import random
from dataclasses import replace

import pytest
from comparing import needs
from messages import mentioning

needs("apache_beam", "pyarrow")

import apache_beam
import pyarrow as pa
import pyarrow.parquet as pq

from bertzoo.cli.main import main
from bertzoo.core.errors import ConfigError, CorpusError
from bertzoo.data.corpus.tokenize import tokenize
from bertzoo.data.settings import Data
from bertzoo.data.sources.mixture import MixturePart
from bertzoo.data.tokenizers.wordpiece import WordPiece

WORDS = [a + b for a in ("ba", "ke", "li", "mo", "nu") for b in ("ra", "se", "ti", "vo", "zu", "", "ing", "er")]


def contents(directory):
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


def made_up(count, seed):
    rng = random.Random(seed)
    return ["\n".join(" ".join(rng.choices(WORDS, k=12)) for _ in range(rng.randint(2, 9))) for _ in range(count)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Four files of three kinds under two weights, with documents that equal others in their own and in other files."""
    directory = tmp_path_factory.mktemp("text")
    first, second, third = made_up(120, 1), made_up(90, 2), made_up(60, 3)
    first[30:35], first[100], second[3:6], second[80], third[0] = first[:5], "short", first[50:53], first[3], first[3]
    (directory / "a.txt").write_text("\n\n".join(first))
    (directory / "b.txt").write_text("\n\n".join(third))
    (directory / "c.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in second))
    pq.write_table(pa.table({"text": third + second[:20]}), directory / "d.parquet")
    mixture = (
        MixturePart(source=f"{directory / 'a.txt'},{directory / 'c.jsonl'}", weight=2.3),
        MixturePart(source=f"{directory / 'b.txt'},{directory / 'd.parquet'}", weight=0.8),
    )
    return Data(
        source="mixture",
        mixture=mixture,
        heldout=0.1,
        piece_bytes=4000,
        sentences="lines",
        tokenizer=WordPiece(vocab_size=150),
    )


@pytest.fixture(scope="module")
def local(data, tmp_path_factory):
    directory = tmp_path_factory.mktemp("local") / "corpus"
    made = tokenize(data, directory, workers=1)
    assert made.manifest.raw["dropped"]["duplicate"] > 50 and made.manifest.raw["dropped"]["left_out"]
    return contents(directory)


@pytest.mark.parametrize("options", [[], ["--direct_num_workers=2", "--direct_running_mode=multi_processing"]])
def test_beam_writes_the_same_bytes(data, local, tmp_path, options):
    tokenize(data, tmp_path / "c", runner="DirectRunner", runner_options=options)
    assert contents(tmp_path / "c") == local
    assert sum(name.startswith("train-") for name in local) > 20


def test_the_order_of_arrival_does_not_matter(data, local, tmp_path, monkeypatch):
    create = apache_beam.Create
    monkeypatch.setattr(apache_beam, "Create", lambda values: create(values[::-1]))
    tokenize(data, tmp_path / "c", runner="DirectRunner")
    assert contents(tmp_path / "c") == local


def test_beam_resumes_where_a_run_stopped(data, local, tmp_path):
    directory = tmp_path / "c"

    def stop(pieces, size):
        if pieces == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tokenize(data, directory, workers=1, progress=stop)
    begun = {path: path.stat().st_mtime_ns for path in directory.glob("*.array_record")}
    assert begun
    tokenize(data, directory, runner="DirectRunner")
    assert contents(directory) == local
    assert begun == {path: path.stat().st_mtime_ns for path in begun}


def test_an_error_in_the_pipeline_is_printed_once(data, tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"fine\ncaf\xe9\n")
    part = replace(data.mixture[0], source=f"{data.mixture[0].source},{tmp_path / 'bad.txt'}")
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    bad = replace(data, mixture=(part,), tokenizer=WordPiece(path=str(vocabulary)))
    with pytest.raises(CorpusError, match=mentioning("line 2", "UTF-8")) as caught:
        tokenize(bad, tmp_path / "c", runner="DirectRunner")
    # Nothing of Beam's own is left before or behind it.
    said = str(caught.value)
    assert said.startswith(f"{tmp_path / 'bad.txt'} ") and "\n" not in said and "running" not in said


@pytest.mark.parametrize(
    ("runner", "options", "named"),
    [
        ("NoRunner", [], ("--runner=NoRunner",)),
        ("DirectRunner", ["--direct_num_worker=2"], ("--runner_options", "direct_num_worker")),
    ],
)
def test_unknown_runners_and_options_raise(data, tmp_path, runner, options, named):
    with pytest.raises(ConfigError, match=mentioning(*named)):
        tokenize(data, tmp_path / "c", runner=runner, runner_options=options)


def test_the_verb_takes_a_runner(data, tmp_path, capsys, monkeypatch):
    options = ["--data.sentences=lines", "--data.tokenizer.vocab_size=150", "--data.heldout=0.1", "--json"]
    text = data.mixture[0].source.split(",")[0]
    shown = []
    for name, how in {"beam": ["--runner=DirectRunner"], "local": ["--workers=1"]}.items():
        assert main(["tokenize", text, str(tmp_path / name), *options, *how]) == 0
        shown.append(json.loads(capsys.readouterr().out) | {"directory": ""})
    assert shown[0] == shown[1]
    assert main(["tokenize", text, str(tmp_path / "x"), "--runner=DirectRunner", "--workers=2"]) == 2
    assert main(["tokenize", text, str(tmp_path / "x"), "--runner_options=--a=1"]) == 2
