# pyright: reportMissingImports=false
"""Checkpoints that TensorFlow writes in the official layouts, beside transformers on their weights; `make test-all`."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from comparing import assert_close, needs
from messages import mentions

needs("tensorflow", "torch", "transformers")

import reference
import tensorflow
import tensorflow_layouts as layouts
import torch
import transformers
from test_tensorflow_names import BERT, CASES, CONVBERT, ELECTRA, MOBILEBERT, TINY, assert_same

import bertzoo
from bertzoo.cli.main import main
from bertzoo.conversion import tensorflow1
from bertzoo.core.errors import UserError
from bertzoo.runs import load_model

v1 = tensorflow.compat.v1


def save(
    folder: Path, found: Mapping[str, np.ndarray], config: Any = None, version: int = v1.train.SaverDef.V2
) -> Path:
    """Write the official code's files: a checkpoint, `checkpoint`, and bert_config.json if it has one."""
    folder.mkdir(exist_ok=True)
    with v1.Graph().as_default(), v1.Session() as session:
        made = [v1.get_variable(name, initializer=array, use_resource=False) for name, array in found.items()]
        session.run(v1.global_variables_initializer())
        v1.train.Saver(made, write_version=version).save(session, str(folder / "model.ckpt"), global_step=7)
    if config is not None:
        (folder / "bert_config.json").write_text(json.dumps(config))
    return folder


def state(found: Mapping[str, np.ndarray], kind: str, scope: str) -> dict[str, torch.Tensor]:
    """The variables under `scope` as transformers' own loading of TensorFlow's checkpoints named and turned them."""
    named = {}
    for name, array in found.items():
        if name.endswith(("adam_m", "adam_v")) or name == "global_step":
            continue
        if name.endswith("depthwise_kernel"):
            array = array.transpose(1, 2, 0)
        elif name.endswith("pointwise_kernel"):
            array = array.transpose(2, 1, 0)
        elif name.endswith("conv_attn_key/bias"):
            array = array[:, None]
        elif name.endswith(("kernel", "extra_output_weights")) and "g_dense" not in name:
            array = array.T
        name = name.replace("generator_predictions/output_bias", "generator_lm_head/bias")
        name = name.replace("extra_output_weights", "dense/weight").replace("dense_1", "dense_prediction")
        name = re.sub(r"_embeddings$", "_embeddings/weight", name).replace("FakeLayerNorm", "LayerNorm")
        name = re.sub(r"ffn_layer_(\d+)", r"ffn/\1", re.sub(r"layer_(\d+)", r"layer/\1", name, count=1))
        name = re.sub(r"conv_attn_key/(depthwise|pointwise)_kernel", r"conv_attn_key/\1/weight", name)
        for before, after in (
            ("key", "key_conv_attn_layer"),
            ("kernel", "conv_kernel_layer"),
            ("point", "conv_out_layer"),
        ):
            name = name.replace(f"conv_attn_{before}/", f"{after}/")
        name = re.sub(r"/(kernel|gamma|output_weights)$", "/weight", name.replace("g_dense", "dense"))
        name = re.sub(r"/(beta|output_bias)$", "/bias", name)
        name = re.sub(f"^({scope}|electra)/", f"{kind}/", name).replace("/", ".")
        named[name] = torch.tensor(array)
    return named


def load_theirs(name: str, settings: Mapping[str, Any], tensors: dict[str, torch.Tensor]) -> Any:
    """The class of theirs with these tensors, in float64."""
    family = name.split("For")[0].removesuffix("Model")
    config = getattr(transformers, f"{family}Config")(**settings)
    model = getattr(transformers, name)._from_config(config, attn_implementation="eager")
    loaded = model.load_state_dict(tensors, strict=False)
    assert not loaded.unexpected_keys, loaded
    assert all(re.search(r"decoder\.(weight|bias)$|lm_head\.weight$", key) for key in loaded.missing_keys), loaded
    model.tie_weights()
    return model.double().eval()


