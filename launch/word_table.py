"""Write a table of word vectors as a model, from the vectors that a model of sentences gives each word alone.

python launch/word_table.py MODEL OUT [--size 256]

OUT embeds texts, and can be searched, scored, exported and trained as any model.
"""

import argparse
from pathlib import Path

import numpy as np

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core import atomic
from bertzoo.core.errors import UserError
from bertzoo.finetuning.warm_start import initial_words
from bertzoo.heads import SentenceEmbedding, parameter_shapes
from bertzoo.models import Static
from bertzoo.runs import load_model


def static_model(source: Pretrained, size: int) -> Pretrained:
    """Return a table of `size` numbers for each token of a source's vocabulary, as a model that embeds texts.

    Raises the errors of `initial_words`.
    """
    model, head = Static(vocab_size=source.model.vocab_size, hidden_size=size), SentenceEmbedding()
    params = {name: np.zeros(shape, np.float32) for name, shape in parameter_shapes(model, head).items()}
    params |= initial_words(source, model) | {"embedding/norm/scale": np.ones(size, np.float32)}
    kept = ("max_length", "license", "language", "base_model")
    return Pretrained(
        model=model,
        head=head,
        params=params,
        tokenizer=source.tokenizer,
        origin=source.origin,
        source={"format": "static", **{key: source.source[key] for key in kept if key in source.source}},
    )


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
