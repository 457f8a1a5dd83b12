"""Write train.csv and dev.csv: paragraphs of Python's and NumPy's documentation, labelled arrays, text or files.

python launch/demo_labels.py DIRECTORY
"""

import sys
from pathlib import Path

from bertzoo.tasks import embedded


def main(directory: Path) -> None:
    """Write both files and print how many paragraphs each has."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, count in embedded.write_labelled_set(directory).items():
        print(f"{directory / name}: {count:,} paragraphs, {' '.join(embedded.SUBJECTS)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
