"""Errors of `bertzoo convert --to=litert` before any conversion, and its destinations; needs no LiteRT."""

import copy
import dataclasses
import functools
import os
from pathlib import Path
from typing import Any, get_args

import pytest
from messages import mentioning, mentions, refused
from zoo import CASES, WINDOWED, pretrained

from bertzoo.cli.main import main
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core import atomic
from bertzoo.core.errors import UserError
from bertzoo.data.tokenizers import tokenizer as tokenizers
from bertzoo.data.tokenizers.wordpiece import WordPiece
from bertzoo.export import convert as exporting
from bertzoo.export import formats as targets
from bertzoo.export import lengths
from bertzoo.export.check import verify
from bertzoo.export.check.quiz import build_quiz, draw_evenly
from bertzoo.export.convert import check_text_model
from bertzoo.export.litert import mediapipe, write
from bertzoo.export.options import FILES, PRECISIONS, ExportOptions, VectorPooling
from bertzoo.heads import JointSpanExtraction, NoHead, SequenceClassification
from bertzoo.heads.embedding import Pooling
from bertzoo.models import Bert, ConvBert
from bertzoo.runs import load_model
from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.squad_tasks import SQUAD
from bertzoo.tasks.task import Example, SplitExamples


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier's directory."""
    folder = tmp_path_factory.mktemp("refused")
    load_model.write_model(pretrained(*CASES["mobilebert"]), folder)
    return folder


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "check_packages", dict)
    monkeypatch.setattr(exporting, "write_file", lambda *_: pytest.fail("it was not refused"))


def refuse(capsys: pytest.CaptureFixture, message: tuple[object, ...], *words: object) -> None:
    assert main(["convert", *map(str, words)]) == 2
    refused(capsys, *message)


def test_tflite_is_another_name_of_litert_alone(tmp_path, capsys):
    assert ExportOptions(to="tflite", lengths=(8,)) == ExportOptions(to="litert", lengths=(8,))
    refuse(capsys, ("SRC", "DST", tmp_path), tmp_path, tmp_path, "--to=tflite")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--lengths=17"], ("--lengths=17 ", 16)),
        (["--lengths=8,3"], ("--lengths=3 ", 4)),
        (["--lengths=8,"], ("--lengths=8, ", "--lengths=32,128")),
        (["--pooling=first"], ("sequence_classification", "--head=none")),
        (["--head=masked"], ("masked", "sequence_classification")),
        (["--precision=int8-static"], ("int8-static", "--calibration=FILE")),
        (["--precision=int8-static", f"--calibration={__file__}"], ("tokenizer",)),
        (["--precision=int8-static", "--calibration=no.txt"], ("--calibration=no.txt", "No such file")),
        (["--precision=int8-static", "--calibration=/"], ("--calibration=/ ", "Is a directory")),
        (["--calibration=texts"], ("--calibration ", "--precision=int8-static", "fp32")),
        (["--precision=int8"], ("--precision=int8 ", "int8-dynamic?")),
        (["--examples=-1"], ("--examples=-1", "--examples=4")),
    ],
)
def test_wrong_options_are_rejected(options: list[str], message: tuple[object, ...], source: Path, tmp_path, capsys):
    refuse(capsys, message, source, tmp_path / "new" / "model.tflite", "--to=litert", *options)
    assert not list(tmp_path.iterdir())


OTHERS = {"--output=int8": [form for form in FILES if form != "mediapipe"], "--python=python3": ["executorch"]}


@pytest.mark.parametrize("option", ["--lengths=8", "--precision=fp16", "--examples=5", *OTHERS])
def test_options_of_other_formats_are_rejected(option: str, source: Path, tmp_path, capsys):
    message = (f"{option.split('=')[0]} ", *OTHERS.get(option, FILES), "--to=bertzoo")
    refuse(capsys, message, source, tmp_path / "out", "--to=bertzoo", option)


