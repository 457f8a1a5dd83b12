"""Tokenisation: the same bytes for any number of workers and after any interruption."""

import errno
import json
import os
import string
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from made_up import contents, made_up_documents, small, write_documents
from messages import mentioning

from bertzoo.core.errors import CorpusError, UserError
from bertzoo.data.corpus import shard, workers
from bertzoo.data.corpus import tokenize as tokenizing
from bertzoo.data.corpus.reader import Corpus
from bertzoo.data.corpus.tokenize import split_sentences, tokenize
from bertzoo.data.hashes import is_heldout
from bertzoo.data.settings import Data
from bertzoo.data.tokenizers import vocabulary
from bertzoo.data.tokenizers.byte_bpe import ByteBpe
from bertzoo.data.tokenizers.sentencepiece import SentencePiece
from bertzoo.data.tokenizers.wordpiece import WordPiece


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    documents = made_up_documents(150, seed=4)
    documents[7] = documents[3]
    documents[140] = documents[3]  # many pieces later
    documents[9] = ["Ba."]  # too short
    return write_documents(tmp_path_factory.mktemp("text") / "text.txt", documents)


@pytest.fixture(scope="module")
def finished(text, tmp_path_factory):
    directory = tmp_path_factory.mktemp("finished") / "corpus"
    tokenize(small(text), directory, workers=1)
    return contents(directory)


@pytest.mark.slow  # starts processes
def test_two_workers_write_the_same_bytes_as_one(text, finished, tmp_path):
    tokenize(small(text), tmp_path / "two", workers=2)
    assert contents(tmp_path / "two") == finished
    assert sum(name.startswith("train-") for name in finished) > 3


SCRIPT = """
import sys, time
from pathlib import Path
from made_up import small
from bertzoo.data.corpus.tokenize import tokenize

def slowly(pieces, size):
    print(pieces, flush=True)
    time.sleep(0.3)

tokenize(small(sys.argv[1]), Path(sys.argv[2]), workers=int(sys.argv[3]), progress=slowly)
"""


@pytest.mark.parametrize("count", [1, 2])
def test_a_killed_run_resumes_where_it_stopped(text, finished, tmp_path, count):
    """The script has no `if __name__ == "__main__":`, which worker processes of multiprocessing usually need."""
    directory = tmp_path / "corpus"
    (tmp_path / "script.py").write_text(SCRIPT)
    arguments = [sys.executable, str(tmp_path / "script.py"), str(text), str(directory), str(count)]
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    for _ in process.stdout:
        if list(directory.glob("pieces/*.json")):
            break
    workers_of_it = psutil.Process(process.pid).children(recursive=True)
    assert bool(workers_of_it) == (count > 1)
    process.kill()
    process.wait()
    process.stdout.close()
    _, alive = psutil.wait_procs(workers_of_it, timeout=20)
    assert not alive, "a worker outlived its parent"
    assert not (directory / "manifest.json").exists()
    begun = {path: path.stat().st_mtime_ns for path in directory.glob("train-*.array_record")}
    kept = {p.name[:5] for p in directory.glob("pieces/*.json")}
    assert kept
    (directory / "train-00099.array_record.tmp").write_bytes(b"half a file")
    strangers = {name: b"a user's" for name in ("notes.tmp", "mine/draft.tmp")}
    (directory / "mine").mkdir()
    for name, content in strangers.items():
        (directory / name).write_bytes(content)
    tokenize(small(text), directory, workers=1)
    assert contents(directory) == finished | strangers
    for path, stamp in begun.items():
        if path.name[6:11] in kept:
            assert path.stat().st_mtime_ns == stamp, f"{path.name} was written again"


def test_a_complete_corpus_is_only_opened(text, finished, tmp_path):
    tokenize(small(text), tmp_path / "c", workers=1)
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "c").rglob("*")}
    tokenize(small(text), tmp_path / "c", workers=1)
    assert stamps == {path: path.stat().st_mtime_ns for path in (tmp_path / "c").rglob("*")}


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"heldout": 0.2}, ("heldout", 0.1, 0.2)),
        ({"sentences": "split"}, ("sentences", "'lines'", "'split'")),
        ({"tokenizer": SentencePiece()}, ("tokenizer.kind", "'wordpiece'", "'sentencepiece'")),
    ],
)
def test_another_corpus_is_not_overwritten(corpus, changes, parts):
    data = small(Path(corpus.manifest.settings["source"]))
    with pytest.raises(CorpusError, match=mentioning(*parts)):
        tokenize(replace(data, **changes), corpus.directory)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": "tixt.txt"}, ("tixt.txt", "exist")),
        ({"source": "tfds:no_such/set"}, ("tfds:no_such/set",)),
        ({"source": "nowhere://bucket/text.txt"}, ("nowhere://bucket/text.txt",)),
        ({"text_field": "txt"}, ("story.jsonl",)),
    ],
)
def test_a_mistaken_source_leaves_the_place_to_the_corrected_one(tmp_path, monkeypatch, changes, message):
    monkeypatch.chdir(tmp_path)
    documents = [json.dumps({"text": f"The {i}th baker bakes.\nBread is good."}) + "\n" for i in range(200)]
    Path("story.jsonl").write_text("".join(documents))
    right = small(Path("story.jsonl"))
    with pytest.raises(UserError, match=mentioning(*message)):
        tokenize(replace(right, **changes), tmp_path / "new" / "c", workers=1)
    assert [path.name for path in tmp_path.iterdir()] == ["story.jsonl"]
    (tmp_path / "made").mkdir()
    with pytest.raises(UserError, match=mentioning(*message)):
        tokenize(replace(right, **changes), tmp_path / "made", workers=1)
    assert isinstance(tokenize(right, tmp_path / "made", workers=1), Corpus)


