"""Write a table of word vectors as a model, from the vectors that a model of sentences gives each word alone.

python launch/word_table.py MODEL OUT [--size 256]

OUT embeds texts, and can be searched, scored, exported and trained as any model.
"""

import argparse
from pathlib import Path

from bertzoo.core import atomic
from bertzoo.core.errors import UserError
from bertzoo.finetuning.warm_start import static_model
from bertzoo.heads import SentenceEmbedding
from bertzoo.runs import load_model


def main() -> None:
    """Compute the table and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a run, or a directory of sentence-transformers")
    parser.add_argument("out", type=Path, help="a new folder")
    parser.add_argument("--size", type=int, default=256, help="numbers of a vector")
    args = parser.parse_args()
    if args.out.exists():
        parser.error(f"{args.out} exists. Name a new folder.")
    try:
        source = load_model.read_model(args.model)
        most = source.head.width(source.model) if isinstance(source.head, SentenceEmbedding) else 0
        if most and not 1 <= args.size <= most:
            parser.error(
                f"--size={args.size} is not between 1 and {most}, the numbers of a vector of {args.model}. Use a size "
                "in that range."
            )
        table = static_model(source, args.size)
        with atomic.new_directory(args.out) as folder:
            load_model.write_model(table, folder)
    except UserError as error:
        parser.error(str(error))
    print(f"{args.out}: a table of vectors of {args.size} numbers")


if __name__ == "__main__":
    main()
