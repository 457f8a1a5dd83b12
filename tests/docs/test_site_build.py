"""The strict build of the site, whole and with faults; `make rest` installs the extra `docs` for it."""

import os
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


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose docs/ may be changed."""
    for path in ROOT.iterdir():
        if path.name not in ("docs", "site"):
            (tmp_path / path.name).symlink_to(path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_the_site_loads_nothing_from_the_web(checkout: Path) -> None:
    done = build(checkout)
    assert done.returncode == 0, done.stderr
    site = checkout / "site"
    for page in site.rglob("*.html"):
        loaded = page.read_text(encoding="utf-8").replace("'", '"').split("<")
        tags = [tag for tag in loaded if tag.startswith(("script", "link", "img", "iframe"))]
        assert not [tag for tag in tags if '="http' in tag or '="//' in tag], page
    assert {"CONTRIBUTING.html", "CHANGELOG.html"} <= {page.name for page in (site / "repository").iterdir()}
    assert 'href="repository/CONTRIBUTING.html"' in (site / "index.html").read_text(encoding="utf-8")


def test_faults_stop_the_build(checkout: Path) -> None:
    with (checkout / "docs" / "phone.md").open("a", encoding="utf-8") as page:
        page.write("\n[a](nowhere.md) [b](benchmark.md#nowhere) [c](../configs/nowhere.toml)\n")
    (checkout / "docs" / "lost.md").write_text("# Lost\n")
    done = build(checkout)
    assert done.returncode == 1
    assert mentions(done.stderr, "'nowhere.md'", "#nowhere", "../configs/nowhere.toml", "lost.md")
