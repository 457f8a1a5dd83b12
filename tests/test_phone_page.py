"""benchmarks/phone.py: what is kept is not measured again, and its section says what was measured and what missed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripts import loaded

KINDS = {"peer": 1.0, "one fp32": 0.75, "one int8-dynamic": 0.5, "one int8-static": 0.375, "merged": 0.9375}
SPEED = {"bert_base": 0.4, "squeezebert": 0.1, "mobilebert": 0.05, "convbert_base": 0.2}


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Any:
    return loaded("phone_page", monkeypatch)


def found(page: Any, **changes: Any) -> Any:
    """Rounds in which every ratio is the same, though the second is ten times as slow."""
    fixed = {f"{name} {kind}": speed * share for name, speed in SPEED.items() for kind, share in KINDS.items()}
    fixed |= {f"corner {norm} {activation}": 0.09 for norm, activation in page.CORNERS}
    rounds = [
        {
            "fixed": {key: [slow * second] * 3 for key, second in (fixed | changes.get("fixed", {})).items()},
            "sentences": {
                f"{name} five fp32": [slow * speed * 0.15, slow * speed * 0.45] for name, speed in SPEED.items()
            },
        }
        for slow in (1, 10, 1)
    ]
    parts = {"one fp32": 100, "one int8-dynamic": 27, "five fp32": 102, "five int8-dynamic": 29}
    sizes = {f"{name} {kind}": size * 1_000_000 for name in SPEED for kind, size in parts.items()}
    return page.Found(
        names=list(SPEED),
        rounds=rounds,
        sizes=sizes | changes.get("sizes", {}),
        differences=dict.fromkeys(SPEED, 1e-6) | changes.get("differences", {}),
        read=[32, 64],
        each=3,
        versions={"litert-torch": "1.2"},
        costs={"ONNX": {"seconds": changes.get("seconds", 90.4), "gigabytes": changes.get("gigabytes", 5.96)}},
        scores=[scored(dynamic=changes.get("dynamic", 80.0))],
    )


def scored(dynamic: float) -> dict[str, Any]:
    """A run of a task with two metrics, whose model has 80 on the mean of them."""
    points = {"model": 80.0, "fp32": 80.0, "int8-dynamic": dynamic, "int8-static": 70.0}
    both = {which: {"accuracy": point - 5, "f1": point + 5} for which, point in points.items()}
    return {"kind": "bert, 6 layers, 22.7 M", "task": "mrpc", "metrics": ["accuracy", "f1"], "examples": 408, **both}


def test_what_is_measured_stands_there(page: Any) -> None:
    text, missed = page.page(found(page))
    assert missed == []
    assert "| SqueezeBERT | 100.0 | 75.0 | 0.750 (0.750 to 0.750) | 0.90 | 0.82 | yes | 1.0e-06 |" in text
    assert "| 0.270 | 1.020 of one | 0.284 | 0.667 (0.667 to 0.667) | 0.500 (0.500 to 0.500) | yes |" in text
    assert "| ConvBERT-base | 240.0 | 150.0 | 0.400 (0.400 to 0.400) | 0.45 | yes |" in text
    # The papers' own numbers: 192 and 62 of 342 ms; 572 and 390 of 1690 ms.
    assert (
        "| MobileBERT, LayerNorm & gelu | 90.0 | 0.300 (0.300 to 0.300) | 0.56 | Pixel 4, 4 threads, TFLite |" in text
    )
    assert "| MobileBERT, NoNorm & relu | 37.5 | 0.125 (0.125 to 0.125) | 0.18 |" in text
    assert "| MobileBERT | 37.5 | 0.125 (0.125 to 0.125) | 0.34 | Pixel 3" in text
    assert "| SqueezeBERT | 75.0 | 0.250 (0.250 to 0.250) | 0.23 | Pixel 3" in text
    assert "| bert, 6 layers, 22.7 M | mrpc | 408 | accuracy, f1 | 80.00 | 80.00 | 80.00 | 70.00 | yes |" in text
    assert "| ONNX | 90 | 6.0 | yes |" in text
    assert "of the time without: BERT-base 1.250 (1.250 to 1.250), SqueezeBERT 1.250" in text
    assert "2 sentences" in text and "(1 of 32, 1 of 64)" in text and "litert-torch 1.2" in text


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"fixed": {"bert_base peer": 0.31}}, "BERT-base against litert-torch is 0.968 and may be 0.95"),
        (
            {"fixed": {"mobilebert one int8-dynamic": 0.04}},
            "MobileBERT's time at int8 of float32's is 1.07 and may be 1",
        ),
        (
            {"sizes": {"squeezebert one int8-dynamic": 29_000_000}},
            "SqueezeBERT's int8 file of float32's is 0.29 and may",
        ),
        ({"sizes": {"mobilebert five int8-dynamic": 31_000_000}}, "five lengths is 0.304 and may be 0.3"),
        ({"sizes": {"mobilebert five fp32": 106_000_000}}, "of that of one is 1.06 and may be 1.05"),
        ({"differences": {"convbert_base": 1e-3}}, "ConvBERT-base's difference in logits is 0.001 and may be 0.0001"),
        ({"seconds": 186}, "MobileBERT to ONNX, in minutes, is 3.1 and may be 3"),
        ({"gigabytes": 6.1}, "MobileBERT to ONNX, in GB, is 6.1 and may be 6"),
        ({"dynamic": 79.4}, "mrpc: what int8-dynamic loses is 0.6 and may be 0.5"),
        ({"fixed": {"convbert_base one fp32": 0.13}}, "ConvBERT-base's sentences is 0.462 and may be 0.45"),
    ],
)
def test_what_is_missed_is_said(page: Any, changes: dict[str, Any], complaint: str) -> None:
    text, missed = page.page(found(page, **changes))
    assert len(missed) == 1 and complaint in missed[0] and text.count("NO |") == 1


def test_rounds_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is read, the sentences of a round are another part of all, and what changed is measured anew."""
    script, asked = loaded("phone", monkeypatch), []

    class Worker:
        def __init__(self, key: str) -> None:
            self.key = key

        def run(self, lengths: list[int]) -> list[float]:
            asked.append((self.key, lengths))
            return [float(length) for length in lengths]

        def close(self) -> None:
            pass

    monkeypatch.setattr(script.turns, "Worker", lambda key, load, python: Worker(key))
    keys = ["mobilebert peer", "mobilebert one fp32", "mobilebert five fp32", "mobilebert five int8-dynamic"]
    paths = {key: tmp_path / key for key in keys}
    for path in paths.values():
        path.write_bytes(b"file")
    files = script.Files(tmp_path, "python", ["mobilebert"], paths, {})
    read = [32] * script.PARTS + [64] * script.PARTS
    first = script.measure(files, read, 1, 2)
    assert first == [
        {
            "fixed": {"mobilebert peer": [128.0, 128.0], "mobilebert one fp32": [128.0, 128.0]},
            "sentences": {"mobilebert five fp32": [32.0, 64.0]},
        }
    ]
    assert [key for key, _ in asked] == ["mobilebert peer", "mobilebert one fp32", "mobilebert five fp32"]
    assert asked[0][1] == [128] * 3 and asked[2][1] == [32, 64, 32, 64]
    asked.clear()
    assert script.measure(files, read, 1, 2) == first and asked == []
    assert len(script.measure(files, read, 2, 2)) == 2 and [key for key, _ in asked] == [keys[2], keys[1], keys[0]]
    paths["mobilebert peer"].write_bytes(b"another")
    assert len(script.measure(files, read, 1, 2)) == 1 and len(asked) == 6
    kept = sorted(path.name for path in tmp_path.glob("rounds-*.jsonl"))
    assert len(kept) == 2 and json.loads((tmp_path / kept[0]).read_text().splitlines()[0])


