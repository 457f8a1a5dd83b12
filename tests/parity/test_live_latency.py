"""A table of latencies that LiteRT really gives, and a pruning by it; no time is asserted."""

import json
from pathlib import Path

import pytest
from comparing import needs
from messages import mentions

needs("litert_converter", "ai_edge_litert", "litert_quantizer")
from prunable import MODEL, fill, prune

from bertzoo.cli.main import main
from bertzoo.pruning import layout
from bertzoo.pruning.costs import Latency
from bertzoo.pruning.latency import latency, points, read_table
from bertzoo.pruning.structure import declare
from bertzoo.runs import load_model

pytestmark = pytest.mark.usefixtures("one_device")


def test_a_model_is_measured_and_pruned_by_its_table(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    fill(tmp_path)
    unpruned, file, run = tmp_path / "unpruned", tmp_path / "table.json", tmp_path / "run"
    capsys.readouterr()
    options = ["--steps=2", "--runs=3", "--rounds=1", "--lengths=16"]
    assert main(["benchmark", str(unpruned), f"--table={file}", *options]) == 0
    said = capsys.readouterr()
    assert "h  1, 16\nf  1, 32\na  1, 2\nk  1, 8\nv  1, 8\n" in said.out
    table, document = read_table(file), json.loads(file.read_text())
    assert mentions(said.out, *(f"{document['whole'][key]:.3f} ms" for key in ("measured_ms", "table_ms")))
    assert (document["length"], document["threads"], document["precision"]) == (16, 1, "fp32")
    assert document["machine"] and document["runtime"].startswith("litert ")
    assert document["whole"]["measured_ms"] > 0 and len(table.single) == len(points(table.sizes)) == 14
    assert mentions(said.err, f"{2 + 2 * 14} of {2 + 2 * 14}")
    assert all(time > 0 for time in table.single.values()) and table.model["kind"] == "schubert"

    found = load_model.read_model(unpruned)
    assert found.model.layers == MODEL["layers"]
    structure = declare(found.model, found.head)
    cost = latency(structure, table, "table")
    whole, least = cost(structure.sizes), cost(dict.fromkeys(structure.sizes, 1))
    assert document["whole"]["table_ms"] == pytest.approx(whole)
    target = [f"--target.table={file}", "--target.length=16", f"--target.count={(whole + least) / 2}"]
    assert prune(tmp_path, run, f"--from={unpruned}", "--target.kind=latency", *target, "--cut.iterations=1") == 0
    left = load_model.read_model(run)
    structure = declare(left.model, left.head)
    of = Latency(count=1, table=str(run / layout.TABLE), length=16).cost(structure)
    assert of(structure.sizes) <= (whole + least) / 2 < whole
    assert main(["benchmark", str(run), "--lengths=16", "--runs=1", "--rounds=1"]) == 0
