"""The strict build of the site, whole and with faults; `make rest` installs the extra `docs` for it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from messages import mentions

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def build(folder: Path) -> subprocess.CompletedProcess:
    """Run the strict build in a checkout."""
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def copy_checkout(folder: Path) -> Path:
    """A checkout whose docs/ may be changed."""
    for path in ROOT.iterdir():
        if path.name not in ("docs", "site"):
            (folder / path.name).symlink_to(path)
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    checkout = copy_checkout(tmp_path_factory.mktemp("checkout"))
    done = build(checkout)
    assert done.returncode == 0, done.stderr
    return checkout / "site"


def loads(text: str) -> list[str]:
    """What a page or a style sheet would load from the web."""
    tags = [tag for tag in text.replace("'", '"').split("<") if tag.startswith(("script", "link", "img", "iframe"))]
    tags = [tag for tag in tags if '="http' in tag or '="//' in tag]
    return tags + re.findall(r"""@import[^;]*;|url\(\s*["']?(?:https?:)?//[^)]*\)""", text)


def test_the_site_loads_nothing_from_the_web(site: Path) -> None:
    files = [file for file in site.rglob("*") if file.suffix in (".html", ".css", ".svg")]
    assert {".html", ".css", ".svg"} == {file.suffix for file in files}
    assert not {file: found for file in files if (found := loads(file.read_text(encoding="utf-8")))}
    assert {"CONTRIBUTING.html", "CHANGELOG.html"} <= {page.name for page in (site / "repository").iterdir()}
    assert 'href="repository/CONTRIBUTING.html"' in (site / "index.html").read_text(encoding="utf-8")


def test_faults_stop_the_build(tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path)
    with (checkout / "docs" / "phone.md").open("a", encoding="utf-8") as page:
        page.write("\n[a](nowhere.md) [b](benchmark.md#nowhere) [c](../configs/nowhere.toml)\n")
    (checkout / "docs" / "lost.md").write_text("# Lost\n")
    done = build(checkout)
    assert done.returncode == 1
    assert mentions(done.stderr, "'nowhere.md'", "#nowhere", "../configs/nowhere.toml", "lost.md")
