"""The picture of `bertzoo benchmark --out`: what it says of each row, and that there is room for it."""

import dataclasses
from pathlib import Path
from typing import Any

from bertzoo.benchmark import picture, rows


def example(model: str, seconds: float, **fields: Any) -> rows.Row:
    setting = {"backend": "litert", "version": "1", "precision": "fp32", "threads": 1, "length": 128} | fields
    unknown = dict.fromkeys(("head", "parameters", "flops"))
    return rows.Row(model=model, rounds=[[seconds]], peak=0, empty=0, size=1, **setting, **unknown)


def texts(figure: Any) -> tuple[list[str], list[str], list[str]]:
    """Lines of the title, labels of the bars, and what is behind them."""
    (axes,) = figure.axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    return figure.get_suptitle().splitlines(), labels, [text.get_text().strip() for text in axes.texts]


def test_a_picture_says_what_was_measured() -> None:
    same = [example("a", 0.002), example("base", 0.001)]
    title, labels, behind = texts(picture.figure(same, "base", 40))
    assert title == ["40 runs of one row in turns; x: as fast as base", "litert 1, fp32, 1 thread, 128 tokens"]
    assert labels == ["a", "base"] and behind == ["2 ms, 0.50x", "1 ms, 1.00x"]
    other = dataclasses.replace(example("file.onnx", 0.5, backend="onnx", threads=4), precision=None)
    title, labels, behind = texts(picture.figure([*same, other], "base", 40))
    assert title[1] == "128 tokens" and behind[2] == "500 ms"
    assert labels[1:] == ["base, litert 1, fp32, 1 thread", "file.onnx, onnx 1, unknown precision, 4 threads"]
    title, *_ = texts(picture.figure([*same, dataclasses.replace(other, length=8)], "base", 40))
    assert len(title) == 1  # the settings are all beside their rows


def test_long_names_leave_the_bars_their_room(tmp_path: Path) -> None:
    folder = "/somewhere/deep/in/a/file/system/with/many/more/directories/runs"
    names = [f"{folder}/first/phone/model.tflite", f"{folder}/second/phone/model.tflite", f"{folder}/{'x' * 50}.tflite"]
    ends = ["…/runs/first/phone/model.tflite", "…/runs/second/phone/model.tflite", f"…{'x' * 24}.tflite"]
    assert picture.short(names) == dict(zip(names, ends, strict=True))
    assert picture.short(["squeezebert", names[0]])["squeezebert"] == "squeezebert"
    made = picture.figure([example(name, 0.1, precision="int8-dynamic") for name in names], names[1], 40)
    title, labels, _ = texts(made)
    assert labels == ends and title[0].endswith(f"as fast as {ends[1]}")
    made.savefig(tmp_path / "picture.png")
    (axes,) = made.axes
    box = axes.get_window_extent()
    assert box.width > made.bbox.width / 2
    for text in axes.texts:
        assert text.get_window_extent().x1 <= box.x1 + 1 < made.bbox.width - 10
    assert all(label.get_window_extent().x0 > 5 for label in axes.get_yticklabels())
    one, six = (picture.figure([example("base", 0.1)] * count, "base", 40).get_figheight() for count in (1, 6))
    assert six > one
