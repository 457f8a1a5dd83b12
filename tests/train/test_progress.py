"""Lines on the console, metrics.jsonl, TensorBoard, and the figures in them."""

import contextlib
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from messages import mentioning, mentions
from tensorboardX.proto import event_pb2
from toy import stage

from bertzoo.train import progress
from bertzoo.train.progress import Console, JsonLines, TensorBoard
from bertzoo.train.step import Totals

STAGES = stage(10, max_length=128), stage(10, max_length=512, carry="all")
RECORD = {"step": 12, "stage": 1, "split": "train", "loss": 5.25, "mlm_loss": 4.5, "mlm_accuracy": 0.125}
RECORD |= {"learning_rate": 1e-3, "examples_per_second": 1234.5, "tokens_per_second": 65536.0}
RECORD |= {"flops_per_second": 2.5e12, "mfu": 0.425, "memory_bytes": 3 * 10**9, "elapsed_seconds": 9.0}


def test_a_line_has_every_figure():
    left = 8 * 16 / 1234.5  # seconds
    expected = [
        "step 12/20", "loss 5.2500", "mlm acc 0.125", "lr 1.00e-03", "1.23k ex/s", "65.5k tok/s", "2.5T FLOP/s",
        "MFU 42.5%", "mem 3GB", f"ETA {progress.duration(left)}",
    ]  # fmt: skip
    assert progress.metrics_line(RECORD, STAGES) == "  ".join(expected)


def test_remaining_tokens_counts_every_stage():
    assert progress.remaining_tokens(STAGES, 0) == 10 * 16 * (128 + 512)
    assert progress.remaining_tokens(STAGES, 9) == 16 * 128 + 10 * 16 * 512
    assert progress.remaining_tokens(STAGES, 20) == 0


def test_durations_and_quantities_have_units():
    seconds = 4.4, 59.6, 185, 7380, 439200
    assert [*map(progress.duration, seconds)] == ["4s", "1m00s", "3m05s", "2h03m", "5d02h"]
    assert [*map(progress.quantity, (0.5, 999, 1234567, 2.5e12))] == ["0.5", "999", "1.23M", "2.5T"]


def test_without_a_terminal_every_record_is_a_plain_line():
    stream = io.StringIO()
    console = Console(STAGES, stream)
    console(RECORD)
    console({"step": 12, "stage": 1, "split": "heldout", "loss": 5.5})
    console({"event": "resumed", "step": 12, "stage": 1})
    console.close()
    assert stream.getvalue().splitlines() == [
        progress.metrics_line(RECORD, STAGES), "step 12/20  heldout  loss 5.5000", "resumed at step 12  stage 1"
    ]  # fmt: skip


def test_on_a_terminal_train_records_share_one_live_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    console = Console(STAGES, stream)
    for step in (11, 12):
        console({**RECORD, "step": step})
    console({"event": "stopped", "step": 12, "stage": 1})
    console.close()
    text = stream.getvalue()
    assert "\x1b[2K" in text and "step 11/20" in text and mentions(text, "step 12")  # a line erased, then the next


def write(path: Path, *records: dict[str, Any]) -> None:
    with contextlib.closing(JsonLines(path)) as lines:
        for record in records:
            lines(record)


