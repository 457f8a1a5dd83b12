"""The small files of a run in a bucket: whole there, never behind a checkpoint, and of one process at a time."""

import json
import logging
import socket

import pytest
from messages import mentioning, mentions

from bertzoo.core.errors import UserError
from bertzoo.runs.bucket import METRICS, OWNER, Bucket, Sender
from bertzoo.runs.run_dir import RunDirectory

URL = "memory://bucket/run"


def held(bucket):
    return {path.removeprefix("/bucket/run/"): bucket.cat(path) for path in bucket.find("/bucket/run")}


@pytest.fixture
def mirror(bucket):
    """One that writes the run."""
    made = Bucket(URL)
    made.take()
    return made


def test_files_are_uploaded_whole_and_once(mirror, bucket, monkeypatch):
    (mirror.directory / "tensorboard").mkdir()
    for name, text in {"config.toml": "a", METRICS: "1\n", "tensorboard/events": "x", "x.tmp": "", ".lock": ""}.items():
        (mirror.directory / name).write_text(text)
    mirror.send()
    assert held(bucket).keys() == {"config.toml", METRICS, "tensorboard/events", OWNER}
    sent = []
    monkeypatch.setattr(type(bucket), "pipe_file", lambda self, path, data: sent.append(path))
    mirror.send()
    assert not sent
    with (mirror.directory / METRICS).open("a") as file:
        file.write("2\n")
    mirror.send()
    assert sent == ["/bucket/run/metrics.jsonl"]


def test_another_machine_resumes_from_the_bucket(mirror, bucket, tmp_path, monkeypatch):
    texts = {"config.toml": "a", METRICS: "1\n2\n", "tokenizer/settings.json": "b", "tokenizer/vocab.txt": "c"}
    (mirror.directory / "tokenizer").mkdir()
    for name, text in texts.items():
        (mirror.directory / name).write_text(text)
    mirror.send()
    assert held(bucket).keys() == {*texts, OWNER}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    (other := Bucket(URL)).take()
    (reader := Bucket(URL)).fetch()
    for copy in (other, reader):
        assert {name: (copy.directory / name).read_text() for name in texts} == texts


def test_lines_that_were_not_sent_are_not_lost_to_this_machine(mirror, bucket):
    (mirror.directory / "config.toml").write_text("a")
    (mirror.directory / METRICS).write_text("1\n")
    mirror.send()
    (mirror.directory / METRICS).write_text("1\n2\n")  # and then it was killed
    again = Bucket(URL)
    again.take()
    assert (again.directory / METRICS).read_text() == "1\n2\n"
    bucket.pipe("/bucket/run/metrics.jsonl", b"1\n3\n4\n")  # meanwhile another machine went on
    again.take()
    assert (again.directory / METRICS).read_text() == "1\n3\n4\n"


def test_files_of_an_earlier_run_of_the_same_name_are_not_reused(mirror, bucket):
    (mirror.directory / "tensorboard").mkdir()
    (mirror.directory / "tensorboard" / "events").write_text("old")
    (mirror.directory / METRICS).write_text("old\n")
    (mirror.directory / "plans").mkdir()
    bucket.rm("/bucket/run", recursive=True)
    again = Bucket(URL)
    again.take()
    again.send()
    assert held(bucket).keys() == {OWNER} and (again.directory / "plans").is_dir()


def test_the_later_of_two_runs_continues_and_the_earlier_stops(mirror, bucket):
    mirror.before_a_save()
    (mirror.directory / METRICS).write_text("mine\n")
    later = Bucket(URL)
    later.take()
    (later.directory / METRICS).write_text("theirs\n")
    with pytest.raises(UserError, match=mentioning(URL, socket.gethostname())):
        mirror.before_a_save()
    later.before_a_save()
    assert held(bucket)[METRICS] == b"theirs\n"
    bucket.rm(f"/bucket/run/{OWNER}")
    with pytest.raises(UserError, match=mentioning(URL)):
        later.before_a_save()


def denied(*args, **options):
    raise PermissionError("403: no access\nto the bucket")


def test_a_denied_bucket_raises_at_once_and_at_every_save(mirror, bucket, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(type(bucket), "pipe_file", denied)
        with pytest.raises(UserError, match=mentioning(f"{URL}/{OWNER}", "403: no access to the bucket")):
            Bucket(URL).take()
        (mirror.directory / METRICS).write_text("1\n")
        with pytest.raises(UserError, match=mentioning(f"{URL}/{METRICS}", "403: no access to the bucket")):
            mirror.before_a_save()
    mirror.before_a_save()
    assert held(bucket)[METRICS] == b"1\n"


def test_the_reporter_sends_after_events_and_now_and_then(mirror, bucket, monkeypatch, caplog):
    sender, now = Sender(mirror), [1000.0]
    monkeypatch.setattr("bertzoo.runs.bucket.time.monotonic", lambda: now[0])

    def report(step, **record):
        with (mirror.directory / METRICS).open("a") as file:
            file.write(f"{step}\n")
        sender({"step": step, **record})
        return held(bucket)[METRICS].decode().split()[-1]

    assert report(1) == "1"
    assert report(2) == "1"
    assert report(3, event="stopped") == "3"
    now[0] += 31
    assert report(4) == "4"
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(type(bucket), "pipe_file", denied)
        assert report(5, event="finished") == "4"
        assert mentions(caplog.text, f"{URL}/{METRICS}", 403, mirror.directory)
    sender.close()
    assert held(bucket)[METRICS].decode().split()[-1] == "5"


def test_a_reader_does_not_touch_the_local_files_of_a_run(mirror, bucket):
    (mirror.directory / METRICS).write_text("1\n")
    mirror.send()
    (mirror.directory / METRICS).write_text("1\n2\n")
    reader = Bucket(URL)
    reader.fetch()
    assert reader.directory != mirror.directory and reader.directory.name == "run"
    assert (reader.directory / METRICS).read_text() == "1\n"
    (reader.directory / "report.md").write_text("page")
    reader.send(["report.md"])
    assert held(bucket)["report.md"] == b"page" and held(bucket)[METRICS] == b"1\n"
    assert json.loads(held(bucket)[OWNER])["id"] == mirror.owner()["id"]


def test_a_run_directory_is_on_disk_or_in_a_bucket_of_googles():
    with pytest.raises(UserError, match=mentioning("s3://bucket/run", "URL", "gs://")):
        RunDirectory("s3://bucket/run")
