"""Sources that need other people's packages: Parquet files as pyarrow writes them, and TensorFlow Datasets."""

import contextlib
import io

import fsspec
import pytest
from comparing import needs
from messages import mentioning

needs("pyarrow", "datasets", "tensorflow", "tensorflow_datasets")

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow_datasets as tfds

from bertzoo.core.errors import CorpusError
from bertzoo.data.settings import MixtureSource
from bertzoo.data.sources import text as ours
from bertzoo.data.sources.files import SourceFile
from bertzoo.data.sources.pieces import cut_pieces
from bertzoo.data.sources.text import table_documents

# TensorFlow Datasets uses a method of protobuf's that is on its way out.
pytestmark = pytest.mark.filterwarnings(r"ignore:label\(\) is deprecated:DeprecationWarning")
TEXTS = [f"Document {i}.\n\n  Its second paragraph, naïve." for i in range(1000)]
DOCUMENTS = [f"Document {i}.\nIts second paragraph, naïve." for i in range(1000)]


def read(source, text_field="text", piece_bytes=1 << 20):
    part = MixtureSource(source=str(source), text_field=text_field)
    found = cut_pieces([part], heldout=0.1, piece_bytes=piece_bytes)
    return [document for piece in found for document in piece.documents]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
@pytest.mark.parametrize("options", [{}, {"compression": "zstd", "row_group_size": 70}], ids=["one", "groups"])
def test_parquet_gives_one_document_a_row(tmp_path, kind, options):
    table = pa.table({"id": pa.array(range(1000)), "body": pa.array(TEXTS, kind)})
    pq.write_table(table, tmp_path / "a.parquet", **options)
    assert read(tmp_path / "a.parquet", "body") == DOCUMENTS
    assert read(tmp_path, "body") == DOCUMENTS


def test_a_data_set_on_disk_gives_its_rows_in_order(tmp_path):
    """As `save_to_disk` of Hugging Face's package writes it; caches beside it and other splits are not read."""
    whole = datasets.Dataset.from_dict({"id": list(range(1000)), "text": TEXTS})
    whole.save_to_disk(tmp_path / "whole", num_shards=3)
    whole.map(lambda row: {"text": "no"}, cache_file_name=str(tmp_path / "whole/cache-1.arrow"))
    assert read(tmp_path / "whole") == DOCUMENTS == read(tmp_path / "whole/*-of-00003.arrow")
    mixed = whole.shuffle(seed=1).filter(lambda row: row["id"] % 3 > 0)
    datasets.DatasetDict(train=mixed, test=whole).save_to_disk(tmp_path / "splits")
    assert read(tmp_path / "splits") == [DOCUMENTS[i] for i in mixed["id"]]
    assert read(tmp_path / "splits/test") == DOCUMENTS
    datasets.DatasetDict(test=whole).save_to_disk(tmp_path / "test")
    with pytest.raises(CorpusError, match=mentioning("'train'", tmp_path / "test/test")):
        read(tmp_path / "test")
    with pytest.raises(CorpusError, match=mentioning("'body'", "id, text")):
        read(tmp_path / "whole", "body")
    shard = tmp_path / "whole/data-00001-of-00003.arrow"
    shard.write_bytes(shard.read_bytes()[:-20_000])
    with pytest.raises(CorpusError, match=mentioning(shard, "Arrow")):
        read(tmp_path / "whole")


def test_arrow_files_with_a_footer_are_read(tmp_path):
    table = pa.table({"text": TEXTS})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as file:
        file.write_table(table, max_chunksize=300)
    assert read(tmp_path / "a.arrow") == DOCUMENTS
    (tmp_path / "cut.arrow").write_bytes((tmp_path / "a.arrow").read_bytes()[:-20_000])
    with pytest.raises(CorpusError, match=mentioning("cut.arrow", "Arrow")):
        read(tmp_path / "cut.arrow")


