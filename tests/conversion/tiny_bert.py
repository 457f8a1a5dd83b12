"""A Hugging Face directory made by hand, as transformers would write it, with no table of the package's."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from bertzoo.cli import main as cli

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "model", "of", "##s", ".", *"bcdefghijk"]
CONFIG: dict[str, Any] = {
    "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu",
    "hidden_size": 24, "intermediate_size": 20, "max_position_embeddings": 12, "model_type": "bert",
    "num_attention_heads": 3, "num_hidden_layers": 1, "pad_token_id": 0, "transformers_version": "4.8.2",
    "vocab_size": 24,
}  # fmt: skip


def tensors() -> dict[str, np.ndarray]:
    """`BertForMaskedLM` of the config above."""
    layer = "bert.encoder.layer.0"
    shapes: dict[str, tuple[int, ...]] = {
        "bert.embeddings.word_embeddings.weight": (24, 24),
        "bert.embeddings.position_embeddings.weight": (12, 24),
        "bert.embeddings.token_type_embeddings.weight": (2, 24),
        f"{layer}.intermediate.dense.weight": (20, 24),
        f"{layer}.intermediate.dense.bias": (20,),
        f"{layer}.output.dense.weight": (24, 20),
        "cls.predictions.transform.dense.weight": (24, 24),
        "cls.predictions.bias": (24,),
    }
    for name in ("self.query", "self.key", "self.value", "output.dense"):
        shapes |= {f"{layer}.attention.{name}.weight": (24, 24), f"{layer}.attention.{name}.bias": (24,)}
    for name in ("bert.embeddings", f"{layer}.attention.output", f"{layer}.output", "cls.predictions.transform"):
        shapes |= {f"{name}.LayerNorm.weight": (24,), f"{name}.LayerNorm.bias": (24,)}
    shapes |= {f"{layer}.output.dense.bias": (24,), "cls.predictions.transform.dense.bias": (24,)}
    random = np.random.default_rng(0)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def convert(source: Path, destination: Path | str, *options: str, to: str = "bertzoo") -> int:
    """The exit code of `bertzoo convert`."""
    return cli.main(["convert", str(source), str(destination), f"--to={to}", *options])


def write(directory: Path, found: dict[str, np.ndarray] | None = None, **changes: Any) -> Path:
    """The directory; a changed attribute that is None is left out."""
    directory.mkdir()
    config = {name: value for name, value in (CONFIG | changes).items() if value is not None}
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    save_file(tensors() if found is None else found, directory / "model.safetensors", metadata={"format": "pt"})
    return directory
