"""Assemble the rows of a RowPlan into a batch, before masking: [CLS] A [SEP] or [CLS] A [SEP] B [SEP]."""

import numpy as np

from bertzoo.data.corpus.reader import Corpus, Split


def assemble(corpus: Corpus, split: Split, rows: np.ndarray, max_length: int) -> dict[str, np.ndarray]:
    """Return a batch: `input_ids`, `token_type_ids` and `attention_mask`, each (B, max_length) int32.

    rows: (B,) of dtype `pack.ROW`. Raises CorpusError for a damaged shard, ValueError for a row of more than
    `max_length` tokens.
    """
    specials = corpus.tokenizer.specials
    a_length, b_length = rows["a_length"].astype(np.int64), rows["b_length"].astype(np.int64)
    has_b = b_length > 0
    length = 2 + a_length + np.where(has_b, b_length + 1, 0)
    if int(length.max(initial=0)) > max_length:
        raise ValueError(f"a row of {int(length.max())} tokens does not fit max_length = {max_length}")
    starts = np.concatenate([rows["a_start"], rows["b_start"][has_b]])
    tokens = corpus.tokens(split, starts, np.concatenate([a_length, b_length[has_b]]))
    ids = np.full((len(rows), max_length), specials.pad, np.int32)
    every = np.arange(len(rows))
    _place(ids, every, 1, tokens[: len(rows)], a_length)
    second = np.flatnonzero(has_b)
    _place(ids, second, a_length[second] + 2, tokens[len(rows) :], b_length[second])
    ids[:, 0] = specials.cls
    ids[every, a_length + 1] = specials.sep
    ids[every, length - 1] = specials.sep
    columns = np.arange(max_length)
    attention = columns < length[:, None]
    types = attention & (columns > a_length[:, None] + 1)
    return {"input_ids": ids, "token_type_ids": types.astype(np.int32), "attention_mask": attention.astype(np.int32)}


def array_shapes(
    rows: int, max_length: int, max_predictions: int, *, sentence: bool
) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return the shape and dtype of every array in a batch of `pipeline.Batches`, by name.

    rows, max_length, max_predictions: the sizes B, L and P.
    sentence: whether to add `sentence_label` (B,), 1 for a random next sentence (NSP) or a swapped pair (SOP).

    Two arrays are weights, 1 or 0. `masked_weights` (B,P) is 0 for unused predictions. `row_weight` (B,) is 0 for rows
    that pad the last held-out batch.
    """
    tokens, slots = (rows, max_length), (rows, max_predictions)
    shapes = {name: (tokens, "int32") for name in ("input_ids", "token_type_ids", "attention_mask")}
    shapes |= {name: (slots, "int32") for name in ("masked_positions", "masked_ids")}
    shapes |= {"masked_weights": (slots, "float32"), "row_weight": ((rows,), "float32")}
    return shapes | ({"sentence_label": ((rows,), "int32")} if sentence else {})


def _place(
    ids: np.ndarray, rows: np.ndarray, columns: np.ndarray | int, tokens: np.ndarray, lengths: np.ndarray
) -> None:
    """For each i, write the first `lengths[i]` elements of `tokens[i]` to `ids[rows[i]]`, from `columns[i]` on."""
    inside = np.arange(tokens.shape[1]) < lengths[:, None]
    row, column = np.nonzero(inside)
    offset = np.broadcast_to(columns, rows.shape)
    ids[rows[row], offset[row] + column] = tokens[inside]