def test_parquet_is_read_from_a_remote_directory():
    file = io.BytesIO()
    pq.write_table(pa.table({"text": TEXTS}), file)
    memory = fsspec.filesystem("memory")
    memory.pipe("/data/train-00000-of-00002.parquet", file.getvalue())
    memory.pipe("/data/train-00001-of-00002.parquet", file.getvalue())
    memory.pipe("/data/README.txt.old", b"x")
    assert read("memory://data") == 2 * DOCUMENTS


def test_parquet_is_read_a_few_rows_at_a_time(tmp_path):
    """A row group of 60 MB of text passes through 16 MB."""
    table = pa.table({"text": [f"{i} {'word ' * 20_000}" for i in range(600)]})
    pq.write_table(table, tmp_path / "a.parquet", compression="none", use_dictionary=False, write_batch_size=8)
    assert pq.ParquetFile(tmp_path / "a.parquet").num_row_groups == 1
    before = pa.total_allocated_bytes()
    held = 0
    for _ in table_documents(SourceFile(str(tmp_path / "a.parquet")), "text"):
        held = max(held, pa.total_allocated_bytes() - before)
    assert 0 < held < 16 << 20


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({"body": ["x"]}, ("'text'", "body")),
        ({"text": [1]}, ("int64", "'text'")),
        ({"text": ["x", None]}, ("row 2", "'text'")),
        ({"text": pa.array([], pa.string())}, ()),
    ],
)
def test_bad_parquet_raises_by_name(tmp_path, table, named):
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match=mentioning(tmp_path / "a.parquet", *named)):
        read(tmp_path / "a.parquet")


def test_damaged_parquet_raises_by_name(tmp_path):
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": TEXTS}), file)
    whole = file.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", whole[:100] + bytes(2000) + whole[2100:]):
        file.write_bytes(damaged)
        with pytest.raises(CorpusError, match=mentioning(file, "Parquet")):
            read(file)


@pytest.mark.parametrize("name", ["wikipedia/20230601.en", "c4/en"])
def test_data_sets_are_read_in_their_order(name, monkeypatch):
    monkeypatch.setattr(ours, "EXAMPLES", 3)
    with tfds.testing.mock_data(num_examples=8):
        examples = list(tfds.data_source(name, split="train", download=False))
        expected = [example["text"] for example in examples]
        found = list(
            cut_pieces([MixtureSource(source=f"tfds:{name}", text_field="text")], heldout=0.1, piece_bytes=1 << 20)
        )
        with pytest.raises(CorpusError, match=mentioning(f"tfds:{name}[0]", "'body'", ", ".join(examples[0]))):
            read(f"tfds:{name}", "body")
    assert [document for piece in found for document in piece.documents] == [text.strip() for text in expected]
    assert [len(piece.documents) for piece in found] == [3, 3, 2] and found[0].origin == f"tfds:{name}[0:3]"


class Prose(tfds.core.GeneratorBasedBuilder):
    """A data set of our own, prepared as a person would prepare one."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict({"text": tfds.features.Text()}))

    def _split_generators(self, dl_manager):
        return {"train": ((i, {"text": text}) for i, text in enumerate(TEXTS[:50]))}

    def _generate_examples(self):
        raise NotImplementedError


def test_a_prepared_data_set_yields_its_text(tmp_path, monkeypatch):
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    with pytest.raises(CorpusError, match=mentioning("tfds:prose", "tfds build prose --file_format=array_record")):
        read("tfds:prose")
    with contextlib.redirect_stdout(io.StringIO()):
        Prose(data_dir=str(tmp_path), file_format="array_record").download_and_prepare()
    assert sorted(read("tfds:prose")) == sorted(DOCUMENTS[:50])


def test_an_unknown_data_set_raises():
    with pytest.raises(CorpusError, match=mentioning("tfds:wikipedium", "tfds build wikipedium")):
        read("tfds:wikipedium")
