"""Models, as small as they can be, for fine-tuning runs to begin with, one with words of its own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.data.tokenizers import tokenizer as tokenizers
from bertzoo.data.tokenizers.wordpiece import WordPiece
from bertzoo.heads import MaskedLanguageModel, parameter_shapes
from bertzoo.models import Bert
from bertzoo.runs import load_model


def write(
    folder: Path, model: Any, head: Any, tokenizer: Any, draw: np.random.Generator | None = None, **source: Any
) -> Pretrained:
    """A model directory of a model with drawn parameters under a head."""
    draw = draw or np.random.default_rng(1)
    params = {
        name: np.ones(shape, np.float32) if name.endswith("scale") else draw.normal(0, 0.1, shape).astype(np.float32)
        for name, shape in parameter_shapes(model, head).items()
    }
    made = Pretrained(
        model=model, head=head, params=params, tokenizer=tokenizer, origin="here", source={"format": "test", **source}
    )
    folder.mkdir(parents=True)
    load_model.write_model(made, folder)
    return made


def build_tokenizer(words: Sequence[str], size: int = 80) -> Any:
    return tokenizers.build(WordPiece(vocab_size=size), lambda: iter([" ".join(words)] * 20))


def write_model(folder: Path, words: Sequence[str], draw: np.random.Generator, max_positions: int = 32) -> Path:
    """The directory of a BERT of one layer that knows these words."""
    tokenizer = build_tokenizer(words)
    model = Bert(
        vocab_size=tokenizer.vocab_size, hidden_size=16, layers=1, heads=2, feed_forward_size=32,
        max_positions=max_positions, initializer_range=0.1,
    )  # fmt: skip
    write(folder, model, MaskedLanguageModel(sentence=True), tokenizer, draw)
    return folder
