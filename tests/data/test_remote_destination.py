"""A corpus written to a URL: equal to the local one, manifest last, errors before any work."""

import json

import pytest
from damage import denied
from made_up import contents, made_up_documents, small, write_documents
from messages import mentioning, mentions

from bertzoo.cli.main import main
from bertzoo.core import paths
from bertzoo.core.errors import CorpusError
from bertzoo.data.corpus import remote, tokenize
from bertzoo.data.pipeline import is_corpus

URL = "memory://bucket/corpus"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A small text that becomes several shards."""
    text = write_documents(tmp_path_factory.mktemp("text") / "text.txt", made_up_documents(60, longest=10))
    return small(text, piece_bytes=20_000)


@pytest.fixture(scope="module")
def corpus(data, tmp_path_factory):
    """The same on disk."""
    return tokenize.tokenize(data, tmp_path_factory.mktemp("corpus") / "tokenised", workers=1)


@pytest.fixture
def written(bucket, monkeypatch):
    """The names of the files that are written into the bucket, in order."""
    names = []
    for verb, place in {"put_file": 2, "pipe_file": 1}.items():
        write = getattr(type(bucket), verb)

        def spy(*args, write=write, place=place, **options):
            names.append(args[place].rsplit("/", 1)[1])
            return write(*args, **options)

        monkeypatch.setattr(type(bucket), verb, spy)
    return names


def send(data):
    return tokenize.tokenize_to_url(data, URL, workers=1)


def held(bucket):
    return {path.removeprefix("/bucket/corpus/"): bucket.cat(path) for path in bucket.find("/bucket/corpus")}


def test_the_bytes_equal_a_local_corpus_and_the_manifest_is_last(bucket, data, corpus, written):
    manifest = send(data)
    assert held(bucket) == contents(corpus.directory) and manifest.hash == corpus.hash
    assert written[0] == "settings.json" and written[-1] == "manifest.json" and written.count("manifest.json") == 1
    assert not [path for path in paths.cache_folder("tokenising").iterdir() if path.is_dir()]
    assert remote.open_remote_corpus(URL).hash == corpus.hash


def test_a_finished_corpus_is_found_and_not_rebuilt(bucket, data, written, monkeypatch):
    first = send(data)
    written.clear()
    monkeypatch.setattr(tokenize, "tokenize", None)
    assert send(data) == first and not written


def test_a_lost_file_is_rebuilt(bucket, data, written):
    send(data)
    before = held(bucket)
    bucket.rm("/bucket/corpus/train-00001.array_record")
    bucket.pipe("/bucket/corpus/heldout-00000.array_record", b"short")
    bucket.rm("/bucket/corpus/tokenizer/vocab.txt")
    written.clear()
    send(data)
    assert held(bucket) == before
    assert set(written) == {"train-00001.array_record", "heldout-00000.array_record", "vocab.txt", "manifest.json"}


def test_an_interrupted_upload_resumes(bucket, data, written, monkeypatch):
    own = type(bucket).put_file

    def broken(self, source, path, *args, **options):
        if path.endswith("train.documents.npy"):
            raise ConnectionResetError("the network is\nunreachable")
        return own(self, source, path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(type(bucket), "put_file", broken)
        with pytest.raises(CorpusError, match=mentioning("train.documents.npy", "the network is unreachable")):
            send(data)
    assert "manifest.json" not in held(bucket)
    with pytest.raises(CorpusError, match=mentioning("manifest.json")):
        is_corpus(URL)
    monkeypatch.setattr(tokenize, "_tokenize_pieces", None)  # no piece of it is lost
    there = {name for name in written if name.endswith(".array_record")}
    written.clear()
    send(data)
    assert there and not there & set(written) and is_corpus(URL)


def test_a_file_that_arrives_cut_is_noticed(bucket, data, monkeypatch):
    own = type(bucket).put_file

    def cutting(self, source, path, *args, **options):
        own(self, source, path, *args, **options)
        if path.endswith("train-00000.array_record"):
            bucket.pipe(path, bucket.cat(path)[:-1])

    with monkeypatch.context() as patch:
        patch.setattr(type(bucket), "put_file", cutting)
        with pytest.raises(CorpusError, match=mentioning("train-00000.array_record")):
            send(data)
    assert "manifest.json" not in held(bucket)
    send(data)
    assert is_corpus(URL)


def test_other_files_and_corpora_stay_untouched(bucket, data, tmp_path):
    bucket.pipe("/bucket/corpus/thesis.tex", b"x")
    with pytest.raises(CorpusError, match=mentioning(URL)):
        send(data)
    assert held(bucket) == {"thesis.tex": b"x"}
    bucket.rm("/bucket", recursive=True)
    send(data)
    before = held(bucket)
    other = small(write_documents(tmp_path / "other.txt", made_up_documents(40)), piece_bytes=20_000)
    with pytest.raises(CorpusError, match=mentioning(URL, "source", "other.txt")):
        send(other)
    assert held(bucket) == before


def test_a_missing_source_writes_nothing(bucket, tmp_path):
    with pytest.raises(CorpusError, match=mentioning("none.txt", "exist")):
        send(small(tmp_path / "none.txt"))
    assert not held(bucket)


@pytest.mark.parametrize(("verb", "done"), [("pipe_file", "written"), ("ls", "read"), ("info", "read")])
def test_a_denied_bucket_raises_before_any_work(bucket, data, tmp_path, monkeypatch, capsys, verb, done):
    monkeypatch.setattr(type(bucket), verb, denied)
    assert main(["tokenize", data.source, URL]) == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert mentions(message, "bertzoo: ", URL, done, "PermissionError", "403: no access to the bucket")
    assert not (tmp_path / "cache" / "bertzoo").exists()


def test_the_verb_prints_its_result(bucket, data, capsys):
    options = ["--data.heldout=0.1", "--data.piece_bytes=20000", "--data.tokenizer.vocab_size=300", "--workers=1"]
    command = ["tokenize", data.source, URL, "--data.sentences=lines", *options]
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert mentions(out, f"--data.source={URL}") and mentions(err, URL, " MB")
    assert main([*command, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["directory"] == URL and said["hash"] == json.loads(held(bucket)["manifest.json"])["hash"]
