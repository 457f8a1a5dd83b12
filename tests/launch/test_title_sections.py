"""launch/title_sections.py: headings with their texts, held-out folders as a search task."""

import json
import subprocess
import sys
from pathlib import Path

from bertzoo.finetuning.embedding_scores import read_retrieval

SCRIPT = Path(__file__).parents[2] / "launch" / "title_sections.py"
LONG = "Words that fill a section until it is long enough to say something about its heading."
PAGE = """<html><head><title>Not a heading</title><body><nav><h2>Menu</h2>{long}</nav>
<h1>1.2. Open a file¶</h1><p>{long} First.</p><pre>code = 1</pre><h2>Short</h2><p>Too short.</p>
<h3>Close <em>a</em> file</h3><p>{long} Second &amp; last.</p></body></html>"""


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *map(str, words)], capture_output=True, text=True)


def test_pairs_and_a_search_task(tmp_path: Path) -> None:
    for folder, count in (("pages", 60), ("other", 2)):
        for nth in range(count):
            page = PAGE.format(long=f"{folder} {nth}. {LONG}").replace("Open a file", f"Open {folder} C# {nth}")
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / f"{nth}.html").write_text(page)
    (tmp_path / "other" / "copy.html").write_text((tmp_path / "pages" / "3.html").read_text())
    done = run(tmp_path / "out", tmp_path / "pages", "--heldout", tmp_path / "other")
    assert done.returncode == 0, done.stderr
    files = [(tmp_path / "out" / f"{name}.jsonl").read_text() for name in ("train", "dev")]
    pairs = [json.loads(line) for file in files for line in file.splitlines()]
    assert all(files)
    # "Close a file" is the heading of 60 sections, so it names none of them.
    assert sorted(pair["text"] for pair in pairs) == sorted(f"Open pages C# {nth}" for nth in range(60))
    assert pairs[0]["partner"].endswith("First.") and "code" not in str(pairs) and "Menu" not in str(pairs)
    data = read_retrieval(tmp_path / "out" / "retrieval", "test")
    assert set(data.queries.values()) == {"Open other C# 0", "Open other C# 1", "Close a file"}
    (query,) = (name for name, text in data.queries.items() if text == "Close a file")
    found = [data.documents[name] for name in data.relevance[query]]
    assert len(found) == 3 and all(text.endswith("Second & last.") for text in found)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    done = run(tmp_path / "out", tmp_path / "nowhere")
    assert done.returncode == 2 and "nowhere" in done.stderr and not (tmp_path / "out").exists()
