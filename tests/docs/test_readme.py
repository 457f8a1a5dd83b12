"""The README and what stands beside it: short, complete, and about this version."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from bertzoo.core import config
from bertzoo.core.version import __version__

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MODELS = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def test_the_readme_is_short_and_shows_what_it_promises() -> None:
    assert len(README.splitlines()) <= 150
    for heading in ("Ten lines of shell", "Ten lines of Python"):
        section = README.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
        (commands, _), (output, _) = ((block, 0) for block in re.findall(r"^```\w+\n(.*?)^```", section, re.S | re.M))
        assert len(commands.splitlines()) == 10 and 0 < len(output.splitlines()) <= 12
    figures = README.split("## Five numbers\n", 1)[1].split("\n## ", 1)[0]
    assert len(re.findall(r"^\| \d.*\]\(docs/\w+\.md#[\w-]+\) \|$", figures, re.MULTILINE)) == 5


def test_the_models_page_names_every_config() -> None:
    assert set(config.shipped()) <= set(re.findall(r"`(\w+)`", MODELS))


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (citation["cff-version"], citation["version"]) == ("1.2.0", __version__)
    assert citation["license"] == project["license"] and citation["authors"] == [{"name": "The bertzoo developers"}]
    papers = set(re.findall(r"https://arxiv\.org/abs/[\d.]+", MODELS))
    assert len(citation["references"]) == 4 and {paper["url"] for paper in citation["references"]} <= papers


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_an_issue_form_is_valid(form: Path) -> None:
    parts = yaml.safe_load(form.read_text(encoding="utf-8"))
    assert parts["name"] and parts["description"]
    fields = [part for part in parts["body"] if part["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields) >= 2
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)
