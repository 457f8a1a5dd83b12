"""A model out of any directory -> a file for phones, proved, the JSON that says what it is, and what an app needs."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bertzoo.conversion import tensors, tokenizers
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core import config
from bertzoo.core.paths import model_name
from bertzoo.core.version import __version__
from bertzoo.export import card
from bertzoo.export.beside import companions
from bertzoo.export.check import golden, verify
from bertzoo.export.check.task_score import Quiz, scored
from bertzoo.export.formats import Target, Wanted, counted
from bertzoo.export.graph.heads import FirstEmbedding, MeanEmbedding
from bertzoo.export.graph.reference import Plain

_PATHS = ("path", "from")  # what of a model's source is one
POOLINGS = {"mean": MeanEmbedding(), "first": FirstEmbedding()}


def write(
    target: Target,
    pretrained: Pretrained,
    file: Path,
    wanted: Wanted,
    quiz: Quiz | None = None,
    memory: Callable[[Path, int, tuple[str, ...]], int] | None = None,
) -> dict[str, Any]:
    """Write a file and its companions: the JSON of what is known of it, which is returned, and where the model has a
    tokenizer a folder with its files and golden.json; raises ExportFailed where the file does not compute what the
    model does, or scores less. `quiz` is what both are scored on; `memory` measures the bytes that running a file takes
    at a length, by its inputs' names.
    """
    module, params = pretrained.module()
    plain = Plain(params=jax.tree.map(np.asarray, params), pooling=POOLINGS[wanted.pooling], model=module)
    lengths, tokenizer = wanted.lengths, pretrained.tokenizer
    made = target.make(pretrained, plain, wanted, file)
    with target.load(file, 1) as run:
        measured = verify.prove(run, plain, tokenizer, lengths, wanted.precision)
        scores, exam = (None, None) if quiz is None else scored(run, plain, quiz, lengths)
        if scores is not None:
            verify.check_scores(scores, wanted.precision)
        examples = None if tokenizer is None else golden.golden(run, plain, tokenizer, lengths)
    content = file.read_bytes()
    said = {
        "bertzoo": __version__,
        "format": target.name,
        "precision": wanted.precision,
        "parameters": pretrained.parameter_count,
        "layers": pretrained.model.layers,
        "bytes": len(content),
        **({} if memory is None else {"memory": memory(file, lengths[-1], plain.inputs)}),
        "sha256": hashlib.sha256(content).hexdigest(),
        "model": config.plain(pretrained.model),
        "head": config.plain(pretrained.head),
        **({"pooling": wanted.pooling} if pretrained.head.kind == "none" else {}),
        "source": _origin(pretrained),
        "inputs": {name: "int32" for name in plain.inputs},
        "sentences": "random ids" if tokenizer is None else list(verify.TEXT),
        **({} if "flops" in made else {"flops": counted(plain, lengths)}),
        **made,
        "limits": verify.LIMITS[wanted.precision]._asdict(),
        "signatures": measured,
        "scores": scores,
    }
    described, folder = (file.with_name(name) for name in companions(file))
    described.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    if tokenizer is not None:
        folder.mkdir()
        tokenizers.write_tokenizer(tokenizer, folder, pretrained.model)
        (folder / "README.md").write_text(card.card(file.name, said), encoding="utf-8")
        # `bertzoo phone` asks LiteRT's files alone.
        for name, rows in (("golden", examples), ("exam", exam if target.name == "litert" else None)):
            if rows is not None:
                (folder / f"{name}.json").write_text(json.dumps(rows) + "\n", encoding="utf-8")
    return said


def _origin(pretrained: Pretrained) -> dict[str, Any]:
    """Where a model comes from, without where that was on this machine, and the hash of its parameters."""
    said = {key: model_name(str(value)) if key in _PATHS else value for key, value in pretrained.source.items()}
    return said | {"parameters_sha256": tensors.digest(pretrained.params | pretrained.generator)}
