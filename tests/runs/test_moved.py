"""A run moved to a machine without its corpus: some commands do not need it, the others find it."""

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest
import tiny
from messages import mentioning, mentions
from test_pretrain import error
from tiny import facts

from bertzoo.cli.main import main
from bertzoo.core import config, remote
from bertzoo.core.errors import UserError
from bertzoo.runs import training
from bertzoo.runs.configs import Pretrain
from bertzoo.runs.run_dir import RunDirectory

pytestmark = pytest.mark.usefixtures("one_device")
GUIDE = Path(__file__).parents[2] / "docs" / "tpu.md"
BUCKET = "memory://moved"


def write_config(folder: Path, source: Path) -> Path:
    """The tiny config of one stage, of one step."""
    path = tiny.write_config(folder, source, stages=1)
    path.write_text(path.read_text().replace("steps = 6", "steps = 1"))
    return path


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """Where the run was: its corpus, the run, and a config."""
    folder = tmp_path_factory.mktemp("machine")
    config = write_config(folder, tiny.make_corpus(folder))
    assert main(["pretrain", str(config), f"--run_dir={folder / 'run'}"]) == 0
    return folder


@pytest.fixture
def run(machine, tmp_path, monkeypatch):
    """A copy of a run whose corpus has moved to a bucket."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    bucket = fsspec.filesystem("memory")
    for path in (machine / "corpus").rglob("*"):
        if path.is_file():
            bucket.pipe(f"/moved/{path.relative_to(machine)}", path.read_bytes())
    (machine / "corpus").rename(machine / "away")
    yield shutil.copytree(machine / "run", tmp_path / "runs" / "squeezebert")
    (machine / "away").rename(machine / "corpus")
    bucket.store.clear()


@pytest.mark.slow
def test_the_guide_is_walked_to_an_exported_model(machine, run, tmp_path, capsys):
    (block,) = re.findall(r"^\*\*5\..*?```bash\n(.*?)```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    copied, *commands = map(shlex.split, block.replace("gs://BUCKET", BUCKET).splitlines())
    assert copied == ["gcloud", "storage", "cp", "--recursive", f"{BUCKET}/runs/squeezebert", "runs/"]
    assert [words[:3] for words in commands] == [
        ["bertzoo", verb, "runs/squeezebert"] for verb in ("checkpoints", "report", "predict", "convert", "evaluate")
    ]
    for _, verb, *words in commands:
        assert not (tmp_path / "cache" / "bertzoo" / "corpora").exists(), "the corpus was read before it was needed"
        assert main([verb, *words]) == 0, capsys.readouterr().err
    assert (tmp_path / "cache" / "bertzoo" / "corpora").is_dir()
    said = capsys.readouterr().out
    assert "The capital of France is [MASK]." in said and mentions(said, "held-out", "32 tokens")
    exported = tmp_path / "exported"
    assert (exported / "model.safetensors").is_file() and (exported / "config.json").is_file()
    words, kept = (path.read_text().splitlines() for path in (exported / "vocab.txt", run / "tokenizer" / "vocab.txt"))
    assert words[: len(kept)] == kept == (machine / "away" / "tokenizer" / "vocab.txt").read_text().splitlines()


@pytest.mark.slow
def test_readers_of_the_corpus_report_it_missing_and_reject_another(machine, run, tmp_path, capsys):
    other = tiny.make_corpus(tmp_path, documents=50)
    hashes = [json.loads((path / "manifest.json").read_text())["hash"] for path in (other, machine / "away")]
    resume = ["pretrain", str(machine / "tiny.toml"), f"--run_dir={run}", "--stages.0.steps=2"]
    for command in (["evaluate", str(run)], resume):
        said = error(capsys, *command)
        assert mentions(said, run, machine / "corpus", "--corpus")
        said = error(capsys, *command, f"--corpus={other}")
        assert mentions(said, other, run, hashes[0], hashes[1])
        assert mentions(error(capsys, *command, "--corpus="), "--corpus")
        assert mentions(error(capsys, *command, "--corpus=gs:/x"), "gs:/x", "URL")
    assert not (run / "checkpoints" / "2").exists()


@pytest.mark.slow  # two runs
def test_a_resumed_run_reads_its_corpus_where_it_is_by_now(machine, run, tmp_path, capsys):
    config = str(machine / "tiny.toml")
    assert main(["pretrain", config, f"--run_dir={run}", "--stages.0.steps=2", f"--corpus={BUCKET}/corpus"]) == 0
    assert facts(run) == facts(machine / "run") | {"corpus": f"{BUCKET}/corpus"}
    assert main(["pretrain", config, f"--run_dir={run}", "--stages.0.steps=3", f"--corpus={BUCKET}/corpus"]) == 0
    assert (run / "checkpoints" / "3").is_dir()
    fresh = tmp_path / "fresh"
    said = error(capsys, "pretrain", config, f"--run_dir={fresh}", f"--corpus={BUCKET}/corpus")
    assert mentions(said, "--corpus", "--data.source")
    assert not fresh.exists()


def test_only_the_command_names_urls(machine, run, tmp_path, capsys):
    """A stranger's run.json names a corpus, a teacher and models at URLs; nothing there is read."""
    address, models = f"{BUCKET}/corpus", {"path": f"{BUCKET}/model", "parameters_sha256": "0" * 64}
    (run / "run.json").write_text(json.dumps(facts(run) | {"corpus": address, "from": models, "teacher": models}))
    read, directory = [], RunDirectory(run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote.RemoteFolder, "at", lambda url: read.append(url))
        assert mentions(error(capsys, "evaluate", str(run)), run, address, f"--corpus={address}")
        recipe = config.load(Pretrain, [machine / "tiny.toml"])
        with pytest.raises(UserError, match=mentioning(f"--corpus={address}")):
            training.open_corpus(recipe, directory, None, training.Options())
        for key in ("teacher", "from"):
            with pytest.raises(UserError, match=mentioning(run, f"--{key}={models['path']}")):
                directory.model_path(key, None)
        (run / "tokenizer" / "vocab.txt").unlink()
        assert mentions(error(capsys, "predict", str(run), "a [MASK]"), run, address)
    assert not read
    # The command names the URL.
    again = replace(recipe, data=replace(recipe.data, source=f"{address}/"))
    assert training.open_corpus(again, directory, None, training.Options()).address == address


def test_a_run_in_a_bucket_reads_its_own_bucket(machine, run):
    (run / "run.json").write_text(json.dumps(facts(run) | {"corpus": f"{BUCKET}/corpus"}))
    directory = RunDirectory(run)
    directory.corpus = f"{BUCKET}/run/corpus"
    assert directory.open_corpus().address == f"{BUCKET}/corpus"
    for default in (run / "corpus", "memory://other/run/corpus"):
        with pytest.raises(UserError, match=mentioning(f"{BUCKET}/corpus")):
            directory.corpus = default
            directory.open_corpus()


def test_a_damaged_tokenizer_is_not_read(run, capsys):
    file = run / "tokenizer" / "vocab.txt"
    file.write_text(file.read_text()[:-20])
    said = error(capsys, "predict", str(run), "a [MASK]")
    assert mentions(said, file, "run.json")
    file.unlink()
    assert mentions(error(capsys, "predict", str(run), "a [MASK]"), "longer")  # the corpus's tokenizer is used
