"""Make a data set for classification without a download: paragraphs in the docstrings of Python and NumPy.

The label of a paragraph is the subject of its module: arrays, text or files. All labels have equally many paragraphs. A
fifth of each label's paragraphs, chosen by hash, is the development set.
"""

import csv
import hashlib
import platform
import sysconfig
from pathlib import Path

import numpy

from bertzoo.core import atomic, lock
from bertzoo.core.paths import cache_folder
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


def labelled_set() -> Path:
    """Return the directory in the user's cache that holds train.csv and dev.csv; the first call writes them."""
    revision = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    name = f"{platform.python_version()}-{numpy.__version__}-{revision}"
    directory = cache_folder("labels") / name
    with lock.wait_for(directory):
        if not directory.exists():
            with atomic.new_directory(directory) as temporary:
                write_labelled_set(temporary)
    return directory


def write_labelled_set(directory: Path) -> dict[str, int]:
    """Write train.csv and dev.csv, with the columns text and label, and return the number of rows by file name."""
    texts = {subject: paragraphs(subject) for subject in SUBJECTS}
    count = min(map(len, texts.values()))
    parts = {"train.csv": slice(count // 5, count), "dev.csv": slice(0, count // 5)}
    counts = {}
    for name, part in parts.items():
        rows = [(text, subject) for subject, all_texts in texts.items() for text in all_texts[part]]
        with (directory / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
        counts[name] = len(rows)
    return counts
