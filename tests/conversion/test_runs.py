"""A run of a few steps, taken out of its directory."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
import tiny
from arrays import flatten
from flax import linen as nn
from messages import mentions
from safetensors.numpy import load_file

import bertzoo
from bertzoo.cli.main import main
from bertzoo.core import config
from bertzoo.heads import parameter_shapes
from bertzoo.runs import load_model
from bertzoo.runs.configs import Pretrain
from bertzoo.train.state import boxed_shapes, named

pytestmark = pytest.mark.usefixtures("one_device")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    config = tiny.write_config(folder, tiny.write_text(folder / "text.txt"), stages=1)
    changes = ["--stages.0.steps=4", "--run.evaluate_every=1000", "--model.heads=2", "--model.vocab_size=280"]
    assert main(["pretrain", str(config), f"--run_dir={folder / 'run'}", *changes]) == 0
    return folder / "run"


def test_a_run_and_its_checkpoints_can_be_loaded(run: Path) -> None:
    model, params, tokenizer = bertzoo.load(run)
    trained = load_model.load_run(run)
    expected, found = flatten(trained.params), flatten(params)
    assert expected.keys() == found.keys()
    assert all(np.array_equal(expected[name], found[name]) for name in expected)
    first, last = (bertzoo.load(run / "checkpoints" / str(step)).params for step in (2, 4))
    assert np.array_equal(flatten(last)["pooler/kernel"], found["pooler/kernel"])
    assert not np.array_equal(flatten(first)["pooler/kernel"], found["pooler/kernel"])
    ids = tokenizer.encode_batch(["a text"])[0][None]
    output = jax.jit(model.apply)({"params": params}, ids, 0 * ids, 0 * ids + 1, ids[:, :1] * 0)
    assert output.masked_logits.shape == (1, 1, 280) and output.sentence_logits.shape == (1, 2)


def test_a_run_to_hugging_face_and_back(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["convert", str(run), str(tmp_path / "hf"), "--to=huggingface"]) == 2
    said = capsys.readouterr().err
    assert mentions(said, "--head=masked")
    assert main(["convert", str(run), str(tmp_path / "hf"), "--to=huggingface", "--head=masked"]) == 0
    assert capsys.readouterr().err.splitlines() == ["left out: sentence_head/bias", "left out: sentence_head/kernel"]
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["architectures"] == ["SqueezeBertForMaskedLM"] and config["q_groups"] == 2
    # Fewer entries than rows: filled up, so that the vocabulary fits the table.
    words = (tmp_path / "hf" / "vocab.txt").read_text().splitlines()
    assert len(words) == len(set(words)) == 280 and words[-1].startswith("[unused")
    assert load_file(tmp_path / "hf" / "model.safetensors")["transformer.pooler.dense.weight"].shape == (16, 16)

    trained, (_, params, tokenizer) = load_model.load_run(run), bertzoo.load(tmp_path / "hf")
    expected, found = flatten(trained.params), flatten(params)
    assert expected.keys() - found.keys() == {"sentence_head/bias", "sentence_head/kernel"}
    assert all(np.array_equal(expected[name], found[name]) for name in found)
    text = "Lorem [MASK] ipsum, Ärgernis 123."
    np.testing.assert_array_equal(tokenizer.encode_batch([text])[0], trained.tokenizer.encode_batch([text])[0])


@pytest.fixture(scope="module")
def replaced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of replaced token detection, its generator of another width."""
    folder = tmp_path_factory.mktemp("replaced")
    config = tiny.write_config(folder, tiny.write_text(folder / "text.txt"), stages=1)
    text = config.read_text().split("[objective]")
    model = """
[model]
kind = "electra"
vocab_size = 256
embedding_size = 12
hidden_size = 16
layers = 1
heads = 2
feed_forward_size = 32
max_positions = 48
"""
    objective = '[objective]\nkind = "replaced"\ngenerator_width = 0.5\n[data.packing]\nkind = "electra"\n'
    config.write_text(model + objective + text[1].replace('sentence = "sop"', ""))
    assert main(["pretrain", str(config), f"--run_dir={folder / 'run'}", "--stages.0.steps=1"]) == 0
    return folder / "run"


@pytest.mark.slow
def test_discriminator_and_generator(replaced: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for name, options in (("discriminator", []), ("generator", ["--head=masked"])):
        capsys.readouterr()
        assert main(["convert", str(replaced), str(tmp_path / name), "--to=huggingface", *options]) == 0
        said = capsys.readouterr().err
        assert ("left out: the generator (--head=masked" in said) == (not options)
        assert ("left out: replaced_head/dense/kernel\n" in said) == bool(options)
    trained = load_model.load_run(replaced)
    ids = trained.tokenizer.encode_batch(["a text of words"])[0][None]
    places = np.array([[1, 2]])
    batch = {"input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": 0 * ids + 1, "masked_positions": places}
    inputs = [batch[name] for name in ("input_ids", "token_type_ids", "attention_mask")]
    model, params, _ = bertzoo.load(tmp_path / "discriminator")
    logits = jax.jit(model.apply)({"params": params}, *inputs).logits
    expected = jax.jit(trained.objective.replaced_logits)(trained.params, batch)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-6)
    model, params, _ = bertzoo.load(tmp_path / "generator")
    logits = jax.jit(model.apply)({"params": params}, *inputs, places).masked_logits
    expected = jax.jit(trained.objective.masked_logits)(trained.params, batch)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-6)
    made = [json.loads((tmp_path / n / "config.json").read_text()) for n in ("discriminator", "generator")]
    assert [c["architectures"][0] for c in made] == ["ElectraForPreTraining", "ElectraForMaskedLM"]
    assert [c["hidden_size"] for c in made] == [16, 8] and made[1]["embedding_size"] == 12


@pytest.mark.parametrize("sentence", ["none", "sop"])
def test_a_runs_head_has_the_parameters_of_its_objective(sentence: str, tmp_path: Path) -> None:
    """A pooler is among them where a sentence task trains it."""
    recipe = config.load(
        Pretrain, [tiny.write_config(tmp_path, "text.txt", stages=1)], [("objective.sentence", sentence)]
    )
    params = boxed_shapes(recipe.objective.build(recipe.model, recipe.compute))
    shapes = {name: leaf.shape for name, leaf in named(nn.meta.unbox(params)).items()}
    assert parameter_shapes(recipe.model, load_model.head_of(recipe)) == shapes
    assert ("pooler/kernel" in shapes) == (sentence == "sop")