def test_a_checkpoint_of_one_file(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    listed, config, _ = CASES["bert"]
    found = layouts.values(listed)
    path = save(tmp_path / "tf", found, config, v1.train.SaverDef.V1) / "model.ckpt-7"
    assert path.is_file() and not list(path.parent.glob("*.index"))
    assert_same(load_model.read_model(path).params, layouts.expected(listed, found))
    for size in (path.stat().st_size // 2, 0):
        os.truncate(path, size)
        assert main(["convert", str(path), str(tmp_path / "out"), "--to=bertzoo"]) == 2
        assert mentions(capsys.readouterr().err, path)


def compare(path: Path, theirs: Any, logits: dict[str, str], seed: int) -> None:
    """Hidden states and logits, (name of ours -> of theirs), of a padded batch."""
    random = np.random.default_rng(seed)
    batch = reference.random_batch(random, 20, lengths=(7, 9, 4))
    ids, rest = reference.inputs(batch)
    with torch.no_grad():
        expected = theirs(ids, **rest, output_hidden_states=True)
    model, params, _ = bertzoo.load(path)
    rows, length = batch["input_ids"].shape
    places = np.tile(np.arange(length), (rows, 1))
    given = [batch[name] for name in ("input_ids", "token_type_ids", "attention_mask")]
    more = [places] if set(logits) & {"masked_logits", "sentence_logits"} else []
    found = jax.jit(model.apply)({"params": params}, *given, *more)
    hidden = torch.stack(tuple(expected.hidden_states))
    assert_close(np.stack(found.hidden_states)[-len(hidden) :], hidden, "hidden states")
    for ours, name in logits.items():
        assert_close(np.array(getattr(found, ours)), expected[name], ours)


PRETRAINING = {"masked_logits": "prediction_logits", "sentence_logits": "seq_relationship_logits"}
DIRECT = {"bert": "Bert", "mobilebert": "MobileBert", "tiny": "MobileBert"}
THEIR_SETTINGS = {"bert": BERT | {"hidden_act": "gelu_new"}, "mobilebert": MOBILEBERT, "tiny": MOBILEBERT | TINY}


@pytest.mark.parametrize("case", DIRECT)
def test_beside_transformers(case: str, tmp_path: Path) -> None:
    listed, config, _ = CASES[case]
    found = layouts.values(listed)
    save(tmp_path, found, config)
    kind = DIRECT[case].lower()
    theirs = load_theirs(f"{DIRECT[case]}ForPreTraining", THEIR_SETTINGS[case], state(found, kind, "bert"))
    compare(tmp_path, theirs, PRETRAINING, 1)
    assert main(["convert", str(tmp_path), str(tmp_path / "hf"), "--to=huggingface"]) == 0
    again = transformers.AutoModelForPreTraining.from_pretrained(tmp_path / "hf")
    assert type(again) is type(theirs)
    for name, tensor in again.state_dict().items():
        assert torch.equal(tensor.double(), theirs.state_dict()[name]), name


def sizes(c: dict[str, Any]) -> dict[str, Any]:
    """Hugging Face's attributes of a tower in the layouts."""
    own = {"vocab_size": c["vocab"], "embedding_size": c["embedding"], "hidden_size": c["hidden"]}
    own |= {"num_hidden_layers": c["layers"], "num_attention_heads": c["heads"], "intermediate_size": c["inner"]}
    own |= {"max_position_embeddings": c["positions"], "pad_token_id": 0}
    return own | ({"conv_kernel_size": c["window"], "num_groups": c["groups"]} if "window" in c else {})


def test_electra_beside_transformers(tmp_path: Path) -> None:
    small = ELECTRA | {"hidden": 64, "heads": 1, "inner": 16}
    first, second = list(layouts.discriminator(ELECTRA)), list(layouts.generator(small))
    found = layouts.values([*{v.name: v for v in (*first, *second)}.values()])
    save(tmp_path / "tf", found)
    assert main(["convert", str(tmp_path / "tf"), str(tmp_path / "generator"), "--to=bertzoo", "--head=masked"]) == 0
    parts = {
        "tf": ("ElectraForPreTraining", first, ELECTRA, "electra", {"logits": "logits"}),
        "generator": ("ElectraForMaskedLM", second, small, "generator", {"masked_logits": "logits"}),
    }
    for path, (name, listed, c, scope, logits) in parts.items():
        own = {v.name: found[v.name] for v in listed}
        theirs = load_theirs(name, sizes(c), state(own, "electra", scope))
        compare(tmp_path / path, theirs, logits, 2)


def test_convbert_beside_transformers(tmp_path: Path) -> None:
    listed = list(layouts.discriminator(CONVBERT))
    found = layouts.values(listed)
    save(tmp_path, found)
    trunk = {name: array for name, array in found.items() if name.startswith("electra/")}
    tensors = {name.removeprefix("convbert."): t for name, t in state(trunk, "convbert", "electra").items()}
    compare(tmp_path, load_theirs("ConvBertModel", sizes(CONVBERT), tensors), {}, 3)


@pytest.mark.parametrize("case", ["flipped", "short", "gone", "index"])
def test_damage_is_detected(case: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    listed, config, _ = CASES["bert"]
    folder = save(tmp_path / "tf", layouts.values(listed), config)
    data, index = folder / "model.ckpt-7.data-00000-of-00001", folder / "model.ckpt-7.index"
    raw = data.read_bytes()
    match case:
        case "flipped":
            data.write_bytes(bytes([raw[0] ^ 255]) + raw[1:])  # of a variable of the model: slots come after it
        case "short":
            data.write_bytes(raw[: len(raw) // 2])
        case "gone":
            data.unlink()
        case "index":
            index.write_bytes(index.read_bytes()[:20])
    assert main(["convert", str(tmp_path / "tf"), str(tmp_path / "out"), "--to=bertzoo"]) == 2
    said = capsys.readouterr().err
    assert mentions(said, folder / "model.ckpt-7") and said.count("\n") == 1, said
    assert [path.name for path in tmp_path.iterdir()] == ["tf"]


def test_a_parameter_that_is_not_finite_prints_an_error(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    listed, config, _ = CASES["bert"]
    found = layouts.values(listed)
    found["bert/pooler/dense/bias"][3] = np.nan
    save(tmp_path, found, config)
    assert main(["convert", str(tmp_path), str(tmp_path / "out"), "--to=bertzoo"]) == 2
    assert mentions(capsys.readouterr().err, tmp_path / "model.ckpt-7", "bert/pooler/dense/bias")


def test_other_types(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    listed, config, _ = CASES["bert"]
    found = layouts.values(listed)
    half = {name: array.astype(tensorflow.bfloat16.as_numpy_dtype) for name, array in found.items() if array.ndim}
    made = load_model.read_model(save(tmp_path / "half", half, config))
    rounded = {name: array.astype(np.float32) for name, array in half.items()}
    assert_same(made.params, layouts.expected(listed, rounded))
    # TensorFlow 2's own: objects, described in a string.
    tensorflow.train.Checkpoint(v=tensorflow.Variable(1.0)).write(str(tmp_path / "two"))
    assert main(["convert", str(tmp_path / "two"), str(tmp_path / "out"), "--to=bertzoo"]) == 2
    assert mentions(capsys.readouterr().err, tmp_path / "two", " BERT", "MobileBERT", "ELECTRA", "ConvBERT")


def test_variables_that_share_their_bytes_are_rejected(tmp_path: Path) -> None:
    """An index of some bytes could name one array many times; each copy would take memory."""
    folder = save(tmp_path / "source", {f"bert/{letter}": np.zeros((64, 64), np.float32) for letter in "ab"})
    (data,) = folder.glob("*.data-*")
    data.write_bytes(data.read_bytes()[: 64 * 64 * 4])
    with pytest.raises(UserError) as error:
        tensorflow1.read_variables(folder / "model.ckpt-7", lambda name: True)
    assert mentions(str(error.value), folder / "model.ckpt-7", "32,768", "16,384")