def test_json_lines_are_flushed_and_replace_an_incomplete_line(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    lines = JsonLines(path)
    lines(RECORD)
    assert json.loads(path.read_text()) == RECORD
    lines.close()
    path.write_text(path.read_text() + '{"step": 13, "lo')
    write(path, {"event": "resumed", "step": 12})
    first, last = map(json.loads, path.read_text().splitlines())
    assert first == RECORD and last["event"] == "resumed"


@pytest.mark.parametrize(
    ("first", "kept"),
    [
        ({"event": "resumed", "step": 2}, [1, 2]),
        ({"event": "changed", "step": 2}, [1, 2, 3]),  # the command may stop before it trains
        ({"split": "train", "step": 2}, [1]),
        ({"event": "finished", "step": 3}, [1, 2, 3]),
    ],
)
def test_json_lines_hold_every_step_once_after_a_resume(first: dict[str, Any], kept: list[int], tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    steps = [{"split": split, "step": step} for step in (1, 2, 3) for split in ("train", "heldout")]
    event = {"event": "non_finite", "step": 3}
    path.write_text("".join(f"{json.dumps(record)}\n" for record in [*steps, event]) + "damaged\n")
    write(path, first, {"split": "train", "step": 9}, {"event": "finished", "step": 9})
    *before, damaged, own, train, finished = path.read_text().splitlines()
    assert [json.loads(line) for line in before] == [r for r in steps if r["step"] in kept] + [event]
    assert damaged == "damaged" and json.loads(own) == first
    assert json.loads(train)["step"] == json.loads(finished)["step"] == 9


def test_json_lines_of_a_run_without_a_checkpoint_hold_every_step_once(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    records = {"event": "compiling", "step": 0}, {"split": "train", "step": 1}, {"split": "train", "step": 2}
    for _ in range(2):  # the first run is killed
        write(path, *records)
    assert [*map(json.loads, path.read_text().splitlines())] == [records[0], *records]


def test_json_lines_keep_a_link_and_carriage_returns(tmp_path: Path):
    link, file = tmp_path / "metrics.jsonl", tmp_path / "elsewhere"
    file.write_bytes(b'damaged\rline\n{"split": "train", "step": 3}\n{"st')
    link.symlink_to(file)
    write(link, {"event": "resumed", "step": 2})
    assert link.is_symlink() and file.read_bytes().splitlines(keepends=True)[:2] == [b"damaged\r", b"line\n"]
    assert json.loads(file.read_bytes().split(b"\n")[1])["event"] == "resumed"


def events(file: Path) -> Iterator[Any]:
    """The events of a TensorBoard file: in TFRecord, a length, its checksum, the event, its checksum."""
    data = file.read_bytes()
    while data:
        size = int.from_bytes(data[:8], "little")
        yield event_pb2.Event.FromString(data[12 : 12 + size])  # pyright: ignore[reportAttributeAccessIssue]
        data = data[16 + size :]


def test_tensorboard_has_every_metric_and_drops_what_a_crashed_run_wrote_after_its_checkpoint(tmp_path: Path):
    board = TensorBoard(tmp_path)
    board(RECORD)
    board({"event": "resumed", "step": 9})
    board({"event": "finished", "step": 12})
    board.close()
    [file] = tmp_path.iterdir()
    assert [event.step for event in events(file) if event.HasField("session_log")] == [10]
    scalars = {value.tag: (event.step, value.simple_value) for event in events(file) for value in event.summary.value}
    assert scalars.keys() == {f"train/{name}" for name in RECORD.keys() - {"step", "stage", "split"}}
    assert scalars["train/loss"] == (12, 5.25)


def test_json_lines_name_the_file_of_a_full_disk():
    with pytest.raises(OSError, match=mentioning("'/dev/full'")):
        write(Path("/dev/full"), RECORD)


def test_a_run_without_the_extra_writes_no_tensorboard_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for installed in (True, False):
        monkeypatch.setitem(sys.modules, "tensorboardX", sys.modules["tensorboardX"] if installed else None)
        reporters = progress.file_reporters(tmp_path / "metrics.jsonl", tmp_path / f"tensorboard-{installed}")
        assert [type(each) for each in reporters] == [JsonLines, TensorBoard][: 1 + installed]
        for each in reporters:
            each.close()
    assert not (tmp_path / "tensorboard-False").exists()


def test_tensorboard_names_the_file_of_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    board = TensorBoard(tmp_path)

    def full() -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match=mentioning(next(tmp_path.iterdir()))):
        patch.setattr(board._writer, "flush", full)
        board(RECORD)
    board.close()


def test_peak_flops_uses_the_longest_prefix():
    kinds = "TPU v5 lite", "TPU v5", "TPU v4", "NVIDIA H100 80GB HBM3", "cpu"
    assert [*map(progress.peak_flops, kinds)] == [197e12, 459e12, 275e12, 989e12, None]


def test_means_divide_sums_by_weights_and_skip_weight_zero():
    totals, unused = Totals(), {"x": (0.0, 0.0)}
    totals.add({"terms": {"mlm": (6.0, 2.0), "sop": (1.0, 4.0)}, "metrics": {"mlm_accuracy": (1.0, 2.0)} | unused})
    totals.add({"terms": {"mlm": (1.0, 5.0), "sop": (3.0, 4.0)}, "metrics": {"mlm_accuracy": (2.0, 4.0)} | unused})
    assert totals.means() == {"loss": 1.5, "mlm_loss": 1.0, "sop_loss": 0.5, "mlm_accuracy": 0.5}


def test_the_meter_counts_only_steps(monkeypatch: pytest.MonkeyPatch):
    clock = iter([10.0, 12.0, 14.0, 52.0, 99.0])
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(clock))
    meter = progress.Meter()
    meter.step(100, 1e6)  # 10: compiled, not timed
    meter.step(20, 5.0)  # 12
    meter.step(30, 5.0)  # 14
    meter.leave_out(36.0)  # an evaluation
    meter.step(40, 8.0)  # 52
    assert meter.throughput() == (3 / 6, 90 / 6, 18 / 6)
    assert meter.throughput() is None
    meter.last = None
    meter.step(100, 1e6)  # 99: compiled
    assert meter.throughput() is None


def test_the_line_of_a_loss_that_is_not_finite_leaves_the_message_to_the_error():
    record = {"event": "non_finite", "step": 3, "stage": 0, "message": "nan in row 7"}
    assert progress.event_line(record) == "non finite at step 3  stage 0"


def test_the_line_of_a_new_stage_has_its_name():
    """Not its number: people count from 1, and stages.N from 0."""
    sizes = {"stage": 1, "steps": 10_000, "batch_size": 2048, "max_length": 512}
    line = progress.event_line({"event": "stage", "step": 50, "name": "transfer, layer 2 of 24", **sizes})
    assert line == "transfer, layer 2 of 24 starts after step 50: 10,000 steps of 2,048 rows of 512 tokens"
