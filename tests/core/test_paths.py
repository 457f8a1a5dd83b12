"""A URL where a path is required raises one error, and no directory `s3:` is created."""

from pathlib import Path

import pytest
from messages import mentioning, mentions

import bertzoo
from bertzoo.cli.main import main
from bertzoo.core.errors import UserError
from bertzoo.core.kinds import model_name
from bertzoo.core.paths import check_vacant, is_url, on_disk
from bertzoo.runs.run_dir import RunDirectory

URL = "s3://bucket/place"
COMMANDS = [
    f"pretrain demo --run_dir={URL}",
    "pretrain demo --run_dir=run --from=s3:/bucket/place",
    f"pretrain demo --run_dir=run --data.tokenizer.path={URL}",
    "tokenize embedded:python gs:/bucket/place",
    "tokenize embedded:python file:///bucket/place",
    f"tokenize embedded:python corpus --data.tokenizer.path={URL}",
    f"evaluate {URL}",
    f"predict {URL} [MASK]",
    f"report {URL}",
    f"checkpoints {URL}",
    "finetune finetune --task=cola --data_dir=here --from=here --run_dir=gs://bucket/place",
    "inspect attention s3:/bucket/place --text=a --out=a.png",
    "convert s3:/bucket/place out --to=bertzoo",
    f"convert here {URL} --to=bertzoo",
    f"plan demo --topology=v5e:2x2 --cache={URL}",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_verb_rejects_a_url_that_it_cannot_use(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 2
    *_, message = capsys.readouterr().err.splitlines()
    assert mentions(message, "/bucket/place", "URL")
    assert not list(tmp_path.rglob("*:*"))


def test_the_verbs_that_read_a_run_give_the_same_advice(capsys):
    said = []
    for verb in ("report", "checkpoints", "evaluate"):
        assert main([verb, "gs:/bucket/run"]) == 2
        said.append(capsys.readouterr().err)
    assert len(set(said)) == 1 and mentions(said[0], "gs://…")


def test_a_url_mangled_by_pathlib_raises_too():
    for read in (bertzoo.load, RunDirectory):
        with pytest.raises(UserError, match=mentioning("s3:/bucket/place", "URL")):
            read(Path(URL))


@pytest.mark.parametrize("name", ["runs/a", "../a b", "/a:b/c", "C:/a", "a", "a:b"])
def test_paths_are_paths(name):
    assert on_disk(name, "a", "b") == Path(name) and not is_url(name)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/a/b/runs/first", "first"),
        ("/a/b/first/checkpoints/10", "first/checkpoints/10"),
        ("/a/sst2/seed-0/model", "sst2/seed-0/model"),
        ("first/checkpoints/10", "first/checkpoints/10"),
        ("gs://bucket/first", "first"),
        ("pruned/iterations/1-tune", "pruned/iterations/1-tune"),
    ],
)
def test_a_models_name_omits_the_folders_above(path, name):
    assert model_name(path) == name


def test_a_name_of_the_hub_is_not_downloaded(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name = "google/mobilebert-uncased"
    for command in (["predict", name, "a [MASK]"], ["evaluate", name], ["convert", name, "out", "--to=bertzoo"]):
        assert main(command) == 2
        assert mentions(capsys.readouterr().err, name, "hf download")
    assert not [*tmp_path.iterdir()]


def test_a_file_is_not_reported_as_a_missing_directory(tmp_path):
    (tmp_path / "own.tflite").touch()
    with pytest.raises(UserError, match=mentioning(tmp_path / "own.tflite", "is a file")):
        bertzoo.load(tmp_path / "own.tflite")


def test_a_directory_of_placeholders_is_vacant():
    check_vacant("run", [".gitkeep", ".DS_Store"], ["config.toml"])
    with pytest.raises(UserError, match=mentioning("run", "notes.txt")):
        check_vacant("run", [".gitkeep", "notes.txt"], ["config.toml"])
