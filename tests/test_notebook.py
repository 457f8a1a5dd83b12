"""A notebook pretrains, stops, resumes, predicts and converts; results are tables in it."""

import os
import re
import signal
import threading
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
import tiny

from bertzoo.core import tables

CELLS = (
    "import os, bertzoo\nprint(os.getpid())",
    'run = bertzoo.pretrain("config.toml", run_dir="run", workers=2, overrides={"stages.*.steps": STEPS})\nrun',
    'bertzoo.predict("run", ["a [MASK] b", "[MASK] <b>"], top=2)',
    'bertzoo.convert("run", "model", to="bertzoo", head="masked")\nbertzoo.load("model")',
    'bertzoo.evaluate("run")',
)


@pytest.mark.slow
def test_a_notebook_stops_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XLA_FLAGS", re.sub("device_count=8", "device_count=1", os.environ["XLA_FLAGS"]))
    tiny.write_config(tmp_path, tiny.write_text(tmp_path / "text.txt")).rename("config.toml")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    first, train, *rest = notebook.cells
    client = NotebookClient(notebook, timeout=120, kernel_name="python3")
    log = tmp_path / "run" / "metrics.jsonl"

    def stop() -> None:
        """Interrupt the kernel as a notebook's button does, once the training has begun."""
        while not log.is_file() or b'"train"' not in log.read_bytes():
            time.sleep(0.05)
        os.kill(int(first.outputs[0].text), signal.SIGINT)

    with client.setup_kernel():
        client.execute_cell(first, 0)
        button = threading.Thread(target=stop, daemon=True)
        button.start()
        train.source = CELLS[1].replace("STEPS", "2000")
        with pytest.raises(CellExecutionError, match="Stopped: stopped by SIGINT after step") as stopped:
            client.execute_cell(train, 1)
        assert "Traceback" not in str(stopped.value)
        button.join()
        folders = (tmp_path / "run" / "checkpoints").iterdir()
        begun = max(int(folder.name) for folder in folders if folder.name.isdigit())
        assert 0 < begun < 2000
        train.source = CELLS[1].replace("STEPS", str(begun))
        for place, cell in enumerate((train, *rest), 1):
            client.execute_cell(cell, place)
    nbformat.write(notebook, tmp_path / "notebook.ipynb")
    shown = [cell.outputs[-1].data["text/html"] for cell in (train, *rest)]
    run, predictions, model, metrics = shown
    assert f"{2 * begun:,}" in run and "MLM loss" in run and "held-out" in run
    assert any("resumed" in str(output) for output in train.outputs)
    assert "[MASK] &lt;b&gt;" in predictions and "blanks" in predictions
    assert "parameters" in model and "250 tokens" in model and "mlm_loss" in metrics
    for text in shown:
        ElementTree.fromstring(f"<div>{text}</div>")  # well-formed


def test_tables_escape_what_they_show() -> None:
    text = tables.table([{"<a>": 1, "b": [1.5, "&"]}, {"<a>": {"c": None}}])
    (table,) = ElementTree.fromstring(f"<div>{text}</div>")
    cells = [["".join(cell.itertext()) for cell in row] for row in table]
    assert cells == [["<a>", "b"], ["1", "1.5, &"], ["cNone", ""]]
    assert len(tables.Records([{"a": 1}] * 60)._repr_html_()) < 2000
