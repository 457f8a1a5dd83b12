"""Directories of sentence-transformers as models with the head SentenceEmbedding; test_live_sentence.py has theirs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zoo

from bertzoo.conversion import heads, huggingface, sentence_modules
from bertzoo.heads import NoHead, SentenceEmbedding
from bertzoo.models import Bert
from bertzoo.runs import load_model

BERT = Bert(**zoo.SIZES, layers=1, heads=4, feed_forward_size=20)
HEAD = SentenceEmbedding(pooling="weighted_mean", projection=14, activation="tanh", sizes=(4, 8))


def write(folder: Path, head: Any, **source: Any) -> Path:
    folder.mkdir()
    made = zoo.pretrained(BERT, head)
    made.source.update(source)
    huggingface.write_huggingface(made, folder)
    return folder


def test_what_is_written_is_read(tmp_path: Path) -> None:
    notes = {"max_length": 9, "prompts": {"query": "q: "}, "default_prompt": "query"}
    folder = write(tmp_path / "out", HEAD, **notes)
    again, made = load_model.read_model(folder), zoo.pretrained(BERT, HEAD)
    assert again.head == HEAD and again.model == BERT and again.params.keys() == made.params.keys()
    for name, array in made.params.items():
        np.testing.assert_array_equal(again.params[name], array)
    assert again.source == notes | {"format": "huggingface", "path": str(folder)}
    (tmp_path / "own").mkdir()
    load_model.write_model(again, tmp_path / "own")
    source = load_model.read_model(tmp_path / "own").source
    assert {name: source[name] for name in notes} == notes


@pytest.mark.parametrize("mode", ["cls", "mean", "max", "weightedmean"])
def test_both_spellings_of_pooling(mode: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "out", SentenceEmbedding())
    path = folder / "1_Pooling" / "config.json"
    old = {flag: name == mode for flag, name in sentence_modules._FLAGS.items()}
    path.write_text(json.dumps({"word_embedding_dimension": BERT.hidden_size} | old))
    first = huggingface.read_huggingface(folder).head.pooling
    path.write_text(json.dumps({"embedding_dimension": BERT.hidden_size, "pooling_mode": mode, "include_prompt": True}))
    assert first == huggingface.read_huggingface(folder).head.pooling
    assert first.replace("_", "") == {"cls": "first"}.get(mode, mode)


def test_a_transformer_in_its_own_folder(tmp_path: Path) -> None:
    """As the first releases write it; the length is then in its folder, and the card is the whole directory's."""
    folder = write(tmp_path / "out", HEAD, max_length=7)
    (folder / "0_Transformer").mkdir()
    for name in ("config.json", "model.safetensors", "sentence_bert_config.json"):
        (folder / name).rename(folder / "0_Transformer" / name)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    again = load_model.read_model(folder)
    assert again.head == HEAD and again.source["max_length"] == 7 and again.source["path"] == str(folder)
    assert again.source["license"] == "mit"


def test_a_cut_vector_is_a_smaller_layer(tmp_path: Path) -> None:
    again = huggingface.read_huggingface(write(tmp_path / "out", SentenceEmbedding(size=6)))
    assert again.head == SentenceEmbedding(projection=6)
    np.testing.assert_array_equal(again.params["projection/kernel"], np.eye(24, 6))


def test_sizes_above_a_cut_are_left_out(tmp_path: Path) -> None:
    folder = write(tmp_path / "out", SentenceEmbedding(normalise=False, sizes=(4, 8)))
    path = folder / "config_sentence_transformers.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"truncate_dim": 6}))
    assert huggingface.read_huggingface(folder).head == SentenceEmbedding(normalise=False, size=6, sizes=(4,))


def test_the_pooler_is_kept_for_other_heads(tmp_path: Path) -> None:
    folder, bare = write(tmp_path / "out", SentenceEmbedding()), write(tmp_path / "bare", NoHead())
    (folder / "model.safetensors").write_bytes((bare / "model.safetensors").read_bytes())
    again = huggingface.read_huggingface(folder)
    assert again.head == SentenceEmbedding() and not [name for name in again.params if "pooler" in name]
    other, _ = heads.keep_head(again, "none")
    assert other.head == NoHead(pooler=True) and "pooler/kernel" in other.params
    assert "pooler/kernel" in again.unused


def test_files_that_are_copied_from_a_url() -> None:
    names = ["modules.json", "config.json", "model.safetensors", "pytorch_model.bin", "onnx/model.onnx"]
    names += ["1_Pooling/config.json", "2_Dense/config.json", "2_Dense/pytorch_model.bin", "2_Dense/a/b.json"]
    tree = dict.fromkeys(names, (1, ""))
    kept = {"modules.json", "config.json", "model.safetensors", "1_Pooling/config.json", "2_Dense/config.json"}
    assert load_model._select(tree, None).keys() == kept | {"2_Dense/pytorch_model.bin"}
    del tree["modules.json"]
    assert load_model._select(tree, None).keys() == {"config.json", "model.safetensors"}
