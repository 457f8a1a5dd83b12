"""A model, as small as one can be, for fine-tuning runs to begin with, with words of its own."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.data.tokenizers import tokenizer as tokenizers
from bertzoo.data.tokenizers.wordpiece import WordPiece
from bertzoo.heads import MaskedLanguageModel, parameter_shapes
from bertzoo.models import Bert
from bertzoo.runs import load_model


def write_model(folder: Path, words: Sequence[str], draw: np.random.Generator, max_positions: int = 32) -> Path:
    """The directory of a BERT of one layer that knows these words."""
    tokenizer = tokenizers.build(WordPiece(vocab_size=80), lambda: iter([" ".join(words)] * 20))
    model = Bert(
        vocab_size=tokenizer.vocab_size, hidden_size=16, layers=1, heads=2, feed_forward_size=32,
        max_positions=max_positions, initializer_range=0.1,
    )  # fmt: skip
    head = MaskedLanguageModel(sentence=True)
    params = {
        name: np.ones(shape, np.float32) if name.endswith("scale") else draw.normal(0, 0.1, shape).astype(np.float32)
        for name, shape in parameter_shapes(model, head).items()
    }
    folder.mkdir()
    load_model.write_model(
        Pretrained(
            model=model, head=head, params=params, tokenizer=tokenizer, origin="here", source={"format": "test"}
        ),
        folder,
    )
    return folder