@pytest.mark.usefixtures("installed")
def test_wrong_destinations_are_rejected(source: Path, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "old.tflite.json").write_text("mine")
    (tmp_path / "folder.tflite").mkdir()
    (tmp_path / "used.tflite.files").mkdir()
    for name, message in {
        "model": ("end", ".tflite"),
        "folder.tflite": ("folder.tflite", "directory"),
        "old.tflite": ("old.tflite.json", "exists"),
        "used.tflite": ("used.tflite.files", "directory"),
        "file/new.tflite": (f"{tmp_path / 'file'} ", "is a file"),
        f"{'x' * 300}.tflite": ("File name too long",),
    }.items():
        before = sorted(tmp_path.rglob("*"))
        refuse(capsys, message, source, tmp_path / name, "--to=litert")
        assert sorted(tmp_path.rglob("*")) == before
    place = "/proc/nowhere/out.tflite"
    refuse(capsys, (place,), source, place, "--to=litert")


def test_files_appear_together_or_not_at_all(tmp_path, monkeypatch):
    place = tmp_path / "a" / "model.tflite"
    with pytest.raises(KeyError), atomic.new_files(place, "model.json") as temporary:
        (temporary / "model.tflite").write_bytes(b"half")
        raise KeyError
    assert not list(tmp_path.iterdir())
    unwritten = pytest.raises(atomic.WriteError, match=mentioning("model.tflite"))
    with unwritten, atomic.new_files(place, "model.json") as temporary:
        (temporary / "model.json").write_bytes(b"whole")  # and no model, which comes last
    assert not list(tmp_path.iterdir())
    with pytest.raises(atomic.WriteError), atomic.new_files(place, "model.files") as temporary:
        (temporary / "model.files").mkdir()
    assert not list(tmp_path.iterdir())
    before = os.umask(0o027)
    try:
        with atomic.new_files(place, "model.json", "model.files", "none") as temporary:
            (temporary / "model.tflite").write_bytes(b"whole")
            (temporary / "model.json").write_bytes(b"{}")
            (temporary / "model.files").mkdir(0o700)
            (temporary / "model.files" / "vocab.txt").touch(0o600)
    finally:
        os.umask(before)
    found = {path.name: path.stat().st_mode & 0o777 for path in place.parent.rglob("*")}
    assert found == {"model.tflite": 0o640, "model.json": 0o640, "model.files": 0o750, "vocab.txt": 0o640}
    with pytest.raises(UserError, match=mentioning("model.tflite", "exists")):
        atomic.check_new_file(place)


def tokenized(case: str, **options: Any) -> Pretrained:
    tokenizer = tokenizers.build(WordPiece(vocab_size=120, **options), lambda: iter(verify.TEXT * 20))
    return dataclasses.replace(pretrained(*CASES[case]), tokenizer=tokenizer)


check_mediapipe = functools.partial(check_text_model, "mediapipe")


def test_mediapipe_rejects_what_its_tasks_cannot_run():
    """Heads without a task, numbers, pairs, no tokenizer, and tokenizers that keep upper case."""
    model = tokenized("mobilebert")
    check_mediapipe(model)
    check_mediapipe(tokenized("bert"))
    assert mediapipe.task_name(model) == "classifier" and mediapipe.task_name(tokenized("bert")) == "embedder"
    number = dataclasses.replace(model, head=SequenceClassification(labels=("x",)))
    assert mediapipe.task_name(number) == "classifier" and number.head.probabilities == "none"
    cases: list[tuple[Pretrained, object]] = [
        (tokenized("bert-masked"), "masked"),
        (tokenized("convbert-dynamic"), "span"),
        (number, "number"),
        (dataclasses.replace(model, source={"task": "mrpc"}), "pairs"),
        (dataclasses.replace(model, source={"task": "own", "own": {"text_b": "answer"}}), "pairs"),
        (dataclasses.replace(model, tokenizer=None), "WordPiece"),
        (tokenized("mobilebert", lowercase=False), "upper case"),
    ]
    for wrong, part in cases:
        with pytest.raises(UserError, match=mentioning("--to=mediapipe", part, "--to=litert")):
            check_mediapipe(wrong)
    check_mediapipe(dataclasses.replace(model, source={"task": "sst2"}))


