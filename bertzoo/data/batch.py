"""Rows of a plan as the arrays of a batch, before masking: [CLS] A [SEP] or [CLS] A [SEP] B [SEP]."""

import numpy as np

from bertzoo.data.corpus.corpus import Corpus, Split


def assemble(corpus: Corpus, split: Split, rows: np.ndarray, max_length: int) -> dict[str, np.ndarray]:
    """`input_ids`, `token_type_ids`, `attention_mask` (B, L) int32 of rows of dtype ROW; raises CorpusError on a
    damaged shard.
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
    _place(ids, np.arange(len(rows)), 1, tokens[: len(rows)], a_length)
    second = np.flatnonzero(has_b)
    _place(ids, second, a_length[second] + 2, tokens[len(rows) :], b_length[second])
    every = np.arange(len(rows))
    ids[:, 0] = specials.cls
    ids[every, a_length + 1] = specials.sep
    ids[every, length - 1] = specials.sep
    columns = np.arange(max_length)
    attention = columns < length[:, None]
    types = attention & (columns > a_length[:, None] + 1)
    return {"input_ids": ids, "token_type_ids": types.astype(np.int32), "attention_mask": attention.astype(np.int32)}


def shapes(
    rows: int, max_length: int, max_predictions: int, *, sentence: bool
) -> dict[str, tuple[tuple[int, ...], str]]:
    """Name -> (shape, dtype) of a masked batch, `sentence_label` too where its packing makes labels.

    What `pipeline.Batches` makes of a corpus has these, whatever is in the corpus.
    """
    tokens, slots = (rows, max_length), (rows, max_predictions)
    found = {name: (tokens, "int32") for name in ("input_ids", "token_type_ids", "attention_mask")}
    found |= {name: (slots, "int32") for name in ("masked_positions", "masked_ids")}
    found |= {"masked_weights": (slots, "float32"), "row_weight": ((rows,), "float32")}
    return found | ({"sentence_label": ((rows,), "int32")} if sentence else {})


def _place(
    ids: np.ndarray, rows: np.ndarray, columns: np.ndarray | int, tokens: np.ndarray, lengths: np.ndarray
) -> None:
    inside = np.arange(tokens.shape[1]) < lengths[:, None]
    row, column = np.nonzero(inside)
    offset = np.broadcast_to(columns, rows.shape)
    ids[rows[row], offset[row] + column] = tokens[inside]