def test_the_shortest_length_that_holds_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = loaded("phone", monkeypatch)
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]))
    counts = (30, 31, 62, 63)
    (tmp_path / "dev.tsv").write_text("\n".join(["sentence\tlabel", *("a " * count + "\t1" for count in counts)]))
    assert script.sentences(tmp_path, tmp_path / "vocab.txt") == [32, 64, 64, 128]


def test_conversions_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, asked = loaded("phone_costs", monkeypatch), []

    def measured(words: list[str]) -> dict[str, float]:
        asked.append(words)
        return {"seconds": 2.0, "gigabytes": 1.0}

    monkeypatch.setattr(script, "_measured", measured)
    assert list(script.costs(tmp_path, tmp_path / "costs.json", "")) == list(script.FORMATS)
    assert list(script.costs(tmp_path, tmp_path / "costs.json", "py"))[-1] == "ExecuTorch"
    assert [words[3] for words in asked] == [*(given[0] for _, given in script.FORMATS.values()), "--to=executorch"]


def test_what_a_process_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    held = np.ones(2**26)  # half a gigabyte, which is this process's own
    found = loaded("phone_costs", monkeypatch)._measured(["--version"])
    assert found["seconds"] > 0 and 0.005 < found["gigabytes"] < 0.5 < held.nbytes / 1e9
    with pytest.raises(SystemExit, match="bertzoo convert fails"):
        loaded("phone_costs", monkeypatch)._measured(["convert"])


def test_what_is_not_measured_is_not_called_met(monkeypatch: pytest.MonkeyPatch) -> None:
    script = loaded("phone", monkeypatch)
    monkeypatch.setattr("sys.argv", ["phone.py", "--peer=python"])
    with pytest.raises(SystemExit, match="the page has targets of --sst2 with --vocab and of --scored"):
        script.main()
    assert "(" in script.machine.processor()