@pytest.mark.parametrize("labels", [("a\nb", "c"), ("a", "b\r"), ("a", " "), ("a", "c", "a")])
def test_mediapipe_rejects_labels_that_are_not_one_line_each(labels: tuple[str, ...]):
    model = dataclasses.replace(tokenized("mobilebert"), head=SequenceClassification(labels=labels))
    with pytest.raises(UserError, match=mentioning("--to=mediapipe", "label")):
        check_mediapipe(model)


def test_lengths_are_sorted_and_have_defaults():
    model = Bert(vocab_size=61, hidden_size=24, layers=1, heads=4, feed_forward_size=20)
    made, short = (pretrained(each, NoHead()) for each in (model, dataclasses.replace(model, max_positions=48)))
    assert lengths.resolve_lengths(made, [64, 32, 64]) == (32, 64)
    assert lengths.resolve_lengths(made, []) == (128,) and lengths.resolve_lengths(short, []) == (48,)
    choose = lengths.fixed_or_variable_lengths
    assert choose(made, []) == (4, 128, 512) and choose(short, []) == (4, 48)
    assert choose(made, [64]) == lengths.resolve_lengths(made, [64]) == (64,)
    joint = pretrained(model, JointSpanExtraction(beam=20))
    assert choose(joint, []) == (20, 128, 512) and choose(joint, [8]) == (8,)
    with pytest.raises(UserError, match=mentioning("--lengths=8", 20)):
        choose(joint, [8, 32])
    reader = pretrained(ConvBert(vocab_size=61, hidden_size=24, layers=1, heads=4, mask_padding=False), NoHead())
    assert lengths.text_lengths(reader, [32, 32]) == (32,) and lengths.text_lengths(made, []) == (4, 128, 512)
    for several in ([], [8, 32]):
        with pytest.raises(UserError, match=mentioning("--to=onnx-text", "convbert", "--lengths=128")):
            lengths.text_lengths(reader, several)
    strided = pretrained(WINDOWED, NoHead())
    assert choose(strided, [8]) == (8,)
    with pytest.raises(UserError, match=mentioning("stride = 3", "--lengths=128")):
        choose(strided, [])
    for to, runtime in (("executorch", "ExecuTorch"), ("mediapipe", "MediaPipe")):
        with pytest.raises(UserError, match=mentioning(runtime, " 2")):
            ExportOptions(to=to, lengths=(8, 32))
        assert ExportOptions(to=to, lengths=(8, 8)).lengths == (8, 8)


def test_options_and_implementations_agree():
    assert tuple(targets.targets(Path("python"))) == FILES
    assert tuple(verify.LIMITS) == PRECISIONS
    assert get_args(Pooling) == get_args(VectorPooling)


@pytest.mark.usefixtures("installed")
def test_examples_require_a_fine_tuned_model(tmp_path, capsys):
    (tmp_path / "masked").mkdir()
    load_model.write_model(pretrained(*CASES["schubert"]), tmp_path / "masked")
    words = (tmp_path / "masked", tmp_path / "out.tflite", "--to=litert", "--examples=5")
    refuse(capsys, ("--examples=5", "fine-tuned"), *words)


def test_examples_are_drawn_evenly():
    assert draw_evenly(range(10), 3) == [0, 3, 6]
    assert draw_evenly(range(3), 0) == draw_evenly(range(3), 4) == [0, 1, 2]


def test_examples_without_labels_get_advice(logged, models: Path, monkeypatch):
    """And skipped rows are reported."""
    bare = SplitExamples([Example("0", "a", "b")], {"too short": 2}, hidden=True)
    for name, task, table in (("stsb", "stsb", GLUE), ("span", "squad1", SQUAD)):
        unlabelled = copy.copy(table[task])
        object.__setattr__(unlabelled, "read", lambda split, directory: bare)
        monkeypatch.setitem(table, task, unlabelled)
        source = models / name
        logged.clear()
        with pytest.raises(UserError, match=mentioning("cannot be scored. Add labels to the file of this set.")):
            build_quiz(source, load_model.read_model(source), 24, 5)
        assert [mentions(line, "dev", 2, "too short") for line in logged] == [True]
