"""A model behind a URL: read as from disk, copied once, refreshed when it changes, and never half of it read."""

import json
import shutil
from pathlib import Path

import chex
import pytest
import tiny_bert
from messages import mentioning, mentions

from bertzoo.cli.main import main
from bertzoo.conversion import tensorflow1
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core import atomic, remote
from bertzoo.core.errors import UserError
from bertzoo.core.paths import cache_folder
from bertzoo.runs import load_model

URL = "memory://bucket/models"


@pytest.fixture
def opened(bucket, monkeypatch):
    """The paths that are opened in the bucket, in order."""
    paths, plain = [], type(bucket).open

    def spied(self, path, *args, **options):
        paths.append(path.removeprefix("/bucket/models/"))
        return plain(self, path, *args, **options)

    monkeypatch.setattr(type(bucket), "open", spied)
    return paths


@pytest.fixture(scope="module")
def folder(finished_run, tmp_path_factory) -> Path:
    """A model of every format that is read: a run, a model and a Hugging Face directory, several seeds, a pruning."""
    made = tmp_path_factory.mktemp("models")
    shutil.copytree(finished_run, made / "run")
    assert main(["convert", str(made / "run"), str(made / "own"), "--to=bertzoo"]) == 0
    tiny_bert.write(made / "hf", tiny_bert.tensors())
    (made / "hf" / "tf_model.h5").write_bytes(b"weights of another project")
    for seed in (0, 1):
        shutil.copytree(made / "own", made / "seeds" / f"seed-{seed}" / "model")
    (made / "seeds" / "results.json").write_text('{"best": 1}')
    (made / "seeds" / "config.toml").write_text('kind = "finetune"')
    shutil.copytree(made / "own", made / "pruned" / "model")
    (made / "pruned" / "config.toml").write_text("[weigh]\n")
    return made


def upload(bucket, folder: Path, name: str = "") -> None:
    for path in (folder / name).rglob("*"):
        if path.is_file():
            bucket.pipe(f"/bucket/models/{path.relative_to(folder)}", path.read_bytes())


def copies() -> list[Path]:
    """The directories of the cache."""
    return [path for path in cache_folder("models").glob("*") if path.is_dir()]


def same(model: Pretrained, expected: Pretrained) -> bool:
    chex.assert_trees_all_equal(model.params, expected.params)
    assert (model.generator is None) == (expected.generator is None)
    return model.model == expected.model and model.head == expected.head


@pytest.mark.parametrize("name", ["run", "run/checkpoints/8", "own", "hf", "seeds", "pruned"])
def test_a_model_behind_a_url_equals_the_one_on_disk(name, folder, bucket, opened):
    upload(bucket, folder, name.split("/")[0])
    opened.clear()
    model, expected = load_model.read_model(f"{URL}/{name}/"), load_model.read_model(folder / name)
    assert same(model, expected)
    assert model.origin == f"{URL}/{name}"
    assert model.source == expected.source | ({"path": model.origin} if "path" in expected.source else {})
    assert model.tokenizer is None or model.tokenizer.encode_batch(["a b"])[0].size
    unread = ("corpus/", "/training/", "metrics.jsonl", "checkpoints/6", "seed-0/", ".h5")
    assert opened and not [path for path in opened if any(part in path for part in unread)]
    twice = {path.partition("/")[2] for path in opened if opened.count(path) > 1}
    assert twice <= {"config.toml", "results.json"}  # they name the kind of run and the best seed


def test_a_checkpoint_without_its_end_is_passed_over(folder, bucket):
    upload(bucket, folder, "run")
    bucket.rm("/bucket/models/run/checkpoints/10.sha256.json")
    bucket.rm("/bucket/models/run/checkpoints/10/commit_success.txt")
    assert load_model.read_model(f"{URL}/run").source["step"] == 8


