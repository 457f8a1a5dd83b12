"""Scripts that make texts of pages: launch/embedding_texts.py and launch/title_sections.py."""

import functools
import json
import lzma
import subprocess
import sys
from pathlib import Path

from bertzoo.finetuning.embedding_scores import read_retrieval

LAUNCH = Path(__file__).parents[2] / "launch"
LONG = "First choose a {0} in the menu. Then wait until the {0} has been opened, which may take some time."
WORDNET = '  1 licence\n0001 03 n 01 dog 0 000 | a domestic animal; "the dog barked all night"\n'
SECTION = "Words that fill a section until it is long enough to say something about its heading."
SECTIONS = """<html><head><title>Not a heading</title><body><nav><h2>Menu</h2>{long}</nav>
<h1>1.2. Open a file¶</h1><p>{long} First.</p><pre>code = 1</pre><h2>Short</h2><p>Too short.</p>
<h3>Close <em>a</em> file</h3><p>{long} Second &amp; last.</p></body></html>"""


def run(script: str, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(LAUNCH / script), *map(str, words)], capture_output=True, text=True)


embedding_texts = functools.partial(run, "embedding_texts.py")
title_sections = functools.partial(run, "title_sections.py")


def read(folder: Path) -> dict[str, list[str]]:
    return {
        name: [json.loads(line)["text"] for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        for name in ("train", "dev")
    }


def test_texts_of_each_kind_of_source(tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    for name in ("file", "folder"):
        (tmp_path / "pages" / f"{name}.html").write_text(f"<h1>Open a {name}</h1><p>{LONG.format(name)}</p>")
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "data.noun").write_text(WORDNET)
    wiki = "= = = Confetti = = = Confetti is paper. It is thrown at weddings! = = = Poales = = = Poales are plants."
    (tmp_path / "books.txt.xz").write_bytes(lzma.compress(f"{wiki}\nOne more line.\nConfetti is paper.".encode()))
    sources = [tmp_path / name for name in ("pages", "words", "books.txt.xz")]
    done = embedding_texts(tmp_path / "out", *sources)
    assert done.returncode == 0, done.stderr
    found = read(tmp_path / "out")
    texts = found["train"] + found["dev"]
    wanted = ["a domestic animal", "the dog barked all night", "Confetti is paper.", "It is thrown at weddings!"]
    wanted += ["Poales are plants.", "One more line.", "Open a file", "First choose a folder in the menu."]
    assert set(wanted) < set(texts) and len(set(texts)) == len(texts)
    assert any(text.startswith("Open a file. First choose") for text in texts)
    embedding_texts(tmp_path / "again", *reversed(sources))
    assert read(tmp_path / "again") == found  # in the order of their hashes


def test_questions_of_a_book_and_of_squad(tmp_path: Path) -> None:
    asked = {"data": [{"paragraphs": [{"context": "A b.", "qas": [{"question": " Who  reigned\nin 1900?"}]}]}]}
    (tmp_path / "train.json").write_text(json.dumps(asked))
    (tmp_path / "book.txt").write_text("Who is there at this hour? Nobody answered. What do you want?\n")
    done = embedding_texts(
        tmp_path / "out", f"{tmp_path / 'book.txt'}:1", "--questions", tmp_path / "book.txt", tmp_path / "train.json"
    )
    assert done.returncode == 0, done.stderr
    found = read(tmp_path / "out")
    questions = {"Who is there at this hour?", "What do you want?", "Who reigned in 1900?"}
    assert questions <= {*found["train"], *found["dev"]} <= {*questions, "Nobody answered."}


def test_a_source_has_a_greatest_number_and_every_hundredth_text_is_for_development(tmp_path: Path) -> None:
    (tmp_path / "many.txt").write_text("\n".join(f"This is sentence number {nth}." for nth in range(2000)))
    assert embedding_texts(tmp_path / "all", tmp_path / "many.txt").returncode == 0
    found = read(tmp_path / "all")
    assert len(found["train"]) + len(found["dev"]) == 2000 and 5 < len(found["dev"]) < 40
    assert embedding_texts(tmp_path / "some", f"{tmp_path / 'many.txt'}:50").returncode == 0
    some = read(tmp_path / "some")
    assert len(some["train"]) + len(some["dev"]) == 50
    assert some["train"] == found["train"][: len(some["train"])]
    done = embedding_texts(tmp_path / "none", tmp_path / "missing.txt")
    assert done.returncode == 2 and "missing.txt" in done.stderr


def test_pairs_and_a_search_task(tmp_path: Path) -> None:
    for folder, count in (("pages", 60), ("other", 2)):
        for nth in range(count):
            page = SECTIONS.format(long=f"{folder} {nth}. {SECTION}").replace("Open a file", f"Open {folder} C# {nth}")
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / f"{nth}.html").write_text(page)
    (tmp_path / "other" / "copy.html").write_text((tmp_path / "pages" / "3.html").read_text())
    done = title_sections(tmp_path / "out", tmp_path / "pages", "--heldout", tmp_path / "other")
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
    relevant = [data.documents[name] for name in data.relevance[query]]
    assert len(relevant) == 3 and all(text.endswith("Second & last.") for text in relevant)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    done = title_sections(tmp_path / "out", tmp_path / "nowhere")
    assert done.returncode == 2 and "nowhere" in done.stderr and not (tmp_path / "out").exists()
