"""A model out of any directory -> a LiteRT file, proved, the JSON that says what it is, and what an app needs."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bertzoo import __version__, config
from bertzoo.convert import tokenizers
from bertzoo.convert.pretrained import Pretrained
from bertzoo.errors import UserError
from bertzoo.export import golden, litert, proof, quantise, rewrites, tables
from bertzoo.export.beside import companions
from bertzoo.export.heads import FirstEmbedding, MeanEmbedding
from bertzoo.export.plain import Plain
from bertzoo.export.quantise import Precision
from bertzoo.export.read import read
from bertzoo.export.scored import Quiz, examination, scored

SHORTEST = 4  # tokens: [CLS], one of the text, [SEP], one of padding
POOLINGS = {"mean": MeanEmbedding(), "first": FirstEmbedding()}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """lengths: a signature each, shortest first. pooling: of a model without a head. optimise: rewrite the graph."""

    lengths: tuple[int, ...]
    precision: Precision = "fp32"
    pooling: str = "mean"
    optimise: bool = True


def lengths_of(model: Any, asked: Sequence[int]) -> tuple[int, ...]:
    """The lengths asked for in order, or where there are none 128 as far as the model reads; raises UserError."""
    if not asked:
        return (min(128, model.max_positions),)
    for length in asked:
        if length < SHORTEST:
            raise UserError(f"--lengths: {length} tokens hold no text; give at least {SHORTEST}")
        if length > model.max_positions:
            raise UserError(f"--lengths: {length} is beyond the {model.max_positions} positions of the model")
    return tuple(sorted(set(asked)))


def write(pretrained: Pretrained, file: Path, wanted: Wanted, quiz: Quiz | None = None) -> dict[str, Any]:
    """Write a file and its companions: the JSON of what is known of it, which is returned, and where the model has a
    tokenizer a folder with its files and golden.json; raises ExportFailed where the file does not compute what the
    model does. `quiz` is what both are scored on.
    """
    module, params = pretrained.module()
    plain = Plain(params=jax.tree.map(np.asarray, params), pooling=POOLINGS[wanted.pooling], model=module)
    graph = rewrites.optimised(read(module, plain.params, plain.pooling)) if wanted.optimise else plain
    content = quantise.quantised(litert.convert(graph, wanted.lengths), wanted.precision)
    measured = proof.prove(content, plain, pretrained.tokenizer, wanted.lengths, wanted.precision)
    said = {
        "bertzoo": __version__,
        "format": "litert",
        "precision": wanted.precision,
        "optimised": wanted.optimise,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "model": config.plain(pretrained.model),
        "head": config.plain(pretrained.head),
        **({"pooling": wanted.pooling} if pretrained.head.kind == "none" else {}),
        "source": pretrained.source,
        "ports": tables.ports(content),
        "sentences": "random ids" if pretrained.tokenizer is None else list(proof.TEXT),
        "operators": tables.operators(content),
        "limits": proof.LIMITS[wanted.precision]._asdict(),
        "signatures": measured,
        "scores": None if quiz is None else scored(content, plain, quiz, wanted.lengths),
    }
    file.write_bytes(content)
    described, folder = (file.with_name(name) for name in companions(file))
    described.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    if pretrained.tokenizer is not None:
        folder.mkdir()
        if quiz is not None and quiz.task.kind != "tokens":
            exam = examination(content, plain, quiz, wanted.lengths)
            (folder / "exam.json").write_text(json.dumps(exam) + "\n", encoding="utf-8")
        tokenizers.write(pretrained.tokenizer, folder, pretrained.model)
        examples = golden.golden(content, plain, pretrained.tokenizer, wanted.lengths)
        (folder / "golden.json").write_text(json.dumps(examples) + "\n", encoding="utf-8")
    return said
