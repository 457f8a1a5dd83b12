"""Write train.csv and dev.csv: paragraphs of Python's and NumPy's documentation, labelled arrays, text or files.

python launch/demo_labels.py DIRECTORY

The label of a paragraph is the subject of its module. All labels have equally many paragraphs. A fifth of each label's
paragraphs, chosen by hash, is the development set.
"""

import csv
import hashlib
import sys
import sysconfig
from pathlib import Path

import numpy

from bertzoo.data.sources.embedded import module_paragraphs

LIBRARY, NUMPY = Path(sysconfig.get_path("stdlib")), Path(numpy.__file__).parent
ARRAYS = "_core/fromnumeric _core/function_base _core/numeric fft lib linalg ma random"
TEXT = "argparse codecs csv difflib email gettext html json pprint re shlex string textwrap tokenize"
FILES = "_pyio bz2 fileinput filecmp glob gzip mailbox os pathlib posixpath shutil tarfile tempfile zipfile"
SUBJECTS = {
    "arrays": [NUMPY / name for name in ARRAYS.split()],
    "text": [LIBRARY / name for name in TEXT.split()],
    "files": [LIBRARY / name for name in FILES.split()],
}


def paragraphs(subject: str) -> list[str]:
    """Return the distinct paragraphs in the modules of a subject (a key of SUBJECTS), in the order of their hashes."""
    files = [path for module in SUBJECTS[subject] for path in (module.with_suffix(".py"), *module.rglob("*.py"))]
    texts = {text for path in files if path.is_file() and "tests" not in path.parts for text in module_paragraphs(path)}
    return sorted(texts, key=lambda text: hashlib.sha256(text.encode()).digest())


def main(directory: Path) -> None:
    """Write both files, with the columns text and label, and print how many paragraphs each has."""
    directory.mkdir(parents=True, exist_ok=True)
    texts = {subject: paragraphs(subject) for subject in SUBJECTS}
    count = min(map(len, texts.values()))
    for name, part in {"train.csv": slice(count // 5, count), "dev.csv": slice(0, count // 5)}.items():
        rows = [(text, subject) for subject, all_texts in texts.items() for text in all_texts[part]]
        with (directory / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
        print(f"{directory / name}: {len(rows):,} paragraphs, {' '.join(SUBJECTS)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
