"""The kind of a config, and the model in the directory of a run."""

from pathlib import Path

import pytest
from messages import mentioning

from bertzoo.core import config, kinds
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.core.kinds import KINDS, kind_of, kind_of_files, kind_of_run


def test_a_config_names_its_kind_and_older_ones_tell_it_by_a_key() -> None:
    assert {name: kind_of({"kind": name}).name for name in KINDS} == {name: name for name in KINDS}
    older = {"pretrain": "stages", "transfer": "teacher", "finetune": "epochs", "prune": "weigh"}
    assert {name: kind_of({key: 1}).name for name, key in older.items()} == {name: name for name in KINDS}
    assert kind_of({"kind": "pretrain", "teacher": {}}) is KINDS["pretrain"]
    with pytest.raises(ConfigError, match=mentioning("prunes", "prune")):
        kind_of({"kind": "prunes"})


def test_the_first_file_with_a_kind_decides_and_an_unreadable_one_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "more.toml").write_text("seed = 1\n")
    (tmp_path / "broken.toml").write_text("seed =")
    assert kind_of_files("demo_prune", tmp_path / "more.toml") is KINDS["prune"]
    assert kind_of_run(tmp_path) is None
    for name in ("broken.toml", "absent.toml"):
        with pytest.raises(ConfigError, match=mentioning(name)):
            kind_of_files("demo", tmp_path / name)


def test_a_command_rejects_a_config_of_another_kind() -> None:
    with pytest.raises(ConfigError, match=mentioning("prune_33m", "'prune'", "'pretrain'")):
        config.load(KINDS["pretrain"].config(), ["prune_33m"])
    with pytest.raises(ConfigError, match=mentioning("finetune", "pretrain", "transfer")):
        kinds.config_class("finetune")


def test_a_run_names_the_folder_of_its_model(tmp_path: Path) -> None:
    finetune = KINDS["finetune"]
    with pytest.raises(UserError, match=mentioning(tmp_path, "results.json", "bertzoo finetune")):
        finetune.model_directory(tmp_path)
    (tmp_path / "results.json").write_text('{"best": "3"}')
    with pytest.raises(UserError, match=mentioning(tmp_path, "best")):
        finetune.model_directory(tmp_path)
    (tmp_path / "results.json").write_text('{"best": 3}')
    assert not finetune.is_finished(tmp_path)
    (tmp_path / "seed-3" / "model").mkdir(parents=True)
    assert finetune.is_finished(tmp_path) and finetune.model_directory(tmp_path) == tmp_path / "seed-3" / "model"
