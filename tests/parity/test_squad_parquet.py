"""Questions from Parquet files, SQuAD's at Hugging Face and one's own, which are read with pyarrow."""

import pytest
from comparing import needs
from messages import mentioning

needs("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from bertzoo.core.errors import UserError
from bertzoo.tasks import custom, squad
from bertzoo.tasks.custom import CustomFiles
from bertzoo.tasks.squad import Answer

ROWS = [
    {
        "id": "a",
        "title": "T",
        "context": "A cät.",
        "question": "what?",
        "answers": {"text": ["cät"], "answer_start": [2]},
    },
    {"id": "b", "title": "T", "context": "A cät.", "question": "who?", "answers": {"text": [], "answer_start": []}},
]


def test_rows_are_questions(tmp_path):
    (tmp_path / "squad_v2").mkdir()
    file = tmp_path / "squad_v2" / "validation-00000-of-00001.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), file)
    first, second = squad.load_squad(tmp_path, "dev", "2.0")
    assert first.answers == (("cät", 2),) and not first.impossible and first.location == f"{file} question a"
    assert second.answers == () and second.impossible and second.context == "A cät." and second.article == "T"
    with pytest.raises(UserError, match=mentioning(f"{file} question b", "SQuAD 1.1")):
        squad.load_squad(file, "dev", "1.1")


def test_an_error_names_a_file_of_another_format(tmp_path):
    file = tmp_path / "a.parquet"
    file.write_bytes(b"PAR1 and no more")
    with pytest.raises(UserError, match=mentioning(file, "Parquet")):
        squad.read_questions(file)
    pq.write_table(pa.table({"text": ["x"]}), file)
    with pytest.raises(UserError, match=mentioning(f"{file} row 0", "text", "answer_start")):
        squad.read_questions(file)


def test_ones_own_rows_are_questions(tmp_path):
    columns = {"question": ["?"], "context": ["a b"], "answer": [["b"]], "start": [[2]], "id": [12]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    own = CustomFiles(kind="span", train="a.parquet", start="start", id="id")
    (asked,) = custom.read_question_set(own, "train", tmp_path).examples
    assert (asked.key, asked.answers) == ("12", (Answer("b", 2),))
