# pyright: reportMissingImports=false
"""The loss of any number of labels and its gradients equal those of transformers, live; run by `make test-all`."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from comparing import assert_close, assert_gradients_close, needs, tree

needs("torch", "transformers")

import reference
import torch
import transformers

from bertzoo.conversion import huggingface
from bertzoo.heads.labels import LabelledObjective

PROBLEM = "multi_label_classification"
SIZES = {"vocab_size": 40, "max_position_embeddings": 12, "hidden_size": 24, "num_hidden_layers": 2, "num_labels": 5}


SIZES |= {"num_attention_heads": 4, "intermediate_size": 40}


@pytest.mark.parametrize(("family", "more"), [("Bert", {}), ("SqueezeBert", {"embedding_size": 24})])
def test_the_loss_and_the_gradients_equal_those_of_transformers(family: str, more: dict, tmp_path: Path) -> None:
    config = getattr(transformers, f"{family}Config")(**SIZES, **more, problem_type=PROBLEM)
    theirs = getattr(transformers, f"{family}ForSequenceClassification")._from_config(config).eval()
    draw = np.random.default_rng(0)
    reference.randomise(theirs, draw)
    theirs.float().save_pretrained(tmp_path / "model")
    rows = {
        "input_ids": draw.integers(0, 40, (6, 12)).astype(np.int32),
        "token_type_ids": draw.integers(0, 2, (6, 12)).astype(np.int32),
        "attention_mask": (np.arange(12) < draw.integers(3, 13, (6, 1))).astype(np.int32),
    }
    labels = draw.integers(0, 2, (6, 5)).astype(np.int32)
    inputs = {name: torch.from_numpy(array).long() for name, array in rows.items()}
    output = theirs(**inputs, labels=torch.from_numpy(labels).float())
    output.loss.backward()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(parameter.grad)
    theirs.save_pretrained(tmp_path / "gradients")  # so that they get our names

    model = huggingface.read_huggingface(tmp_path / "model")
    module, _ = model.module()
    objective = LabelledObjective(model=module, problem=model.head.problem_type)
    batch = {**rows, "label": labels, "row_weight": np.ones(6, np.float32)}

    @jax.jit
    def loss(params):
        return objective(params, None, batch, None)[0]["task"] / objective.weights(batch)["task"]

    value, gradients = jax.value_and_grad(loss)(tree(model.params))
    assert_close(value, output.loss.detach(), "loss")
    assert_gradients_close(gradients, huggingface.read_huggingface(tmp_path / "gradients").params)

    (tmp_path / "ours").mkdir()
    huggingface.write_huggingface(model, tmp_path / "ours")
    document = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert document["problem_type"] == PROBLEM