@pytest.mark.parametrize("name", ["tf", "tf/model.ckpt-5"])
def test_a_tensorflow_checkpoint_is_copied_with_its_config_and_vocabulary(name, bucket):
    files = ["bert_config.json", "vocab.txt", "model.ckpt-5.index", "model.ckpt-5.data-00000-of-00001"]
    for file in (*files, "model.ckpt-5.meta", "eval/events", "graph.txt"):
        bucket.pipe(f"/bucket/models/tf/{file}", file.encode())
    with load_model.local_model(f"{URL}/{name}") as model:
        directory = model if model.is_dir() else model.parent
        there = {path.name for path in directory.rglob("*") if path.is_file()}
        assert tensorflow1.find_checkpoint(model) == directory / "model.ckpt-5"
    assert set(files) <= there <= {*files, "graph.txt", "model.ckpt-5.meta"}


def test_an_unchanged_model_is_not_copied_again_and_a_changed_one_is(logged, folder, bucket, opened):
    upload(bucket, folder, "run")
    bucket.rm([path for path in bucket.find("/bucket/models/run/checkpoints") if "/checkpoints/10" in path])
    assert load_model.read_model(f"{URL}/run").source["step"] == 8
    opened.clear()
    assert load_model.read_model(f"{URL}/run").source["step"] == 8
    assert (
        not opened and mentions(logged[0], f"{URL}/run", "copying") and mentions(logged[1], f"{URL}/run", "unchanged")
    )
    upload(bucket, folder, "run")
    opened.clear()
    assert same(load_model.read_model(f"{URL}/run"), load_model.read_model(folder / "run"))
    assert mentions(logged[2], f"{URL}/run", "copying") and opened
    (home,) = copies()
    kept = {"10", "10.sha256.json", "run-id"}
    (copy,) = home.iterdir()
    assert {path.name for path in (copy / "checkpoints").iterdir()} == kept
    # The run is begun anew, and is behind.
    bucket.rm([path for path in bucket.find("/bucket/models/run/checkpoints") if "/checkpoints/10" in path])
    assert load_model.read_model(f"{URL}/run").source["step"] == 8


def test_a_file_of_the_same_size_that_changed_is_noticed(folder, bucket, opened):
    upload(bucket, folder, "own")
    load_model.read_model(f"{URL}/own")
    path = "/bucket/models/own/parameters.safetensors"
    data = bytearray(bucket.cat(path))
    data[-1] ^= 1
    bucket.pipe(path, bytes(data))
    opened.clear()
    with pytest.raises(UserError, match=mentioning(f"{URL}/own/parameters.safetensors", "hash")):
        load_model.read_model(f"{URL}/own")
    assert "own/parameters.safetensors" in opened


def test_files_of_a_copy_that_are_gone_are_copied_again(folder, bucket, opened):
    upload(bucket, folder, "own")
    load_model.read_model(f"{URL}/own")
    (home,) = copies()
    (copy,) = home.iterdir()
    (copy / "tokenizer" / "vocab.txt").unlink()
    opened.clear()
    assert same(load_model.read_model(f"{URL}/own"), load_model.read_model(folder / "own"))
    assert "own/tokenizer/vocab.txt" in opened


def break_off(bucket, monkeypatch, error: BaseException) -> None:
    plain = type(bucket).open

    def broken(self, path, *args, **options):
        if path.endswith("parameters.safetensors"):
            raise error
        return plain(self, path, *args, **options)

    monkeypatch.setattr(type(bucket), "open", broken)


@pytest.mark.parametrize("error", [OSError("connection\nreset"), KeyboardInterrupt()], ids=["network", "Ctrl-C"])
def test_a_copy_that_breaks_off_leaves_nothing(error, folder, bucket, monkeypatch):
    upload(bucket, folder, "own")
    with monkeypatch.context() as patch:
        break_off(bucket, patch, error)
        expected = UserError if isinstance(error, Exception) else KeyboardInterrupt
        with pytest.raises(expected, match=mentioning("OSError: connection reset") if expected is UserError else None):
            load_model.read_model(f"{URL}/own")
    assert not copies()


def test_what_a_killed_copy_leaves_is_not_read(folder, bucket, monkeypatch):
    upload(bucket, folder, "own")
    with monkeypatch.context() as patch:
        break_off(bucket, patch, OSError("reset"))
        patch.setattr(atomic, "_remove", lambda temporary: None)  # a killed process does nothing more
        with pytest.raises(UserError):
            load_model.read_model(f"{URL}/own")
    (home,) = copies()
    assert list(home.iterdir())
    assert same(load_model.read_model(f"{URL}/own"), load_model.read_model(folder / "own"))
    assert len(list(home.iterdir())) == 1


