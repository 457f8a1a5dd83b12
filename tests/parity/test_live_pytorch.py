# pyright: reportMissingImports=false
"""The exported PyTorch module equals the model, part by part, in outputs and gradients."""

import dataclasses
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from arrays import assert_close, flatten
from comparing import needs, tree
from messages import mentioning

needs("torch")
import torch
from zoo import TORCH_CASES, inputs, pretrained

from bertzoo.conversion import pytorch
from bertzoo.models import Compute

HEADS = ("logits", "masked_logits", "sentence_logits", "start_logits", "end_logits", "null_logits")


def loader(directory: Path) -> Any:
    """The module file that the directory itself brings."""
    spec = importlib.util.spec_from_file_location("exported", directory / "modeling_bertzoo.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def heads_of(output: Any) -> dict[str, Any]:
    """A model's outputs by the names that PyTorch's have."""
    found = {key: getattr(output, key, None) for key in HEADS}
    if isinstance(found["logits"], dict):
        found |= {f"{name}_logits": logits for name, logits in found.pop("logits").items()}
    return {key: head for key, head in found.items() if head is not None}


@pytest.mark.parametrize("name", TORCH_CASES)
def test_outputs_and_gradients_agree(name: str, tmp_path: Path) -> None:
    source = pretrained(*TORCH_CASES[name])
    pytorch.write_pytorch(source, tmp_path)
    theirs = loader(tmp_path).load(tmp_path)
    assert sorted(theirs.state_dict()) == sorted(path.replace("/", ".") for path in source.params)
    found = theirs(*(torch.tensor(array).long() for array in inputs()))
    found |= {"logits": found["embedding"]} if "embedding" in found else {}
    ids, types, mask = inputs()
    positions = (np.tile(np.arange(11), (3, 1)),) if source.head.kind == "masked" else ()
    module = source.head.build(source.model, Compute())

    @jax.jit
    def ours(params):
        output = module.apply({"params": params}, ids, types, mask, *positions)
        return sum((head**2).mean() for head in heads_of(output).values()) + output.pooled.mean(), output

    (_, output), gradients = jax.value_and_grad(ours, has_aux=True)(tree(source.params))
    heads = heads_of(output)
    assert set(heads) == {key for key in found if key.endswith("logits")}
    (sum((found[key] ** 2).mean() for key in heads) + found["pooled"].mean()).backward()
    for key in ("hidden_states", "attentions"):
        assert len(getattr(output, key)) == len(found[key])
        for index, (mine, other) in enumerate(zip(getattr(output, key), found[key], strict=True)):
            assert_close(mine, other.detach(), f"{key} {index}")
    for key, mine in [*heads.items(), ("pooled", output.pooled)]:
        assert_close(mine, found[key].detach(), key)
    largest = max(float(p.grad.abs().max()) for p in theirs.parameters() if p.grad is not None)
    for path, parameter in theirs.named_parameters():
        mine = flatten(gradients)[path.replace(".", "/")]
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        assert np.abs(np.asarray(mine) - gradient.numpy()).max() <= 1e-4 * largest, path


def test_damage_is_named(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    pytorch.write_pytorch(pretrained(*TORCH_CASES["bert"]), tmp_path)
    module, file = loader(tmp_path), tmp_path / "model.safetensors"
    tensors = load_file(file)
    save_file({**tensors, "more": torch.zeros(1)}, file)
    with pytest.raises(ValueError, match=mentioning("model.safetensors", " more")):
        module.load(tmp_path)
    tensors.pop("embedding.norm.bias")
    save_file(tensors, file)
    with pytest.raises(ValueError, match=mentioning("model.safetensors", "embedding.norm.bias")):
        module.load(tmp_path)


ALONE = """
import copy, pickle, sys
for name in ("bertzoo", "jax", "flax", "transformers"):
    sys.modules[name] = None
sys.path.insert(0, sys.argv[1])
import torch
from modeling_bertzoo import load
model = load(sys.argv[1])
assert not model.training
ids = torch.tensor([[3, 4, 5, 6]])
plain = model(ids)["hidden_states"][-1]
given = model(ids, torch.zeros_like(ids), torch.ones_like(ids).bool())["hidden_states"][-1]
assert torch.equal(plain, given)
again = pickle.loads(pickle.dumps(copy.deepcopy(model)))
assert torch.equal(again(ids)["hidden_states"][-1], plain)
with torch.no_grad():
    for parameter in again.parameters():
        parameter.zero_()
assert torch.equal(model(ids)["hidden_states"][-1], plain)
assert not torch.equal(again(ids)["hidden_states"][-1], plain)
model.train()
torch.manual_seed(0)
assert not torch.equal(model(ids)["hidden_states"][-1], plain)
"""


@pytest.mark.parametrize("name", ["ib-bert", "bottleneck-mixed-grouped", "albert", "schubert"])
def test_it_runs_alone_is_copied_whole_and_drops_out_in_training(name: str, tmp_path: Path) -> None:
    model, head = TORCH_CASES[name]
    pytorch.write_pytorch(pretrained(dataclasses.replace(model, dropout=0.5, attention_dropout=0.5), head), tmp_path)
    found = subprocess.run([sys.executable, "-I", "-c", ALONE, str(tmp_path)], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr[-2000:]


def test_it_needs_nothing_of_this_package(tmp_path: Path) -> None:
    pytorch.write_pytorch(pretrained(*TORCH_CASES["bert"]), tmp_path)
    source = (tmp_path / "modeling_bertzoo.py").read_text()
    assert "import bertzoo" not in source and "from bertzoo" not in source and "transformers" not in source
    assert json.loads((tmp_path / "config.json").read_text())["architecture"]["part"] == "SentenceEncoder"
