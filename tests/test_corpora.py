"""docs/corpora.md: where every shipped config's text comes from, by commands that are accepted."""

import re
import shlex
from pathlib import Path

import pytest

from bertzoo import config
from bertzoo.cli import main
from bertzoo.data import embedded
from bertzoo.finetune.settings import Finetune
from bertzoo.kinds import class_of
from bertzoo.recipe import Pretrain
from bertzoo.sweep.chain import Chain

PAGE = Path(__file__).parent.parent / "docs" / "corpora.md"
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^bertzoo tokenize .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def anchor(title):
    return title.lower().replace(" ", "-")


def test_every_shipped_config_points_to_the_section_that_lists_it():
    pointed: dict[str, set[str]] = {anchor(title): set() for title in SECTIONS}
    for name, path in config.shipped().items():
        if class_of(path) in (Finetune, Chain):
            continue  # reads tasks
        if config.load(class_of(path), [name]).data.source == embedded.SOURCE:
            continue  # on the machine already
        (target,) = re.findall(r"^(?:data\.)?source = .* # docs/corpora\.md#([a-z-]+)", path.read_text(), re.MULTILINE)
        pointed[target].add(name)
    for title, body in SECTIONS.items():
        listed = re.search(r"^Configs: ([\w\s,]+?)\n\n", body, re.MULTILINE)
        assert (set(re.split(r",\s+", listed[1])) if listed else set()) == pointed[anchor(title)], title
        assert not listed or (("papers' corpus:" in body or "paper's corpus:" in body) and "In its place" in body)
    assert len(set().union(*pointed.values())) > 25


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_accepted(command, tmp_path, monkeypatch):
    for block in re.findall(r"```toml\n# (\S+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        (tmp_path / block[0]).write_text(block[1])
    given = []

    def tokenize(data, destination, **options):
        given.append((data, destination, options))
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bertzoo.data.tokenize.tokenize", tokenize)
    assert main(shlex.split(command)[1:]) == 3
    ((data, destination, _),) = given
    assert str(destination) == "corpus"
    assert all(re.search(r"://|^tfds:", part.source) for part in data.parts)
    assert data.tokenizer == config.load(Pretrain, [re.findall(r"--config=(\w+)\b", command)[0]]).data.tokenizer
    assert len(COMMANDS) >= 8 and sum("mixture" in c for c in COMMANDS) == 1
