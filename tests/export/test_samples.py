"""The entities that the web sample finds equal bertzoo's, on random texts with drawn logits."""

import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
FIND = """
import { readFileSync } from "node:fs";
const [module, file] = process.argv.slice(1);
const { EntityFinder } = await import(module);
const read = (name) => readFileSync(file + name, "utf-8");
const finder = new EntityFinder(JSON.parse(read(".json")), read(".files/vocab.txt"));
const found = JSON.parse(read(".files/entities.json")).map(({ text, logits }) => {
  const parts = finder.rows(text);
  return { rows: parts.rows.map(({ ids }) => ids), entities: finder.entities(parts, logits) };
});
console.log(JSON.stringify(found));
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
@pytest.mark.parametrize("name", ["spans", "heads"])
def test_the_web_sample_finds_the_same_entities(name: str, models: Path, export: Any, monkeypatch: pytest.MonkeyPatch):
    file = export(models / name, "--lengths=8")
    monkeypatch.setattr(sys, "argv", ["tokens.py", str(file)])
    runpy.run_path(str(EXAMPLES / "tokens.py"), run_name="__main__")
    cases = json.loads((file.with_name(f"{file.name}.files") / "entities.json").read_text())
    words = ["node", "--input-type=module", "-e", FIND, (EXAMPLES / "web" / "entities.js").as_uri(), str(file)]
    found = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)
    for case, ours in zip(cases, found, strict=True):
        assert ours["rows"] == case["rows"]
        units = case["text"].encode("utf-16-le", "surrogatepass")  # JavaScript counts these, Python code points
        for entity in ours["entities"]:
            start, end = 2 * entity.pop("start"), 2 * entity.pop("end")
            assert units[start:end].decode("utf-16-le") == entity["text"]
            entity |= {"start": len(units[:start].decode("utf-16-le")), "end": len(units[:end].decode("utf-16-le"))}
        assert ours["entities"] == [one | {"score": pytest.approx(one["score"], abs=1e-5)} for one in case["entities"]]
    assert sum(len(case["entities"]) for case in cases) > 100 and max(len(case["rows"]) for case in cases) > 2
