"""One's own questions from a Parquet file, which is read with pyarrow."""

from comparing import needs

needs("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from bertzoo.tasks import custom_questions
from bertzoo.tasks.custom import CustomFiles
from bertzoo.tasks.squad import Answer


def test_rows_are_questions(tmp_path):
    columns = {"question": ["?"], "context": ["a b"], "answer": [["b"]], "start": [[2]], "id": [12]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    own = CustomFiles(kind="span", train="a.parquet", start="start", id="id")
    (asked,) = custom_questions.read_question_set(own, "train", tmp_path).examples
    assert (asked.key, asked.answers) == ("12", (Answer("b", 2),))
