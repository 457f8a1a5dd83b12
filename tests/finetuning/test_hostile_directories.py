"""No command runs code from a model directory, whatever lies in it."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import planted
import pytest

from bertzoo.cli.main import main

MODULES = (
    "__init__ __main__ conftest sitecustomize usercustomize setup numpy jax json safetensors tokenizers torch "
    "transformers bertzoo modeling_bertzoo configuration_bertzoo tokenizer tokenization modeling_own configuration_own"
)
PICKLES = ("pytorch_model.bin", "training_args.bin", "optimizer.pt", "model.pkl", "tokenizer.pkl", "params.npy")
NAMED = {"AutoConfig": "configuration_own.Own", "AutoModel": "modeling_own.Own"}
NAMED |= {"AutoTokenizer": ["tokenizer.Own", None]}
# Run with -P: like the command `bertzoo`, it has no current directory in its path.
COMMANDS = "import json, sys; from bertzoo.cli.main import main; print([*map(main, json.loads(sys.argv[1]))])"
ALL, NONE = [0] * 5, [2] * 5  # exit codes of `commands`
CASES = {
    "a model directory": ("bertzoo", "", ALL),
    "a run": ("run", "", ALL),
    "Hugging Face": ("huggingface", "", [0, 0, 0, 2, 0]),  # without the columns that `evaluate` needs
    "Hugging Face with a model class": ("huggingface", "config.json", NONE),
    "Hugging Face with a tokenizer class": ("huggingface", "tokenizer_config.json", NONE),
    "an export for PyTorch": ("pytorch", "", NONE),
}


class Payload:
    """A pickle that makes a folder when it is read."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> tuple:
        return os.makedirs, (str(self.mark / "pickle"),)


def plant(folder: Path, mark: Path, naming: str) -> None:
    """Add modules and pickles that make the folder `mark` if anything runs them.

    naming: a JSON file that names classes in them; empty for none.
    """
    for place in (folder, folder / "tokenizer"):
        place.mkdir(exist_ok=True)
        for name in MODULES.split():
            (place / f"{name}.py").write_text(f"import os; os.makedirs({str(mark / name)!r}, exist_ok=True)\n")
        for name in PICKLES:
            (place / name).write_bytes(pickle.dumps(Payload(mark)))
    if naming:
        path = folder / naming
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(known | {"auto_map": NAMED}))


def test_the_payloads_work(tmp_path: Path) -> None:
    """Otherwise, the tests below could not fail."""
    plant(tmp_path, tmp_path / "mark", "config.json")
    with open(tmp_path / PICKLES[0], "rb") as file:
        pickle.load(file)
    subprocess.run([sys.executable, "-c", "import configuration_own"], cwd=tmp_path, check=True)
    assert {path.name for path in (tmp_path / "mark").iterdir()} >= {"pickle", "configuration_own"}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_commands_run_no_code_of_a_model_directory(case: str, folder: Path, finished: Path, tmp_path: Path) -> None:
    """They read its arrays or, where it needs code, exit with 2."""
    (kind, naming, codes), model, mark = CASES[case], tmp_path / "model", tmp_path / "mark"
    if kind == "run":
        shutil.copytree(finished, model)
    else:
        assert main(["convert", str(finished), str(model), f"--to={kind}"]) == 0
    plant(model, mark, naming)
    again = [*planted.OPTIONS, "--seeds=1", "--epochs=1", "--buckets=1", "--from=."]
    commands = [
        ["convert", ".", str(tmp_path / "a"), "--to=huggingface"],
        ["convert", ".", str(tmp_path / "b"), "--to=pytorch"],
        ["predict", ".", "bara doti"],
        ["evaluate", ".", f"--input={folder / 'dev.csv'}"],
        ["finetune", "finetune", *again, f"--data_dir={folder}", f"--run_dir={tmp_path}/r"],
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(main.__code__.co_filename).parents[2])}
    words = [sys.executable, "-P", "-c", COMMANDS, json.dumps(commands)]
    process = subprocess.run(words, cwd=model, env=environment, capture_output=True, text=True, check=True)
    assert process.stdout.splitlines()[-1] == str(codes), process.stderr
    assert not mark.exists()