def test_a_directory_with_other_files_raises(text, tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(CorpusError, match=mentioning("tokenised")):
        tokenize(small(text), tmp_path)


def test_text_that_changed_between_two_runs_raises(text, tmp_path):
    source = tmp_path / "text.txt"
    source.write_text(text.read_text())

    def stop(pieces, size):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tokenize(small(source), tmp_path / "c", workers=1, progress=stop)
    source.write_text("Another beginning of the text.\n\n" + text.read_text())
    with pytest.raises(CorpusError, match=mentioning("text.txt")):
        tokenize(small(source), tmp_path / "c", workers=1)


def test_counts_splits_and_text_match_the_source(text, tmp_path):
    data = small(text)
    made = tokenize(data, tmp_path / "c", workers=1)
    documents = text.read_text().strip().split("\n\n")
    kept = [d for i, d in enumerate(documents) if i not in (7, 9, 140)]
    assert made.manifest.raw["dropped"] == {"duplicate": 2, "short": 1, "empty_sentences": 0, "left_out": 0}
    for split in ("train", "heldout"):
        expected = [d for d in kept if is_heldout(d, data.heldout) == (split == "heldout")]
        index, record = made.split(split), made.manifest.splits[split]
        assert record.documents == len(expected) > 0
        per_document = np.diff(index.documents)
        assert per_document.tolist() == [d.count("\n") + 1 for d in expected]
        offsets = index.offsets[index.documents]
        for number, document in enumerate(expected):
            tokens = made.tokens(split, offsets[[number]], offsets[[number + 1]] - offsets[[number]])[0]
            pieces = made.tokenizer.encode_batch(document.split("\n"))
            np.testing.assert_array_equal(tokens, np.concatenate(pieces))


@pytest.mark.parametrize(("share", "part"), [(1e-9, "heldout"), (1 - 1e-9, "train")])
def test_an_empty_part_raises(text, tmp_path, share, part):
    vocabulary = tmp_path / "vocab.txt"
    letters = [entry for letter in string.ascii_lowercase for entry in (letter, f"##{letter}")]
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *letters]) + "\n")
    data = small(text, heldout=share)
    data = replace(data, tokenizer=replace(data.tokenizer, path=str(vocabulary)))
    with pytest.raises(CorpusError, match=mentioning(part)):
        tokenize(data, tmp_path / "c", workers=1)


def test_sentences_are_split_by_the_library_or_by_lines():
    document = "Mr. Smith came home. He slept.\nA new paragraph"
    sentences = ["Mr. Smith came home.", "He slept.", "A new paragraph"]
    assert [one for one, _ in split_sentences(document, Data())] == sentences
    assert [one for one, _ in split_sentences(document, Data(sentences="lines"))] == document.split("\n")
    text = "Er kam am 3. Mai an. Dann ging er."
    assert [one for one, _ in split_sentences(text, Data(language="de"))] == ["Er kam am 3. Mai an.", "Dann ging er."]
    assert len(list(split_sentences(text, Data(language="en")))) == 3
    text = "One. Two。三。\n Four"
    assert [*split_sentences(text, Data())] == [("One.", False), ("Two。", True), ("三。", False), ("Four", True)]


def test_byte_pairs_of_sentences_are_those_of_running_text(text, tmp_path):
    data = small(text, tokenizer=ByteBpe(vocab_size=300))
    made = tokenize(data, tmp_path / "c", workers=1)
    documents = text.read_text().strip().split("\n\n")
    document = next(document for document in documents if not is_heldout(document, data.heldout))
    offsets = made.split("train").offsets[made.split("train").documents]
    tokens = made.tokens("train", offsets[:1], np.diff(offsets[:2]))[0]
    np.testing.assert_array_equal(tokens, made.tokenizer.encode_batch([document.replace("\n", " ")])[0])


