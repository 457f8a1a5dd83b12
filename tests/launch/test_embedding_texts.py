"""launch/embedding_texts.py: sentences, titles, sections and definitions, each once, the same in every order."""

import json
import lzma
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "launch" / "embedding_texts.py"
PAGE = "<h1>Open a {}</h1><p>{}</p>"
LONG = "First choose a {0} in the menu. Then wait until the {0} has been opened, which may take some time."
WORDNET = '  1 licence\n0001 03 n 01 dog 0 000 | a domestic animal; "the dog barked all night"\n'


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *map(str, words)], capture_output=True, text=True)


def read(folder: Path) -> dict[str, list[str]]:
    return {
        name: [json.loads(line)["text"] for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        for name in ("train", "dev")
    }


def test_texts_of_each_kind_of_source(tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    for name in ("file", "folder"):
        (tmp_path / "pages" / f"{name}.html").write_text(PAGE.format(name, LONG.format(name)))
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "data.noun").write_text(WORDNET)
    wiki = "= = = Confetti = = = Confetti is paper. It is thrown at weddings! = = = Poales = = = Poales are plants."
    (tmp_path / "books.txt.xz").write_bytes(lzma.compress(f"{wiki}\nOne more line.\nConfetti is paper.".encode()))
    sources = [tmp_path / name for name in ("pages", "words", "books.txt.xz")]
    done = run(tmp_path / "out", *sources)
    assert done.returncode == 0, done.stderr
    found = read(tmp_path / "out")
    texts = found["train"] + found["dev"]
    wanted = ["a domestic animal", "the dog barked all night", "Confetti is paper.", "It is thrown at weddings!"]
    wanted += ["Poales are plants.", "One more line.", "Open a file", "First choose a folder in the menu."]
    assert set(wanted) < set(texts) and len(set(texts)) == len(texts)
    assert any(text.startswith("Open a file. First choose") for text in texts)
    run(tmp_path / "again", *reversed(sources))
    assert read(tmp_path / "again") == found  # in the order of their hashes


def test_questions_of_a_book_and_of_squad(tmp_path: Path) -> None:
    asked = {"data": [{"paragraphs": [{"context": "A b.", "qas": [{"question": " Who  reigned\nin 1900?"}]}]}]}
    (tmp_path / "train.json").write_text(json.dumps(asked))
    (tmp_path / "book.txt").write_text("Who is there at this hour? Nobody answered. What do you want?\n")
    done = run(
        tmp_path / "out", f"{tmp_path / 'book.txt'}:1", "--questions", tmp_path / "book.txt", tmp_path / "train.json"
    )
    assert done.returncode == 0, done.stderr
    found = read(tmp_path / "out")
    questions = {"Who is there at this hour?", "What do you want?", "Who reigned in 1900?"}
    assert questions <= {*found["train"], *found["dev"]} <= {*questions, "Nobody answered."}


def test_a_source_has_a_greatest_number_and_every_hundredth_text_is_for_development(tmp_path: Path) -> None:
    (tmp_path / "many.txt").write_text("\n".join(f"This is sentence number {nth}." for nth in range(2000)))
    assert run(tmp_path / "all", tmp_path / "many.txt").returncode == 0
    found = read(tmp_path / "all")
    assert len(found["train"]) + len(found["dev"]) == 2000 and 5 < len(found["dev"]) < 40
    assert run(tmp_path / "some", f"{tmp_path / 'many.txt'}:50").returncode == 0
    some = read(tmp_path / "some")
    assert len(some["train"]) + len(some["dev"]) == 50
    assert some["train"] == found["train"][: len(some["train"])]
    done = run(tmp_path / "none", tmp_path / "missing.txt")
    assert done.returncode == 2 and "missing.txt" in done.stderr
