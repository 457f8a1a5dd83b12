"""Sources: files read, their order, and errors."""

import gzip
import json
import lzma
import resource
import sys

import pytest
import zstandard
from damage import denied
from messages import mentioning

from bertzoo.core.errors import CorpusError, UserError, needs_extra
from bertzoo.data.settings import MixtureSource
from bertzoo.data.sources import text
from bertzoo.data.sources.pieces import cut_pieces

TEXT = "First paragraph.\nSecond one.\n\nAnother document, naïve.\n \n\nThird.\n"
DOCUMENTS = ["First paragraph.\nSecond one.", "Another document, naïve.", "Third."]


def one(name, text_field="text"):
    return [MixtureSource(source=str(name), text_field=text_field)]


def read(name, text_field="text", piece_bytes=1 << 20):
    found = list(cut_pieces(one(name, text_field), heldout=0.1, piece_bytes=piece_bytes))
    assert [piece.index for piece in found] == list(range(len(found)))
    return [document for piece in found for document in piece.documents]


COMPRESSIONS = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_archives_of_one_or_two_parts_are_read_as_text(tmp_path, suffix):
    path, compress = tmp_path / f"a.txt{suffix}", COMPRESSIONS[suffix]
    path.write_bytes(compress(TEXT.encode()))
    assert read(path) == DOCUMENTS
    path.write_bytes(compress(b"One.\n\n") + compress(b"Two.\n"))
    assert read(path) == ["One.", "Two."]


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_a_truncated_archive_or_noise_raises(tmp_path, suffix):
    path = tmp_path / f"a.txt{suffix}"
    data = COMPRESSIONS[suffix]("".join(f"Line {i * i}.\n\n" for i in range(20_000)).encode())
    for content in (data[: len(data) // 2], b"not compressed at all"):
        path.write_bytes(content)
        with pytest.raises(CorpusError, match=mentioning(f"a.txt{suffix}", "cannot be decompressed", "cut short")):
            read(path)


def test_directories_globs_and_lists_are_read_in_order(tmp_path):
    (tmp_path / "sub").mkdir()
    for name, content in {"b.txt": "B", "a.txt": "A", "sub/c.md": "C", "d.bin": "D", ".hidden.txt": "H"}.items():
        (tmp_path / name).write_text(content)
    (tmp_path / ".trash").mkdir()
    (tmp_path / ".trash" / "old.txt").write_text("O")
    assert read(tmp_path) == ["A", "B", "C"]
    assert read(tmp_path / "*.txt") == ["A", "B"]
    assert read(f"{tmp_path / 'b.txt'}, {tmp_path / 'a.txt'}") == ["B", "A"]
    with pytest.raises(CorpusError, match=mentioning("a.txt")):
        read(f"{tmp_path},{tmp_path / 'a.txt'}")


@pytest.mark.parametrize("files", [["manifest.json"], ["settings.json", "pieces/00000.json"]])
def test_a_tokenised_corpus_is_no_text(tmp_path, files):
    for name in [*files, "tokenizer/vocab.txt"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    with pytest.raises(CorpusError, match=mentioning(tmp_path.name, "tokenised")):
        read(tmp_path)


def test_jsonl_reads_the_named_field(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    lines = [json.dumps({"body": "One.\n\n Two.", "text": "no"}), "", json.dumps({"body": "Three."})]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    assert read(path, text_field="body") == ["One.\nTwo.", "Three."]


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ('{"text": "cut', ("JSON",)),
        ('{"other": "x"}', ("'text'",)),
        ('{"text": 3}', ("'text'",)),
        ("[1]", ("'text'",)),
        ('{"text": "\\ud800"}', ("surrogate",)),
    ],
)
def test_bad_jsonl_names_the_line(tmp_path, line, parts):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "Fine."}\n' + line + "\n")
    with pytest.raises(CorpusError, match=mentioning("a.jsonl", "line 2", *parts)):
        read(path)


def test_pieces_never_cross_files_and_keep_order(tmp_path):
    (tmp_path / "a.txt").write_text("\n\n".join(f"A{i}" for i in range(10)))
    (tmp_path / "b.txt").write_text("\n\n".join(f"B{i}" for i in range(3)))
    found = list(cut_pieces(one(tmp_path), heldout=0.1, piece_bytes=8))
    assert [len(piece.documents) for piece in found] == [4, 4, 2, 3]
    assert [piece.origin for piece in found] == ["a.txt"] * 3 + ["b.txt"]
    assert sum((piece.documents for piece in found), ()) == (*(f"A{i}" for i in range(10)), "B0", "B1", "B2")
    assert len({piece.sha256 for piece in found}) == 4


@pytest.mark.parametrize(
    ("name", "data", "parts"),
    [
        ("a.txt", None, ("a.txt", "exist")),
        ("a.txt", b"", ("a.txt", "empty")),
        ("a.txt", b" \n\n \n", ("a.txt", "no text")),
        ("a.txt", b"text\n\x89PNG\0\0more", ("a.txt", "NUL")),
        ("a.txt", b"fine\ncaf\xe9\n", ("a.txt", "line 2", "UTF-8")),
        ("a.json", b"[]", ("a.json ", "JSON")),
        ("*.txt", None, ("*.txt", "no file")),
        ("a.txt,,b.txt", None, ("empty name",)),
        ("a.docx", b"PK\x03\x04\x14\0\0\0", ("a.docx", "NUL")),
        ("a.xz", gzip.compress(b"text", mtime=0), ("a.xz", "decompress")),
    ],
)
def test_bad_files_raise_by_name(tmp_path, name, data, parts):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(CorpusError, match=mentioning(*parts)):
        read(tmp_path / name)


def test_an_empty_directory_and_an_unknown_embedded_source_raise(tmp_path):
    with pytest.raises(CorpusError, match=mentioning(tmp_path, "no file")):
        read(tmp_path)
    with pytest.raises(CorpusError, match=mentioning("embedded:python")):
        read("embedded:perl")


OVERLONG = {
    "line.txt": (b"short\n" + b"x " * 600, ("line 2", "1,000")),
    "blank.txt": (b"a\n" + b"\n \n" * 600, ("line 2", "1,000")),
    "wide_blank.txt": (("a\n" + "\u3000\n" * 600).encode(), ("1,000",)),
    "document.txt": (b"a\n\n" + b"a line\n" * 200, ("line 3", "1,000")),
    "line.jsonl": (b'{"text": "' + b"a " * 600 + b'"}', ("line 1", "1,212", "1,000")),
}


@pytest.mark.parametrize("name", OVERLONG)
def test_a_text_beyond_the_limit_raises_with_its_place(tmp_path, name, monkeypatch):
    data, parts = OVERLONG[name]
    path = tmp_path / name
    path.write_bytes(data)
    assert len(read(path)) >= 1
    monkeypatch.setattr(text, "LONGEST", 1000)
    with pytest.raises(CorpusError, match=mentioning(name, *parts)):
        read(path)


def test_a_record_beyond_the_limit_raises(monkeypatch):
    monkeypatch.setattr(text, "LONGEST", 1000)
    with pytest.raises(CorpusError, match=mentioning("a.parquet row 1", "1,200", "1,000")):
        text.record_document("a " * 600, "a.parquet row 1")


def test_blank_lines_are_counted_in_later_messages(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\n \n\n" * 100_000 + b"a\n" + b"\n" * 7 + b"caf\xe9\n")
    with pytest.raises(CorpusError, match=mentioning("a.txt", "line 300009", "UTF-8")):
        read(tmp_path / "a.txt")


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_a_bomb_of_newlines_ends_in_bounded_memory(tmp_path, suffix):
    """Half a gigabyte of newlines in less than a megabyte."""
    path, part = tmp_path / f"bomb.txt{suffix}", COMPRESSIONS[suffix](b"\n" * (32 << 20))
    path.write_bytes(part * 16)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CorpusError, match=mentioning(f"bomb.txt{suffix}", f"{text.LONGEST:,}")):
        read(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


def test_padding_between_xz_streams_is_skipped(tmp_path):
    padded = tmp_path / "a.txt.xz"
    padded.write_bytes(lzma.compress(b"One.\n\n") + b"\0" * 8 + lzma.compress(b"Two.\n"))
    assert read(padded) == ["One.", "Two."]


def test_a_byte_order_mark_is_not_read_as_text_but_a_long_word_is(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfHello.\r\n\r\n" + b"x" * 100_000 + b" y\r\n")
    assert read(tmp_path / "a.txt") == ["Hello.", "x" * 100_000 + " y"]


def test_remote_directories_globs_and_files_are_read_as_local_ones(bucket):
    files = {"b.txt": b"B", "a.txt.gz": gzip.compress(TEXT.encode()), "sub/c.jsonl": b'{"text": "C"}', "d.bin": b"D"}
    for name, data in files.items():
        bucket.pipe(f"/bucket/text/{name}", data)
    assert read("memory://bucket/text") == [*DOCUMENTS, "B", "C"]
    assert read("memory://bucket/text/*.txt*") == [*DOCUMENTS, "B"]
    assert read("memory://bucket/text/b.txt, memory://bucket/text/sub/*") == ["B", "C"]
    assert read("memory://bucket/**/*.jsonl") == ["C"]
    bucket.pipe("/bucket/c4-00000.json.gz", gzip.compress(b'{"text": "One."}\n{"text": "Two."}\n'))
    assert read("memory://bucket/c4-*.json.gz") == ["One.", "Two."]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("memory://bucket/none.txt", ("memory://bucket/none.txt", "exist")),
        ("memory://bucket/*.md", ("memory://bucket/*.md", "no file")),
        ("memory://bucket/empty", ("memory://bucket/empty", "no file")),
        ("memory://bucket/bad.txt", ("bad.txt", "line 1", "UTF-8")),
        ("memory://bucket/cut.txt.xz", ("cut.txt.xz", "decompress")),
        ("memory://bucket/corpus", ("memory://bucket/corpus", "tokenised")),
        ("nowhere://bucket/a.txt", ("nowhere://bucket/a.txt", "read")),
        ("memory://bucket/bad.txt,memory://bucket/*.txt", ("bad.txt", "once")),
    ],
)
def test_bad_remote_sources_raise_by_name(bucket, name, parts):
    bucket.pipe("/bucket/empty/x.bin", b"x")
    bucket.pipe("/bucket/bad.txt", b"caf\xe9")
    bucket.pipe("/bucket/cut.txt.xz", lzma.compress(TEXT.encode())[:-20])
    bucket.pipe("/bucket/corpus/manifest.json", b"{}")
    with pytest.raises(CorpusError, match=mentioning(*parts)):
        read(name)


@pytest.mark.parametrize("verb", ["open", "info"])
def test_a_denied_bucket_raises_one_error(bucket, monkeypatch, verb):
    bucket.pipe("/bucket/a.txt", b"text")
    monkeypatch.setattr(type(bucket), verb, denied)
    with pytest.raises(CorpusError, match=mentioning("memory://", "bucket/a.txt", "403: no access to the bucket")):
        read("memory://bucket/a.txt")


@pytest.mark.parametrize(
    ("package", "name", "parts"),
    [
        ("gcsfs", "gs://bucket/*.txt", ("gs://bucket/*.txt", "installed", "gcsfs")),
        ("s3fs", "s3://bucket/*.txt", ("s3://bucket/*.txt", "installed", "s3fs")),
        ("pyarrow", "a.parquet", ("a.parquet", "pyarrow", "pip install -c constraints.txt -e '.[parquet]'")),
        ("zstandard", "a.txt.zst", ("a.txt.zst", "zstandard", "'.[zstd]'")),
        ("tensorflow_datasets", "tfds:c4/en", ("tfds:c4/en", "pip install -c constraints.txt -e '.[tfds]'")),
    ],
)
def test_a_missing_package_is_named(tmp_path, monkeypatch, package, name, parts):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    (tmp_path / "a.txt.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    with pytest.raises(UserError, match=mentioning(*parts)):
        read(name)


@pytest.mark.parametrize("error", [ImportError("libarrow.so is missing"), ImportError("no b in numpy", name="numpy")])
def test_a_broken_package_is_not_called_missing(error):
    match = mentioning("a.parquet", error, "'.[parquet]'")
    with pytest.raises(UserError, match=match) as raised, needs_extra("a.parquet", "parquet"):
        raise error
    assert "None" not in str(raised.value) and "not installed" not in str(raised.value)


@pytest.mark.parametrize("name", ["huggingface:glue", "kubric:a/b", "glue/cola,data_dir=gs://bucket", "../glue", ""])
def test_a_data_set_that_would_be_looked_up_on_the_network_is_rejected(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(CorpusError, match=mentioning(f"tfds:{name}", "NAME/CONFIG")):
        text.open_split(name)
