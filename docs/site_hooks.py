"""Hooks of the site's build (mkdocs.yml): generated reference, files outside docs/, anchors as on code hosts.

Pages link to files of the repository by relative paths, which work on a code host. On the site, a Markdown file outside
docs/ becomes a page of its own, any other file a page that shows it, and the links lead there.
"""

import html
import posixpath
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import griffe
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(DOCS))

import site_reference  # noqa: E402

LINK = re.compile(r"(?<!\\)(\]\()([^)\s#]+)([^)\s]*)(?=[)\s])")
CODE = re.compile(r"^(`{3,}|~{3,}).*?^\1|`+[^`\n]+`+", re.DOTALL | re.MULTILINE)
# A bar in code in a table, whose backslash Python's Markdown would show.
PIPED = re.compile(r"(?<=[| ])`([^`\n]*\\\|[^`\n]*)`")
LANGUAGES = {".toml": "toml", ".py": "python", ".sh": "bash", ".json": "json", ".yaml": "yaml", ".yml": "yaml"}


def on_config(config: Any) -> Any:
    """Make anchors as code hosts do."""
    config["mdx_configs"].setdefault("toc", {})["slugify"] = lambda text, separator: site_reference.slug(text)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add a page for every file outside docs/ that a page links to."""
    waiting = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    seen = set(waiting)
    while waiting:
        page = waiting.pop()
        text = (ROOT / page).read_text(encoding="utf-8") if page.endswith(".md") else ""
        for target in (_target(page, match[2]) for match in _links(text)):
            if target in seen or target.startswith(("docs/", "..")) or not (ROOT / target).exists():
                continue
            seen.add(target)
            waiting.append(target)
            files.append(File.generated(config, _uri(target), content=_content(target)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill in the generated parts, and lead links out of docs/ to the pages of those files."""
    try:
        markdown = site_reference.expand(markdown)
    except site_reference.Undocumented as error:
        raise PluginError(str(error)) from error
    markdown = PIPED.sub(_with_bars, markdown)
    source = page.file.src_uri
    return _relinked(markdown, f"docs/{source}", source) if page.file.generated_by is None else markdown


def on_page_content(content: str, **_: Any) -> str:
    """Mark short inline code, which the style sheet keeps on one line."""
    return re.sub(r"<code>(?=[^<\n]{1,30}</code>)", '<code class="short">', content)


def _with_bars(code: re.Match) -> str:
    text = html.escape(code[1]).replace("\\|", "&#124;")
    return f"<code>{text}</code>"


def _content(target: str) -> str:
    path = ROOT / target
    if path.suffix == ".md":
        return _relinked(path.read_text(encoding="utf-8"), target, _uri(target))
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {target}\n\n"
    if path.is_dir():
        listed = subprocess.run(["git", "ls-files", "."], cwd=path, capture_output=True, text=True, check=True).stdout
        return f"{head}```text\n{listed}```\n"
    text = path.read_text(encoding="utf-8")
    return f"{head}`````{LANGUAGES.get(path.suffix, 'text')}\n{text}\n`````\n"


def _links(markdown: str) -> list[re.Match]:
    """The relative links of a page, those in code left out."""
    text = CODE.sub(lambda match: " " * len(match[0]), markdown)
    return [match for match in LINK.finditer(text) if not re.match(r"\w+:|/", match[2])]


def _target(page: str, link: str) -> str:
    """The file, from the root of the repository, that a link of a page names."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def _uri(target: str) -> str:
    """The page of the site that shows a file of the repository."""
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return f"repository/{target}" if target.endswith(".md") else f"repository/{target}.md"


def _relinked(markdown: str, source: str, uri: str) -> str:
    """The text of a file of the repository whose links lead to pages of the site."""
    for match in reversed(_links(markdown)):
        target = _target(source, match[2])
        if not (source.startswith("docs/") and target.startswith("docs/")) and (ROOT / target).exists():
            link = posixpath.relpath(_uri(target), posixpath.dirname(uri) or ".")
            markdown = markdown[: match.start(2)] + link + markdown[match.end(2) :]
    return markdown


class Docstrings(griffe.Extension):
    """Docstrings as Markdown: `>>>` lines become code, and "name: meaning" of a parameter or a field a list item."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Rewrite the docstring of a function."""
        _rewrite(func, [parameter.name.lstrip("*") for parameter in func.parameters])

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Rewrite the docstring of a class."""
        _rewrite(cls, [name for name, member in cls.members.items() if member.is_attribute])


def _rewrite(documented: griffe.Function | griffe.Class, names: list[str]) -> None:
    if documented.docstring is None:
        return
    item = re.compile(rf"(?:^|(?<=[.;]\s))({'|'.join(names)}): " if names else r"(?!)")
    blocks = []
    for block in documented.docstring.value.split("\n\n"):
        if block.startswith(">>>"):
            block = f"```pycon\n{block}\n```"
        elif item.match(block):
            _, *pairs = item.split(block)
            texts = [text.strip().rstrip(";").replace("\n", "\n    ") for text in pairs[1::2]]
            block = "\n".join(f"- `{name}`: {text}" for name, text in zip(pairs[::2], texts, strict=True))
        blocks.append(block)
    documented.docstring.value = "\n\n".join(blocks)
