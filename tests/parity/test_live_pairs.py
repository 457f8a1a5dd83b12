# pyright: reportMissingImports=false
"""Pairs read by models without segments, as transformers reads them, live; run by `make test-all`."""

from pathlib import Path

import numpy as np
from comparing import needs

needs("torch", "transformers")

import reference
import torch
import transformers

from bertzoo.finetuning.evaluate import load_task_model
from bertzoo.tasks.task import Example

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "##d", "##e", "##f", "the", "model", ".", ","]
PAIRS = [("the model", "a bd."), ("a", "the model, the model cdef"), ("bde cdf", "a"), ("the", "zzz model")]
SIZES = {"vocab_size": len(WORDS), "max_position_embeddings": 24, "num_labels": 3}


def test_pairs_equal_those_of_transformers(tmp_path: Path) -> None:
    config = transformers.DistilBertConfig(**SIZES, dim=24, n_layers=2, n_heads=4, hidden_dim=40)
    theirs = transformers.DistilBertForSequenceClassification._from_config(config).eval()
    reference.randomise(theirs, np.random.default_rng(0))
    theirs.float().save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    tokenizer = transformers.DistilBertTokenizer.from_pretrained(tmp_path)
    encoded = tokenizer([a for a, _ in PAIRS], [b for _, b in PAIRS], padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = theirs(input_ids=encoded["input_ids"], attention_mask=encoded["attention_mask"]).logits
    examples = [Example(str(i), a, b) for i, (a, b) in enumerate(PAIRS)]
    ours = load_task_model(tmp_path).predict(examples, 3).probabilities
    np.testing.assert_allclose(ours, logits.softmax(-1).numpy(), rtol=0, atol=1e-5)
    assert np.ptp(ours[:, 0]) > 0.01
