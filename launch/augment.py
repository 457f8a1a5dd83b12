"""Write more texts like those of a table, without labels, for a teacher to label (`--own.unlabelled`).

python launch/augment.py TRAIN.tsv OUT.tsv --columns=sentence [--copies=5] [--seed=0]
python launch/augment.py TRAIN.tsv OUT.tsv --columns=sentence1,sentence2

The script changes each row --copies times: it drops words or replaces them by words of the table, cuts a text to some
of its words, or joins it to another one (after Tang et al. 2019, https://arxiv.org/abs/1903.12136, §3.2). The second
text of a pair may be the first one, changed. No row occurs twice, and none is a row of the table.
"""

import argparse
import random
from pathlib import Path

from bertzoo.core.errors import UserError
from bertzoo.tasks.readers import read_table

MOST = 12  # words of a cut text
RATES = (0.05, 0.1, 0.2, 0.3)  # share of the words that change
JOINTS = (" , ", " but ", " and ", " . ", " , but ", " ; ", " -- ")


class Changes:
    """Draws changes of the texts in `rows`."""

    def __init__(self, rows: list[list[str]], seed: int):
        self.draw, self.rows = random.Random(seed), rows
        self.words = [word for row in rows for text in row for word in text.split()]

    def words_changed(self, text: str) -> str:
        """The text with words replaced or dropped, each as often."""
        rate = self.draw.choice(RATES)
        chances = [(self.draw.random() / rate, word) for word in text.split()]
        changed = [
            word if chance >= 1 else self.draw.choice(self.words) for chance, word in chances if not 0.5 <= chance < 1
        ]
        return " ".join(changed)

    def cut(self, text: str) -> str:
        """Some neighbouring words of the text, at most MOST."""
        words = text.split()
        length = self.draw.randint(1, min(MOST, len(words)))
        start = self.draw.randint(0, len(words) - length)
        return " ".join(words[start : start + length])

    def perhaps_cut(self, text: str) -> str:
        return self.draw.choice((text, self.cut(text)))

    def text(self, text: str) -> list[str]:
        """A changed text: other words in it, a part of it, or it and another text."""
        kind = self.draw.random()
        if kind < 0.1:
            return [self.cut(text)]
        if kind < 0.45:
            return [self.words_changed(text)]
        (other,) = self.draw.choice(self.rows)
        joined = self.perhaps_cut(text) + self.draw.choice(JOINTS) + self.perhaps_cut(other)
        return [joined if self.draw.random() < 0.7 else self.words_changed(joined)]

    def pair(self, first: str, second: str) -> list[str]:
        """A changed pair: both texts with other words, or one text and a changed or cut form of it."""
        if self.draw.random() < 0.5:
            first, second = second, first
        kind = self.draw.random()
        if kind < 0.5:
            return [self.words_changed(first), self.words_changed(second)]
        return [first, self.words_changed(first) if kind < 0.9 else self.cut(second)]


def main() -> None:
    """Change the table's rows and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, help="the labelled texts")
    parser.add_argument("out", type=Path, help="a .tsv file to write")
    parser.add_argument("--columns", required=True, help="the column of the text, or those of both texts")
    parser.add_argument("--copies", type=int, default=5, help="changes of each row (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    args = parser.parse_args()
    columns = args.columns.split(",")
    if args.copies < 1:
        parser.error(f"--copies={args.copies} is less than 1. Use 1 or more.")
    if args.out.suffix != ".tsv" or args.out.exists():
        parser.error(f"{args.out} exists, or its name does not end with .tsv. Name a new .tsv file.")
    if len(columns) > 2:
        parser.error(f"--columns={args.columns} names {len(columns)} columns. Name one or two.")
    try:
        rows = [
            [" ".join(str(cell).split()) for cell in cells] for _, cells in read_table(args.table).valid_rows(columns)
        ]
    except UserError as error:
        parser.error(str(error))
    rows = [row for row in rows if all(row)]
    changes, seen = Changes(rows, args.seed), set(map(tuple, rows))
    with args.out.open("w", encoding="utf-8") as file:
        file.write("\t".join(columns) + "\n")
        for row in rows * args.copies:
            changed = changes.text(*row) if len(row) == 1 else changes.pair(*row)
            if all(changed) and tuple(changed) not in seen:
                seen.add(tuple(changed))
                file.write("\t".join(changed) + "\n")
    print(f"{args.out}: {len(seen) - len(set(map(tuple, rows))):,} texts from {len(rows):,} rows")


if __name__ == "__main__":
    main()
