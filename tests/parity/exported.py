"""Helpers of export tests: models of the zoo with their training graphs, and a classifier's directory."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from zoo import TORCH_CASES, pretrained

from bertzoo.cli.main import main
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.data.tokenizers import tokenizer as tokenizers
from bertzoo.data.tokenizers.wordpiece import WordPiece
from bertzoo.export.check import verify
from bertzoo.export.graph.reference import TrainingGraph, training_graph
from bertzoo.heads import SequenceClassification
from bertzoo.models import Bert
from bertzoo.runs import load_model
from bertzoo.runs.runner import Runner


def both(name: str) -> tuple[Pretrained, TrainingGraph]:
    """A case of the zoo, with as few layers as possible, and its training graph."""
    model, head = TORCH_CASES[name]
    fields = {field.name for field in dataclasses.fields(model)}
    if "layers" in fields and isinstance(model.feed_forward_size, int):
        model = dataclasses.replace(model, layers=2 if name.startswith(("albert", "modernbert")) else 1)
    source = pretrained(model, head)
    return source, training_graph(source)


def same(run: Runner, plain: TrainingGraph, lengths: Sequence[int]) -> None:
    """Every output of every row is JAX's to 1e-5 of its largest value."""
    with run:
        measured = verify.verify_outputs(run, plain, None, lengths, "fp32")
    assert len(measured) == len(lengths)
    for signature in measured.values():
        for output in signature["outputs"].values():
            assert output["max_error"] <= 1e-5 * output["largest"], signature


def classifier(folder: Path) -> Path:
    """A classifier's directory, with a tokenizer that knows the sentences of proofs."""
    tokenizer = tokenizers.build(WordPiece(vocab_size=120), lambda: iter(verify.TEXT * 20))
    sizes = {"hidden_size": 16, "layers": 2, "heads": 2, "feed_forward_size": 32, "max_positions": 32}
    model = Bert(vocab_size=tokenizer.vocab_size, **sizes)
    made = pretrained(model, SequenceClassification(labels=("no", "yes")))
    folder.mkdir(exist_ok=True)
    load_model.write_model(dataclasses.replace(made, tokenizer=tokenizer), folder)
    return folder


def convert(source: Path, file: Path, to: str, *options: str) -> int:
    return main(["convert", str(source), str(file), f"--to={to}", *options])
