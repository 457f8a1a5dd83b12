"""launch/smoke.sh, for real on CPU devices and with a small first model: its figures, its profile and its verdict."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from clouds import LAUNCH

SMALL = [
    "--stages=[{steps=20, batch_size=16, max_length=32, max_predictions=5}]",
    *(f"--model.{name}=64" for name in ("hidden_size", "feed_forward_size")),
    *("--model.layers=1", "--model.heads=2"),
]


@pytest.mark.slow
def test_a_smoke_test_measures_and_judges(tmp_path: Path):
    (tmp_path / "bin").mkdir()
    for name, words in (("bertzoo", "-m bertzoo"), ("python", "")):
        (tmp_path / f"bin/{name}").write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (tmp_path / f"bin/{name}").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    folder = tmp_path / "smoke"
    subprocess.run([str(LAUNCH / "smoke.sh"), str(folder), *SMALL], env=environment, check=True)
    text = (folder / "smoke.txt").read_text()
    for figure in (r"^ms a step  +[\d,.]+$", r"^tokens/s  +[\d,]+$", r"^MFU ", r"^goodput  +[\d.]+%", r"^  compiling "):
        assert re.search(figure, text, re.MULTILINE), figure
    assert len(re.findall(r"^demo, step (?:25|50): MLM loss 5\.9\d+|6\.\d+, recorded", text, re.MULTILINE)) == 2
    assert text.endswith("the smoke test passed\n")
    assert list((folder / "bert_base/profile").rglob("*.xplane.pb"))
    metrics = folder / "demo/metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"mlm_loss": 5.9', '"mlm_loss": 6.9'))
    assert runpy.run_path(str(LAUNCH / "smoke.py"))["main"](folder) == 1
