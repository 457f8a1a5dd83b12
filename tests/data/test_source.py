"""Sources: what is read, in which order, and what is refused."""

import gzip
import json
import lzma

import pytest
import zstandard

from bertzoo.data import source
from bertzoo.data.source import pieces
from bertzoo.errors import CorpusError

TEXT = "First paragraph.\nSecond one.\n\nAnother document, naïve.\n \n\nThird.\n"
DOCUMENTS = ["First paragraph.\nSecond one.", "Another document, naïve.", "Third."]


def read(name, text_field="text", piece_bytes=1 << 20):
    found = list(pieces(str(name), text_field=text_field, piece_bytes=piece_bytes))
    assert [piece.index for piece in found] == list(range(len(found)))
    return [document for piece in found for document in piece.documents]


COMPRESSIONS = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_text_is_the_same_in_every_compression(tmp_path, suffix):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESSIONS[suffix](TEXT.encode()))
    assert read(path) == DOCUMENTS


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_a_truncated_archive_is_refused(tmp_path, suffix):
    path = tmp_path / f"a.txt{suffix}"
    data = COMPRESSIONS[suffix]("".join(f"Line {i * i}.\n\n" for i in range(20_000)).encode())
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(CorpusError, match=f"a.txt{suffix}.*cut short"):
        read(path)


def test_two_zst_frames_are_one_file(tmp_path):
    path = tmp_path / "a.txt.zst"
    path.write_bytes(COMPRESSIONS[".zst"](b"One.\n\n") + COMPRESSIONS[".zst"](b"Two.\n"))
    assert read(path) == ["One.", "Two."]


def test_an_archive_of_noise_is_refused(tmp_path):
    for suffix in (".gz", ".xz", ".zst"):
        path = tmp_path / f"b.txt{suffix}"
        path.write_bytes(b"not compressed at all")
        with pytest.raises(CorpusError, match="cannot be decompressed"):
            read(path)


def test_directories_globs_and_lists_are_read_in_order(tmp_path):
    (tmp_path / "sub").mkdir()
    for name, text in {"b.txt": "B", "a.txt": "A", "sub/c.md": "C", "d.bin": "D", ".hidden.txt": "H"}.items():
        (tmp_path / name).write_text(text)
    assert read(tmp_path) == ["A", "B", "C"]
    assert read(tmp_path / "*.txt") == ["A", "B"]
    assert read(f"{tmp_path / 'b.txt'}, {tmp_path / 'a.txt'}") == ["B", "A"]
    with pytest.raises(CorpusError, match=r"a\.txt more than once"):
        read(f"{tmp_path},{tmp_path / 'a.txt'}")


def test_jsonl_reads_the_named_field(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    lines = [json.dumps({"body": "One.\n\n Two.", "text": "no"}), "", json.dumps({"body": "Three."})]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    assert read(path, text_field="body") == ["One.\nTwo.", "Three."]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "cut', "line 2 is not JSON"),
        ('{"other": "x"}', "line 2 has no text in the field 'text'"),
        ('{"text": 3}', "line 2 has no text"),
        ("[1]", "line 2 has no text"),
        ('{"text": "\\ud800"}', "line 2 holds half a surrogate pair"),
    ],
)
def test_bad_jsonl_names_the_line(tmp_path, line, message):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "Fine."}\n' + line + "\n")
    with pytest.raises(CorpusError, match=rf"a\.jsonl {message}"):
        read(path)


def test_pieces_never_cross_files_and_keep_order(tmp_path):
    (tmp_path / "a.txt").write_text("\n\n".join(f"A{i}" for i in range(10)))
    (tmp_path / "b.txt").write_text("\n\n".join(f"B{i}" for i in range(3)))
    found = list(pieces(str(tmp_path), text_field="text", piece_bytes=8))
    assert [len(piece.documents) for piece in found] == [4, 4, 2, 3]
    assert [piece.origin for piece in found] == ["a.txt"] * 3 + ["b.txt"]
    assert sum((piece.documents for piece in found), ()) == (*(f"A{i}" for i in range(10)), "B0", "B1", "B2")
    assert len({piece.sha256 for piece in found}) == 4


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", None, "does not exist"),
        ("a.txt", b"", "is empty"),
        ("a.txt", b" \n\n \n", "holds no text"),
        ("a.txt", b"text\n\x89PNG\0\0more", "NUL bytes"),
        ("a.txt", b"fine\ncaf\xe9\n", "line 2 is not UTF-8"),
        ("a.json", b"[]", "JSON file"),
        ("*.txt", None, "no file matches"),
        ("a.txt,,b.txt", None, "empty name"),
    ],
)
def test_bad_files_are_refused_by_name(tmp_path, name, data, message):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(CorpusError, match=message):
        read(tmp_path / name)


def test_an_empty_directory_and_an_unknown_embedded_source_are_refused(tmp_path):
    with pytest.raises(CorpusError, match="holds no file named"):
        read(tmp_path)
    with pytest.raises(CorpusError, match="embedded:python"):
        read("embedded:perl")


def test_a_gigantic_line_or_document_is_refused_with_its_place(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "LONGEST", 1 << 20)
    line, document = tmp_path / "line.txt", tmp_path / "document.txt"
    line.write_bytes(b"short\n" + b"x" * (5 << 20))
    document.write_bytes(b"a\n\n" + b"a line of text\n" * 100_000)
    with pytest.raises(CorpusError, match=r"line\.txt line 2 has more than 1,048,576 bytes"):
        read(line)
    with pytest.raises(CorpusError, match=r"document\.txt line 3: a document of [\d,]+ characters"):
        read(document)


def test_the_limit_is_64_mebibytes():
    assert source.LONGEST == 64 * 1024 * 1024


def test_a_byte_order_mark_is_no_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfHello.\r\n\r\nWorld.\r\n")
    assert read(tmp_path / "a.txt") == ["Hello.", "World."]
