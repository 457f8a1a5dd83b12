"""bertzoo: pretrain the phone-sized BERTs from config files and take them to the phone."""

from pathlib import Path
from typing import Any, NamedTuple

from bertzoo.core.version import __version__

__all__ = ["Loaded", "__version__", "load"]


class Loaded(NamedTuple):
    """model: a Linen module; params: its parameters; tokenizer: None where the directory has none."""

    model: Any
    params: Any
    tokenizer: Any


def load(path: Path | str) -> Loaded:
    """The model at `path`: a run's directory, one of its checkpoints, a model directory, a Hugging Face directory, or
    an original TensorFlow 1 checkpoint of BERT, MobileBERT, ELECTRA or ConvBERT.

    A masked language model takes the positions whose words are wanted as a fourth array (B,P) and gives
    `masked_logits` (B,P,V); any other head gives `logits`. Raises UserError in one sentence.

    >>> import jax, numpy as np
    >>> model, params, tokenizer = bertzoo.load("tiny")
    >>> words = [tokenizer.specials.cls, *tokenizer.encode_batch(["a model"])[0], tokenizer.specials.sep]
    >>> ids = np.array([words])
    >>> output = jax.jit(model.apply)({"params": params}, ids, 0 * ids, ids >= 0)
    >>> output.hidden_states[-1].shape
    (1, 4, 24)
    >>> output.pooled.shape
    (1, 24)
    """
    from bertzoo.runs.any_model import read

    found = read(path)
    return Loaded(*found.module(), found.tokenizer)
