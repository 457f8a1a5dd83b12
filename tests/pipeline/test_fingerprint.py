"""Stamps, by which a pipeline recognises unchanged inputs without reading them."""

import os
from pathlib import Path

from bertzoo.pipeline import record


def test_a_stamp_changes_with_name_size_and_modification_time(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one")
    os.utime(file, ns=(0, 1))
    stamps = [record.files_stamp(str(tmp_path))]
    file.write_text("two")
    os.utime(file, ns=(0, 2))  # the same size
    stamps.append(record.files_stamp(str(tmp_path)))
    file.write_text("three")
    os.utime(file, ns=(0, 2))
    stamps.append(record.files_stamp(str(tmp_path)))
    file.rename(tmp_path / "b.txt")
    stamps.append(record.files_stamp(str(tmp_path)))
    assert len({*stamps}) == 4 and None not in stamps
    assert record.files_stamp(str(tmp_path)) == stamps[-1] and record.files_stamp(str(tmp_path / "none")) is None