def test_a_model_that_changes_while_it_is_copied_raises(folder, bucket, monkeypatch):
    upload(bucket, folder, "own")
    plain = remote.RemoteFolder.download

    def overwrite(self, name, destination):
        plain(self, name, destination)
        bucket.pipe(f"/bucket/models/own/{name}", bucket.cat(f"/bucket/models/own/{name}"))

    with monkeypatch.context() as patch:
        patch.setattr(remote.RemoteFolder, "download", overwrite)
        with pytest.raises(UserError, match=mentioning(f"{URL}/own/", "changed")):
            load_model.read_model(f"{URL}/own")
    assert not copies()


def test_a_full_disk_raises_before_anything_is_copied(folder, bucket, opened, monkeypatch):
    upload(bucket, folder, "own")
    opened.clear()
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(remote.shutil, "disk_usage", lambda path: usage._replace(free=10))
    with pytest.raises(UserError, match=mentioning(f"{URL}/own", "GB", "XDG_CACHE_HOME")):
        load_model.read_model(f"{URL}/own")
    assert not opened and not copies()


def test_a_key_above_the_folder_is_not_written(folder, bucket, tmp_path, monkeypatch):
    upload(bucket, folder, "own")
    plain = type(bucket).find

    def find(self, path, **options):
        entries = plain(self, path, **options)
        return entries | {f"{path}/tokenizer/../../outside": next(iter(entries.values()))}

    monkeypatch.setattr(type(bucket), "find", find)
    load_model.read_model(f"{URL}/own")
    assert not list(tmp_path.rglob("outside"))


def denied(*args, **options):
    raise PermissionError("403: no access\nto the bucket")


COMMANDS = {
    "pretrain": ["pretrain", "demo", "--run_dir=run", "--from=MODEL"],
    "transfer": ["transfer", "demo_transfer", "--run_dir=run", "--teacher=MODEL"],
    "prune": ["prune", "prune_albert_e", "--run_dir=run", "--from=MODEL"],
    "finetune": ["finetune", "finetune", "--task=cola", "--data_dir=x", "--run_dir=run", "--from=MODEL"],
    "convert": ["convert", "MODEL", "out", "--to=bertzoo"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_model_that_cannot_be_read_raises_one_error(command, bucket, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    bucket.pipe("/bucket/models/notes/readme.txt", b"text")

    def error(url: str) -> str:
        assert main([word.replace("MODEL", url) for word in command]) == 2
        *_, line = capsys.readouterr().err.splitlines()
        assert line.startswith("bertzoo: ") and mentions(line, url)
        return line

    assert mentions(error(f"{URL}/nowhere"), "not exist")
    assert mentions(error(f"{URL}/notes"), "Hugging Face")
    assert mentions(error("s4://bucket/model"), "s4")
    monkeypatch.setattr(type(bucket), "find", denied)
    assert mentions(error(f"{URL}/closed"), "403: no access to the bucket")
    assert not copies() and not list(tmp_path.glob("*/*/models/*/")) and not Path("run").exists()
    assert not Path("out").exists() and not list(tmp_path.rglob("*:*"))


@pytest.mark.slow
@pytest.mark.usefixtures("one_device")
def test_a_pretraining_starts_from_a_url_and_records_it(folder, bucket, tiny_config, tmp_path, capsys):
    upload(bucket, folder, "run")
    steps = ["--stages.0.steps=1", "--stages.1.steps=1", "--run.evaluate_every=0"]
    command = ["pretrain", tiny_config, f"--run_dir={tmp_path / 'run'}", f"--from={URL}/run", *steps]
    assert main(command) == 0
    facts = json.loads((tmp_path / "run" / "run.json").read_text())["from"]
    assert facts["path"] == f"{URL}/run" and facts["step"] == 10
    bucket.store.clear()  # a resumed run does not read it again
    assert main(command) == 0
    assert main([*command[:3], f"--from={URL}/other", *steps]) == 2
    assert mentions(capsys.readouterr().err, f"{URL}/run", f"{URL}/other")
