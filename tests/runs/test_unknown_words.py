"""Unknown words and unused rows of the word embeddings at the start of a run."""

import re
import shutil
from pathlib import Path

import pytest
import tiny
from messages import mentions

from bertzoo.cli.main import main
from bertzoo.data.corpus.manifest import Manifest
from bertzoo.runs import training

pytestmark = pytest.mark.usefixtures("one_device")
FOREIGN = "Мороз и солнце день чудесный еще ты дремлешь друг прелестный."


@pytest.fixture(autouse=True)
def no_training(monkeypatch) -> None:
    """End every run before its first step, after all that these tests read."""
    monkeypatch.setattr(training, "train", lambda *args, **options: 0)


def run(capsys, config: str, run_dir: Path, *options: str, code: int = 0) -> list[str]:
    """The lines that `bertzoo pretrain` prints to standard error before the first step."""
    assert main(["pretrain", config, f"--run_dir={run_dir}", *options]) == code
    return capsys.readouterr().err.splitlines()


def test_with_a_models_vocabulary_no_option_is_advised(finished_run, tiny_config, tmp_path, capsys):
    """A text in another script than the vocabulary stops the run."""
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join("\n".join([FOREIGN, f"{FOREIGN} {i}"] * 4) for i in range(60)))
    options = [f"--data.source={text}", f"--from={finished_run}"]
    *_, line = run(capsys, tiny_config, tmp_path / "run", *options, code=2)
    assert mentions(line, "[UNK]", text) and "data.tokenizer.path" not in line
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_run_prints_the_unknown_share_and_the_unused_entries(tiny_config, tmp_path, capsys):
    options = ["--model.vocab_size=2048"]
    lines = run(capsys, tiny_config, tmp_path / "run", *options)
    assert any(line.startswith("corpus, train: ") and line.endswith("% of them [UNK]") for line in lines)
    (line,) = (line for line in lines if "model.vocab_size" in line)
    assert mentions(line, "2,048")
    assert not any("warning" in line and "[UNK]" in line for line in lines)
    advised = re.findall(r"--\S+=\d+", line)
    assert len(advised) == 2  # followed, they make a run without the line
    assert not any(
        "model.vocab_size" in line for line in run(capsys, tiny_config, tmp_path / "new", *options, *advised)
    )


@pytest.mark.slow
def test_a_corpus_that_hardly_uses_the_vocabulary_is_mentioned(tmp_path, capsys):
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"unused{i}" for i in range(200)), "."]
    vocabulary += [prefix + letter for letter in "aeioulmnrst" for prefix in ("", "##")]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    config = tiny.write_config(tmp_path, tiny.write_text(tmp_path / "text.txt"))
    options = [f"--data.tokenizer.path={tmp_path / 'vocab.txt'}"]
    lines = run(capsys, str(config), tmp_path / "run", *options)
    (line,) = (line for line in lines if "tokens occur" in line)
    assert mentions(line, len(vocabulary), 23)  # the letters twice, and the full stop


def test_a_resumed_run_continues_with_a_warning(finished_run, tiny_config, tmp_path, capsys, monkeypatch):
    shutil.copytree(finished_run, tmp_path / "run")
    monkeypatch.setattr(Manifest, "unknown_share", 0.5)
    lines = run(capsys, tiny_config, tmp_path / "run")
    assert any("warning" in line and mentions(line, "50.0%") for line in lines)
    *_, line = run(capsys, tiny_config, tmp_path / "new", code=2)
    assert mentions(line, "50.0%") and not (tmp_path / "new" / "checkpoints").exists()
