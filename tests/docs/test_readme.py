"""What stands beside the README: complete, and about this version."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from bertzoo.core import config
from bertzoo.core.version import __version__

ROOT = Path(__file__).parents[2]
MODELS = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


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