def test_a_sentence_without_end_is_cut_at_white_space():
    document = "word " * 40_000 + "x" * 150_000
    parts = [part for part, _ in split_sentences(document, Data(sentences="lines"))]
    assert max(map(len, parts)) <= 1 << 16
    assert " ".join(parts[:3]).split() == ["word"] * len(" ".join(parts[:3]).split())
    assert "".join("".join(parts).split()) == "".join(document.split())


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
import numpy as np
from bertzoo.data.corpus import shard
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # as a full disk: the system refuses to write on
try:
    tokens = np.random.default_rng(0).integers(0, 30000, 10**6).astype("<u2")
    shard.write_shard(Path(sys.argv[1]) / "train-00000.array_record", tokens)
except OSError as error:
    print(error.errno)
"""


def test_a_file_that_cannot_be_written_is_an_os_error_and_leaves_nothing(tmp_path):
    command, environment = [sys.executable, "-c", FULL_DISK, str(tmp_path)], {"PYTHONPATH": ":".join(sys.path)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == str(errno.EFBIG)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_surfaces_as_itself(text, tmp_path, monkeypatch):
    class Full:
        def __init__(self, path, options):
            Path(path).write_bytes(b"half")

        def write(self, record):
            raise RuntimeError(f"write() failed: {os.strerror(errno.ENOSPC)}; writing x; at byte 500000")

    monkeypatch.setattr(shard, "ArrayRecordWriter", Full)
    with pytest.raises(OSError, match=mentioning(f"[Errno {errno.ENOSPC}]", tmp_path / "c")) as caught:
        tokenize(small(text), tmp_path / "c", workers=1)
    assert caught.value.errno == errno.ENOSPC
    assert not list((tmp_path / "c").rglob("*.tmp"))
    monkeypatch.undo()
    assert isinstance(tokenize(small(text), tmp_path / "c", workers=1), Corpus)


@pytest.mark.parametrize("content", ["", '{"format"'])
def test_a_killed_first_write_leaves_the_destination_free(content, text, tmp_path):
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "settings.json.tmp").write_text(content)
    assert isinstance(tokenize(small(text), tmp_path / "c", workers=1), Corpus)
    assert not list((tmp_path / "c").rglob("*.tmp"))


def test_a_killed_worker_is_explained():
    with pytest.raises(CorpusError, match=mentioning("command")), workers.worker_pool(2) as submit:
        submit(os._exit, 1).result()


def test_a_worker_is_ended_by_its_parent_and_by_no_other():
    """A preempted machine signals every process of a command, and the parent ends its workers itself."""
    with workers.worker_pool(2) as submit:
        number = submit(os.getpid).result()
        worker = psutil.Process(number)
        subprocess.run([sys.executable, "-c", f"import os; os.kill({number}, 15)"], check=True)
        time.sleep(0.2)
        assert worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE
        os.kill(number, 15)
        _, alive = psutil.wait_procs([worker], timeout=20)
        assert not alive


def test_tokens_of_wide_vocabularies_take_four_bytes():
    assert shard.token_dtype(65536) == np.dtype("<u2") and shard.token_dtype(65537) == np.dtype("<u4")


@pytest.mark.parametrize("kind", [WordPiece, SentencePiece])
def test_batches_of_a_long_document_join(text, tmp_path, kind, monkeypatch):
    """The sentences of a document come from several batches."""
    data = small(text, tokenizer=kind(vocab_size=300))
    whole = contents(tokenize(data, tmp_path / "a", workers=1).directory)
    monkeypatch.setattr(tokenizing, "_ENCODE_TOGETHER", 7)
    monkeypatch.setattr(vocabulary, "_TOGETHER", 100)
    assert contents(tokenize(data, tmp_path / "b", workers=1).directory) == whole


HOSTILE = {
    "punctuation": "!?.,;:-()" * 250_000,
    "sentences": "a! b? " * 350_000,
    "words": "\n".join("ab" * 30_000 + str(i) for i in range(30)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_tokenised_in_bounded_memory(name, tmp_path):
    (tmp_path / "a.txt").write_text("\n\n".join(" ".join(d) for d in made_up_documents(60)) + "\n\n" + HOSTILE[name])
    code = (
        "import pathlib, re, sys; from bertzoo.cli.main import main; code = main(sys.argv[1:]); "
        # Not ru_maxrss, which counts the memory of the process that starts this one.
        "print(re.search(r'VmHWM:\\s+(\\d+)', pathlib.Path('/proc/self/status').read_text())[1]); sys.exit(code)"
    )
    options = ["--data.heldout=0.1", "--data.tokenizer.vocab_size=300", "--workers=1"]
    command = [sys.executable, "-c", code, "tokenize", str(tmp_path / "a.txt"), str(tmp_path / "c"), *options]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert int(lines[-1]) < 300 << 10
