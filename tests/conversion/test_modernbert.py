"""ModernBERT's directories as they are published: attributes that transformers writes and that older versions wrote."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zoo
from messages import mentioning

from bertzoo.conversion import huggingface
from bertzoo.core.errors import UserError
from bertzoo.data.tokenizers.byte_bpe import ByteBpe
from bertzoo.heads import MaskedLanguageModel, SequenceClassification
from bertzoo.models import ModernBert

SIZES: dict[str, Any] = zoo.SIZES | zoo.LAYERS | {"layers": 5}
MODEL = ModernBert(**SIZES, window=4)
# What the configs of ModernBERT-base and of Ettin have beside the sizes.
PUBLISHED = {
    "attention_bias": False, "classifier_bias": False, "classifier_dropout": 0.0, "classifier_pooling": "mean",
    "causal_mask": False, "decoder_bias": True, "deterministic_flash_attn": False, "gradient_checkpointing": False,
    "initializer_cutoff_factor": 2.0, "layer_norm_eps": 1e-05, "mlp_bias": False, "norm_bias": False,
    "position_embedding_type": "sans_pos", "sparse_pred_ignore_index": -100, "sparse_prediction": False,
    "tie_word_embeddings": True, "torch_dtype": "float32", "transformers_version": "4.48.0", "unk_token_id": 1,
}  # fmt: skip
KINDS = ["sliding_attention" if i % 3 else "full_attention" for i in range(5)]
TURNS = {"full_attention": 160000.0, "sliding_attention": 10000.0}
NEWER = {
    "layer_types": KINDS,
    "rope_parameters": {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in TURNS.items()},
}


def saved(folder: Path, head: object, **changes: object) -> Path:
    huggingface.write_huggingface(zoo.pretrained(MODEL, head), folder)
    config = json.loads((folder / "config.json").read_text()) | changes
    if "layer_types" in config:
        for name in ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"):
            del config[name]
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("changes", [PUBLISHED, PUBLISHED | NEWER])
def test_published_configs_are_read(changes: dict, tmp_path: Path) -> None:
    made = zoo.pretrained(MODEL, MaskedLanguageModel())
    found = huggingface.read_huggingface(saved(tmp_path, made.head, **changes))
    assert found.model == MODEL and found.params.keys() == made.params.keys()
    assert all(np.array_equal(found.params[name], made.params[name]) for name in made.params)


@pytest.mark.parametrize(("theirs", "ours"), [("cls", "first"), ("mean", "mean")])
def test_a_classifiers_pooling_is_read_and_written(theirs: str, ours: str, tmp_path: Path) -> None:
    head = SequenceClassification(hidden="gelu", dropout=0.0, pooling=ours)
    found = huggingface.read_huggingface(saved(tmp_path, head))
    assert found.head == dataclasses.replace(head, pooler=True)
    assert json.loads((tmp_path / "config.json").read_text())["classifier_pooling"] == theirs


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"classifier_pooling": "max"}, "classifier_pooling"),
        ({"norm_bias": True}, "norm_bias"),
        ({"hidden_activation": "silu"}, "silu"),
        ({"layer_types": KINDS[::-1]}, "layer_types"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "yarn"),
        ({"local_attention": 0}, "local_attention"),
    ],
)
def test_what_the_model_cannot_compute_is_named(changes: dict, part: str, tmp_path: Path) -> None:
    head = SequenceClassification(hidden="gelu", dropout=0.0)
    with pytest.raises(UserError, match=mentioning(part)):
        huggingface.read_huggingface(saved(tmp_path, head, **changes))


def test_a_vocabulary_smaller_than_the_word_table_returns(tmp_path: Path) -> None:
    words = ByteBpe(vocab_size=300).train(lambda: iter(["The text is read", "and read again"] * 5))
    model = dataclasses.replace(MODEL, vocab_size=512)
    made = dataclasses.replace(zoo.pretrained(model, MaskedLanguageModel()), tokenizer=words)
    huggingface.write_huggingface(made, tmp_path)
    again = huggingface.read_huggingface(tmp_path)
    assert again.tokenizer is not None and again.tokenizer.vocab_size == words.vocab_size < again.model.vocab_size
    config = json.loads((tmp_path / "config.json").read_text())
    for entries, parts in (("300", ("tokenizer_entries", "'300'")), (5, (words.vocab_size, 5))):
        (tmp_path / "config.json").write_text(json.dumps(config | {"tokenizer_entries": entries}))
        with pytest.raises(UserError, match=mentioning(*parts)):
            huggingface.read_huggingface(tmp_path)
