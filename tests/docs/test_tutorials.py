"""Every tutorial runs from its first command to its last, and leaves the files that it promises.

The commands are those of the page, in its order, in an empty directory. Options after them keep training short, and a
small text stands in for the embedded one. Here JAX computes what a .tflite file would where LiteRT is not installed;
tests/parity/test_live_tutorials.py runs the rest in LiteRT.
"""

import csv
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import pytest
from in_jax import Export
from tiers import quick

import bertzoo
from bertzoo.cli import main as cli

pytestmark = pytest.mark.usefixtures("one_device")

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "tutorials"
FENCED = re.compile(r"^```(bash|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)
INSTALLED = {name: bool(find_spec(name)) for name in ("ai_edge_litert", "mediapipe", "transformers", "torch")}
# Options that shorten a command, by verb.
SHORT = {
    "pretrain": "--stages.*.steps=3 --run.evaluate_rows=64 --workers=1",
    "transfer": "--transfer.steps=2 --distillation.0.steps=2 --run.evaluate_rows=64 --workers=1",
    "prune": "--weigh.steps=6 --weigh.learning_rate=0.1 --tuning.*.steps=2 --run.evaluate_rows=64 --workers=1",
    "finetune": "--epochs=2",
    "benchmark": "--rounds=2",
    "tokenize": "--workers=1",
}
LEARNT = re.compile(r"--hidden_below_unigram=\S+")  # three steps do not learn that much


def shortened(command: str) -> list[str]:
    """Return the words after `bertzoo`, with the options and the text that keep it short."""
    verb, *words = shlex.split(LEARNT.sub("", command))[1:]
    words = ["prose.txt" if word == "embedded:python" else word for word in words]
    if verb in ("pretrain", "transfer", "prune") and "--data.source=" not in command:
        words.append("--data.source=prose.txt")
    return [verb, *words, *SHORT.get(verb, "").split()]


def run_bertzoo(block: str) -> None:
    """Run a block's commands in this process."""
    for line in block.replace("\\\n", "").splitlines():
        assert line.startswith("bertzoo "), f"{line!r} is in a block of bertzoo's commands. Give it a block of its own."
        needed = {"ai_edge_litert": line.startswith("bertzoo benchmark "), "mediapipe": "--to=mediapipe" in line}
        if all(INSTALLED[package] for package, needs in needed.items() if needs):
            assert cli.main(shortened(line)) == 0, line


def run_shell(block: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}
    subprocess.run(["bash", "-euo", "pipefail", "-c", block], check=True, env=environment)


def run_python(block: str) -> None:
    imported = re.findall(r"^(?:from|import) (\w+)", block, re.MULTILINE)
    if all(INSTALLED.get(name, True) for name in imported):
        exec(compile(block, "tutorial", "exec"), {"__name__": "__main__"})


def run_page(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a page's blocks in an empty folder, and then its check."""
    monkeypatch.chdir(folder)
    Path("launch").symlink_to(ROOT / "launch")
    Path("prose.txt").write_text("\n\n".join(list(topics.values())[:40]), encoding="utf-8")
    if not INSTALLED["ai_edge_litert"]:
        Export(folder).stand_in(monkeypatch)
    for language, block in FENCED.findall((PAGES / f"{name}.md").read_text(encoding="utf-8")):
        if language == "python":
            run_python(block)
        elif "\nbertzoo " in f"\n{block}":
            run_bertzoo(block)
        else:
            run_shell(block)
    PAGE_CHECKS[name]()


def description(file: str) -> dict:
    return json.loads(Path(f"{file}.json").read_text())


def check_blanks(model: str, file: str) -> None:
    """Compare the file's probabilities of all tokens with the model's."""
    blanks = [
        bertzoo.predict(path, ["The default value [MASK] None."], top=1024)[0]["blanks"][0] for path in (model, file)
    ]
    assert blanks[0].keys() == blanks[1].keys()
    pairs = np.array([(value, blanks[1][token]) for token, value in blanks[0].items()])
    assert np.corrcoef(pairs.T)[0, 1] > 0.99


def own_text() -> None:
    check_blanks("runs/mine", "mine.tflite")
    assert {"report.md", "loss.png"} <= {path.name for path in Path("runs/mine").iterdir()}
    assert description("mine.tflite")["precision"] == "int8-dynamic"


def teach_student() -> None:
    check_blanks("runs/student", "student.tflite")
    assert description("student.tflite")["parameters"] < 0.45 * description("teacher.tflite")["parameters"]
    assert Path("attention.png").stat().st_size > 1000


def prune() -> None:
    check_blanks("runs/pruned", "pruned.tflite")
    demo, pruned = description("demo.tflite"), description("pruned.tflite")
    assert 0.88 < pruned["parameters"] / demo["parameters"] < 0.92
    assert Path("runs/pruned/layers.png").is_file()


def own_csv() -> None:
    with open("runs/mails/test.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with open("runs/predictions.tsv", encoding="utf-8", newline="") as file:
        table = [row["label"] for row in csv.DictReader(file, delimiter="\t")]
    model = [answer["label"] or "-" for answer in bertzoo.predict("runs/topics", [row["text"] for row in rows])]
    assert np.mean(np.array(table) == np.array(model)) > 0.95
    (seed,) = json.loads(Path("runs/topics/results.json").read_text())["seeds"]
    assert seed["scores"]["dev"]["accuracy"] > 50  # chance is 20
    right = [label == row["label"] for label, row in zip(table, rows, strict=True)]
    named = [one for one, label in zip(right, table, strict=True) if label != "-"]
    assert np.mean(named) > np.mean(right)  # the threshold names fewer
    marked = Path("runs/marked.html").read_text(encoding="utf-8").splitlines()
    assert len(marked) == 51 and sum("<mark" in line for line in marked) > 25
    several = json.loads(Path("runs/several/results.json").read_text())["median"]["dev"]
    assert several.keys() == {"f1_micro", "f1_macro", "exact_match"} and several["f1_micro"] > 50
    if INSTALLED["mediapipe"]:
        assert description("runs/topics-mediapipe.tflite")["mediapipe"]["task"] == "classifier"


def hugging_face() -> None:
    check_blanks("hf", "hf-int8.tflite")
    assert description("hf-int8.tflite")["precision"] == "int8-dynamic"
    assert Path("hf-int8.tflite").stat().st_size < 0.5 * Path("hf/model.safetensors").stat().st_size


def first_tpu() -> None:
    records = [json.loads(line) for line in Path("runs/hosts/metrics.jsonl").read_text().splitlines()]
    assert (records[-1]["event"], records[-1]["step"]) == ("finished", 40)
    record = json.loads(Path("runs/hosts/run.json").read_text())
    assert (record["processes"], len(record["devices"])) == (2, 4)


PAGE_CHECKS: dict[str, Callable[[], None]] = {
    check.__name__: check for check in (own_text, teach_student, prune, own_csv, hugging_face, first_tpu)
}
IN_LITERT = ["teach_student", "prune", "own_csv", "hugging_face"]  # in tests/parity
HERE = ["own_text", "own_csv", "first_tpu"]


def test_every_tutorial_runs_somewhere() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == {*PAGE_CHECKS} == {*IN_LITERT, *HERE}


@pytest.mark.slow
@pytest.mark.parametrize("name", quick(HERE, "own_text"))
def test_a_tutorial_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(name, tmp_path, monkeypatch)
