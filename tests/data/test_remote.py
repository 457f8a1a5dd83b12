"""A tokenised corpus behind a URL: copied once, shared, mended, and never half of it taken for whole."""

import json
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
from damage import denied
from made_up import contents, small
from messages import mentioning, mentions

from bertzoo.core import remote as remote_files
from bertzoo.core.errors import ConfigError, CorpusError
from bertzoo.data.corpus import manifest, remote
from bertzoo.data.pipeline import open_corpus

URL = "memory://bucket/corpus"


@pytest.fixture
def bucket(bucket, corpus):
    """A bucket that holds the corpus."""
    for name, data in contents(corpus.directory).items():
        bucket.pipe(f"/bucket/corpus/{name}", data)
    return bucket


@pytest.fixture
def opened(bucket, monkeypatch):
    """The names of the files that are opened in the bucket, in order."""
    names, own = [], type(bucket).open

    def spied(self, path, *args, **options):
        names.append(path.rsplit("/", 1)[1])
        return own(self, path, *args, **options)

    monkeypatch.setattr(type(bucket), "open", spied)
    return names


def copy():
    return remote.open_remote_corpus(URL)


def shards(corpus):
    return [record.file for split in corpus.manifest.splits.values() for record in split.shards]


def test_a_copy_equals_the_corpus_and_is_made_once(bucket, corpus, opened):
    first = copy()
    assert first.hash == corpus.hash and first.address == URL and first.directory != corpus.directory
    first.verify()
    starts = corpus.split("train").offsets[:-1][:50]
    lengths = corpus.split("train").sentences[:50]
    np.testing.assert_array_equal(first.tokens("train", starts, lengths), corpus.tokens("train", starts, lengths))
    assert first.tokenizer.encode_batch(["bake"])[0].tolist() == corpus.tokenizer.encode_batch(["bake"])[0].tolist()
    assert len(opened) == len(set(opened)) >= len(shards(corpus)) + 4
    opened.clear()
    again = copy()
    assert not opened and again.directory == first.directory


def write_manifest(bucket, raw):
    raw["hash"] = manifest._hash(raw)
    bucket.pipe("/bucket/corpus/manifest.json", json.dumps(raw).encode())


def test_another_corpus_under_the_same_name_is_another_copy_with_files_nowhere_else(bucket, corpus):
    first = copy()
    raw = json.loads(bucket.cat("/bucket/corpus/manifest.json"))
    raw["settings"]["language"] = "de"
    write_manifest(bucket, raw)
    assert copy().directory != first.directory
    raw["splits"]["train"]["shards"][0]["file"] = "../../outside"
    write_manifest(bucket, raw)
    with pytest.raises(CorpusError, match=mentioning("'../../outside'")):
        copy()


def test_pretraining_reads_it_as_any_corpus(logged, bucket, corpus, tmp_path):
    settings = small(URL, tokenizer=corpus.tokenizer.config)
    data = replace(settings, tokenizer=replace(settings.tokenizer, path="", vocab_size=300))
    found = open_corpus(data, tmp_path / "run" / "corpus")
    assert found.hash == corpus.hash and not (tmp_path / "run").exists()
    (line,) = logged
    assert line.startswith(f"copying {URL} to ")
    with pytest.raises(ConfigError, match=mentioning(URL, "language")):
        open_corpus(replace(data, language="de"), tmp_path / "run" / "corpus")


