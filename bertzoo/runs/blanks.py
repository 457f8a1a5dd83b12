"""Fill the blanks in sentences with a masked language model, from a run or any other model."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core.errors import UserError
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.heads import MaskedLanguageModel
from bertzoo.objectives import MaskedObjective
from bertzoo.runs.load_model import load_run

BLANK = "[MASK]"
TOP = 5


@dataclass(frozen=True, kw_only=True)
class BlankFiller:
    """A masked language model that fills blanks.

    path: name of the model in errors.
    longest: maximum number of tokens, L.
    masked_logits: a function from a dict of int32 arrays to the logits (1,P,V) of P blanks. The arrays are `input_ids`,
    `token_type_ids` and `attention_mask` (1,L), and the blanks' positions `masked_positions` (1,P). V may exceed the
    tokenizer's vocabulary.
    """

    path: Path | str
    tokenizer: Tokenizer
    longest: int
    masked_logits: Callable[[Mapping[str, np.ndarray]], Any]

    def fill(self, text: str, top: int = TOP) -> list[dict[str, float]]:
        """Return {token: probability} of the `top` likeliest tokens for every "[MASK]" in a text, likeliest first.

        Raises UserError if the text has no blank or too many tokens, or if `top` is not in [1, vocabulary size].
        """
        tokenizer = self.tokenizer
        specials = tokenizer.specials
        if not 1 <= top <= tokenizer.vocab_size:
            raise UserError(
                f"--top={top} is not between 1 and {tokenizer.vocab_size}, the vocabulary's size. Use one of these."
            )
        segments = text.split(BLANK)
        if len(segments) == 1:
            raise UserError(f"the text {text!r} has no blank. Write {BLANK} in place of a word.")
        if tokenizer.mask_takes_space:
            segments = [*(segment.rstrip() for segment in segments[:-1]), segments[-1]]
        first, *rest = tokenizer.encode_batch(segments)
        ids, positions = [specials.cls, *first.tolist()], []
        for encoded in rest:
            positions.append(len(ids))
            ids += [specials.mask, *encoded.tolist()]
        ids.append(specials.sep)
        if len(ids) > self.longest:
            raise UserError(
                f"the text has {len(ids)} tokens, but {self.path} reads at most {self.longest}. Shorten the text."
            )
        input_ids = np.array([ids], np.int32)
        row = {
            "input_ids": input_ids,
            "token_type_ids": np.zeros_like(input_ids),
            "attention_mask": np.ones_like(input_ids),
            "masked_positions": np.array([positions], np.int32),
        }
        # The word embeddings may have more rows than the vocabulary has tokens.
        logits_PV = self.masked_logits(row)[0, :, : tokenizer.vocab_size]
        values, indices = jax.lax.top_k(jax.nn.softmax(logits_PV), top)
        return [
            {tokenizer.spelling(index): chance for index, chance in zip(row, chances, strict=True)}
            for row, chances in zip(np.asarray(indices).tolist(), np.asarray(values).tolist(), strict=True)
        ]

    def records(self, texts: Sequence[str], top: int | None = None) -> list[dict[str, Any]]:
        """Return {"text": …, "blanks": [{token: probability}, …]} for every text; top: TOP if None."""
        return [{"text": text, "blanks": self.fill(text, TOP if top is None else top)} for text in texts]


@functools.partial(jax.jit, static_argnums=0)
def _masked_logits(objective: Any, params: Any, row: Any) -> jax.Array:
    return objective.masked_logits(params, row)


def run_filler(path: Path | str, which: Literal["latest", "best"] | int = "latest") -> BlankFiller:
    """Return a blank filler that uses a run's checkpoint; in replaced token detection, it uses the generator."""
    loaded = load_run(path, which)
    return BlankFiller(
        path=path,
        tokenizer=loaded.tokenizer,
        longest=loaded.recipe.model.max_positions,
        masked_logits=lambda row: _masked_logits(loaded.objective, loaded.params, row),
    )


def model_filler(pretrained: Pretrained) -> BlankFiller | None:
    """Return a blank filler for the model, or None if it lacks a tokenizer or a masked language model head."""
    masked = pretrained.generator or pretrained
    if not isinstance(masked.head, MaskedLanguageModel) or masked.tokenizer is None:
        return None
    module, params = masked.module()
    objective = MaskedObjective(module, "none")
    return BlankFiller(
        path=pretrained.origin,
        tokenizer=masked.tokenizer,
        longest=masked.model.max_positions,
        masked_logits=lambda row: _masked_logits(objective, params, row),
    )
