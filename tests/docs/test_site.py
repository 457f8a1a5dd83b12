"""The site's sources: links, navigation and the generated reference. The strict build itself is `make docs`."""

import functools
import re
from pathlib import Path

import pytest
import site_reference
import yaml

from bertzoo.cli import main as cli
from bertzoo.core import config
from bertzoo.jobs import pipeline, sweep

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE = sorted(DOCS.rglob("*.md"))
SOURCES = [*sorted(ROOT.glob("*.md")), *SITE]
CODE = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1|`+[^`\n]+`+|<!--.*?-->", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)|(?:src|href)=\"([^\"]+)\"")


def links(markdown: str) -> list[str]:
    """The relative links of a page, and those to its own anchors."""
    return [a or b for a, b in LINK.findall(CODE.sub("", markdown)) if not re.match(r"\w+:|//", a or b)]


@functools.cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page: its headings, public names and ids."""
    text = site_reference.expand(page.read_text(encoding="utf-8"))
    text = re.sub(r"^ *(`{3,}|~{3,}).*?^ *\1", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = {site_reference.slug(heading) for heading in re.findall(r"^#+ +(.+?)$", text, re.MULTILINE)}
    named = re.findall(r"^::: ([\w.]+)|(?:id|name)=\"([\w-]+)\"", text, re.MULTILINE)
    return headings | {name or id for name, id in named}


def broken(page: Path, markdown: str) -> list[str]:
    """The links of a page that lead nowhere."""

    def leads(link: str) -> bool:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or not target.is_relative_to(ROOT):
            return False
        return not anchor or target.suffix != ".md" or anchor in anchors(target)

    return [link for link in links(markdown) if not leads(link)]


@pytest.mark.parametrize("page", SOURCES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert not broken(page, page.read_text(encoding="utf-8"))


def test_every_page_is_in_the_navigation_once() -> None:
    def files(node: object) -> list[str]:
        if isinstance(node, str):
            return [node]
        return [file for one in (node if isinstance(node, list) else node.values()) for file in files(one)]

    listed = files(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    assert sorted(listed) == [str(page.relative_to(DOCS)) for page in SITE]


def section(markdown: str, heading: str) -> str:
    """The text under a heading of the second level."""
    (text,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", markdown, re.DOTALL | re.MULTILINE)
    return text


@pytest.fixture(scope="module")
def verbs() -> str:
    return site_reference.expand((DOCS / "reference" / "cli.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("verb", cli.VERBS)
def test_the_reference_has_every_option_of_the_help(verb: str, verbs: str, capsys: pytest.CaptureFixture) -> None:
    assert cli.main([*verb.split("_"), "--help"]) == 0
    help_text = capsys.readouterr().out
    options = set(re.findall(r"^ +(?:-\w, )?(--[a-z][\w.-]*\w)(?=[=\s,])", help_text, re.MULTILINE))
    text = section(verbs, verb.replace("_", " "))
    documented = re.findall(r"^\| `(--[a-z][\w.-]*)", text, re.MULTILINE)
    assert {*documented} - {"--debug"} == options - {"--help", "--debug"} and len(documented) == len({*documented})
    examples = help_text.partition("examples:\n")[2]
    shown = [line.strip() for line in examples.splitlines() if line.strip().startswith("bertzoo ")]
    assert shown and all(line.rstrip("\\").strip() in text for line in shown)


def test_every_key_of_a_config_has_a_comment() -> None:
    assert len(re.findall(r"^\| `", site_reference.configs(), re.MULTILINE)) > 250  # raises for a key without one


@pytest.mark.parametrize("module", [sweep, pipeline])
def test_shipped_sweeps_and_pipelines_have_known_keys(module: object) -> None:
    patterns = [re.sub(r"\bOPTION\b", ".+", re.sub(r"\b(NAME|TASK|COMMAND)\b", r"[^.]+", key)) for key in module.KEYS]
    files = config.shipped(module.FOLDER).values()
    keys = {key for file in files for key, _ in config.leaves(config.read_toml(file), "")}
    assert len(keys) > 10
    assert not [key for key in keys if not any(re.fullmatch(pattern, key) for pattern in patterns)]