@pytest.mark.parametrize("name", ["train-00000.array_record", "train.sentences.npy", "heldout.documents.npy"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "missing"])
def test_a_damaged_remote_file_is_named_and_no_copy_stays(bucket, name, damage):
    path = f"/bucket/corpus/{name}"
    data = bytearray(bucket.cat(path))
    data[len(data) // 2] ^= 1
    bucket.rm(path)
    if damage != "missing":
        bucket.pipe(path, bytes(data[: len(data) // 2] if damage == "cut" else data))
    reason = "FileNotFoundError" if damage == "missing" else "SHA-256"
    with pytest.raises(CorpusError, match=mentioning(f"{URL}/{name} ", reason)):
        copy()
    (folder,) = (path for path in remote.paths.cache_folder("corpora").iterdir() if path.is_dir())
    assert not (folder / "manifest.json").exists() and not list(folder.glob(f"{name}*"))
    with pytest.raises(CorpusError):
        copy()


def test_a_damaged_remote_tokenizer_or_manifest_is_named(bucket):
    vocabulary = bucket.cat("/bucket/corpus/tokenizer/vocab.txt")
    bucket.pipe("/bucket/corpus/tokenizer/vocab.txt", vocabulary + b"more\n")
    with pytest.raises(CorpusError, match=mentioning(f"{URL}/tokenizer")):
        copy()
    bucket.pipe("/bucket/corpus/manifest.json", bucket.cat("/bucket/corpus/manifest.json")[:-200])
    with pytest.raises(CorpusError, match=mentioning(f"{URL}/manifest.json")):
        copy()


def test_an_interrupted_copy_resumes(bucket, corpus, opened, monkeypatch):
    """Complete files are not copied again, partial ones are."""
    wanted, own = shards(corpus)[1], type(bucket).open

    def broken(self, path, *args, **options):
        if path.endswith(wanted):
            raise OSError("connection reset\nby peer")
        return own(self, path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(type(bucket), "open", broken)
        with pytest.raises(CorpusError, match=mentioning(f"{URL}/{wanted}", "OSError: connection reset by peer")):
            copy()
    (folder,) = (path for path in remote.paths.cache_folder("corpora").iterdir() if path.is_dir())
    there = {path.name for path in folder.glob("*.*")}
    assert there and not any(name.endswith(".tmp") for name in there)
    opened.clear()
    copy().verify()
    assert wanted in opened and not there & set(opened)


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"x" * len(data)], ids=["cut", "changed"])
def test_a_damaged_copy_is_mended(logged, bucket, corpus, opened, damage):
    directory = copy().directory
    for name in ("train.sentences.npy", "train-00000.array_record"):
        (directory / name).write_bytes(damage((directory / name).read_bytes()))
    opened.clear()
    copy().verify()
    assert mentions(logged[-2], directory, "damaged", URL)
    assert set(opened) == {"train.sentences.npy", "train-00000.array_record", "settings.json", "vocab.txt"}


def test_a_full_disk_raises_and_leaves_no_partial_file(bucket, monkeypatch):
    usage = remote_files.shutil.disk_usage("/")
    monkeypatch.setattr(remote_files.shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(CorpusError, match=mentioning("0.0", "GB", "XDG_CACHE_HOME")):
        copy()


def test_two_at_once_make_one_copy(bucket, opened):
    found = []
    threads = [threading.Thread(target=lambda: found.append(copy().hash)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 3 and len(opened) == len(set(opened))


HOLD = (
    "import fcntl, sys; fcntl.flock(file := open(sys.argv[1], 'w'), fcntl.LOCK_EX); print('held', flush=True); "
    "sys.stdin.read()"
)


def test_another_process_is_waited_for(bucket, corpus):
    """The lock excludes other processes of the machine, not only threads."""
    folder = remote.paths.cache_folder("corpora")
    folder.mkdir(parents=True)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", HOLD, str(folder / f"{corpus.hash}.lock")], **pipes) as other:
        assert other.stdout.readline() == "held\n"
        mine = threading.Thread(target=copy)
        mine.start()
        mine.join(0.2)
        assert mine.is_alive() and not (folder / corpus.hash).exists()
        other.stdin.close()
        mine.join(60)
        assert not mine.is_alive() and (folder / corpus.hash / "manifest.json").exists()


@pytest.mark.parametrize("verb", ["info", "cat_file", "open"])
def test_a_denied_bucket_raises_one_error(bucket, tmp_path, monkeypatch, verb):
    monkeypatch.setattr(type(bucket), verb, denied)
    with pytest.raises(CorpusError, match=mentioning(URL, "PermissionError", "403: no access to the bucket")):
        open_corpus(small(URL), tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


def test_an_unfinished_corpus_is_not_read_as_text(bucket, tmp_path):
    bucket.rm("/bucket/corpus/manifest.json")
    with pytest.raises(CorpusError, match=mentioning(URL, "manifest.json")):
        open_corpus(small(URL), tmp_path / "corpus")
