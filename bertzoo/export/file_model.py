"""Open an exported file as a model that predicts and scores in its runtime, with the tokenizer beside it."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.conversion import tokenizers
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core import config
from bertzoo.core.errors import UserError
from bertzoo.core.paths import is_url, on_disk
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.export.check.golden import pad_row
from bertzoo.export.companions import companions, read_metadata
from bertzoo.export.formats import Target, targets
from bertzoo.export.options import SUFFIXES
from bertzoo.finetuning import evaluate, saved_model
from bertzoo.finetuning.embed import EmbeddingModel
from bertzoo.finetuning.evaluate import TaskModel
from bertzoo.runs import blanks, load_model
from bertzoo.runs.blanks import BlankFiller
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.runs.runner import Inputs, RowRunner
from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.rows import MULTIPLE


def is_exported(name: Path | str) -> bool:
    """Return whether a name has an exported file's suffix and is not a directory."""
    return Path(name).suffix in SUFFIXES.values() and not Path(name).is_dir()


def is_pretraining(name: Path | str) -> bool:
    """Return whether a name is a pretraining run's directory, or a URL that lacks the suffix of an exported file."""
    if is_exported(name) or saved_model.is_finetuned(name):
        return False
    return is_url(str(name)) or RunDirectory(name).config.is_file()


def open_model(
    path: Path | str, seed: int | None = None, batch_size: int | None = None, python: Path | None = None
) -> TaskModel | BlankFiller:
    """Load an exported file, a fine-tuning run or a model directory as a model that can predict.

    seed: the seed whose model to load from a fine-tuning run; None loads the best seed's.
    batch_size: rows that the caller will predict at once, 1 or more; must be None for an exported file. This function
    only checks it.
    python: a Python that has executorch, for a .pte file.

    Raises UserError for a wrong argument, a missing file, or a model that has neither a masked-language-model head nor
    a task's head.
    """
    kind, foreign = "a directory", {"python": python}
    if is_exported(path):
        kind, foreign = "an exported file", {"seed": seed, "batch_size": batch_size}
    for name, value in foreign.items():
        if value is not None:
            raise UserError(f"--{name}={value} does not apply to {path}, which is {kind}. Leave --{name} out.")
    if batch_size is not None and batch_size < 1:
        raise UserError(f"--batch_size={batch_size} is less than 1. Use 1 or more.")
    path = on_disk(path, "the model", "Copy it to this machine and name the copy.")
    if is_exported(path):
        return load_file(path, python)
    model = saved_model.load_saved(path, seed)
    return blanks.model_filler(model.pretrained) or evaluate.task_model(model)


def open_task_model(
    path: Path | str, seed: int | None = None, batch_size: int | None = None, python: Path | None = None
) -> TaskModel:
    """Return a model for a task, as `open_model` does; raises UserError also for a masked-language-model head."""
    model = open_model(path, seed, batch_size, python)
    if isinstance(model, BlankFiller):
        raise UserError(
            f"{path} has a masked-language-model head, so it cannot be scored on a task. Fine-tune the model, or name "
            "its pretraining run to measure the held-out loss."
        )
    return model


def open_embedding_model(
    path: Path | str, seed: int | None = None, batch_size: int | None = None, python: Path | None = None
) -> EmbeddingModel:
    """Open a model or an exported file, as `open_model` does; raises UserError for another head."""
    model = open_model(path, seed, batch_size, python)
    if isinstance(model, BlankFiller) or model.kind != "embedding":
        raise UserError(
            f"{path} has no head for embeddings. Train one with `bertzoo finetune --head=embedding`, or convert the "
            "model with --head=none --pooling=mean; without such training its vectors are poor."
        )
    return EmbeddingModel(**vars(model))


def load_file(path: Path, python: Path | None = None) -> TaskModel | BlankFiller:
    """Load an exported file, as a BlankFiller if it predicts masked tokens, else as a model for its task.

    Raises UserError if the file or a companion is missing or damaged, or the runtime is not installed.
    """
    if not path.is_file():
        raise UserError(f"{path} does not exist. Write it with `bertzoo convert`.")
    description, tokenizer = _read_description(path)
    target, tables = _read_target(path, description, python or Path(sys.executable))
    pretrained = Pretrained(
        model=tables.model,
        head=tables.head,
        params={},
        tokenizer=tokenizer,
        origin=str(path),
        source=description["source"],
    )
    if "lengths" in description:  # a range: its ends, and the multiples of MULTIPLE between them
        shortest, longest = (description["lengths"][name] for name in ("shortest", "longest"))
        between = range(-(-shortest // MULTIPLE) * MULTIPLE, longest, MULTIPLE)
        lengths = tuple(sorted({shortest, *between, longest}))
    else:
        lengths = tuple(sorted(signature["length"] for signature in description["signatures"].values()))
    model = None
    if "masked_positions" not in tables.head.inputs:  # raises before the file loads
        model = evaluate.task_model(saved_model.with_options(path, pretrained))
    target.check_runtime()
    file = RowRunner(target.load(path), tuple(description["inputs"]), lengths, tables.head.convert_outputs)
    if model is None:
        fill = partial(_masked_logits, file, tokenizer)
        return BlankFiller(path=path, tokenizer=tokenizer, longest=lengths[-1], masked_logits=fill)
    model = replace(model.fit(lengths[-1]), file=file)
    task = GLUE.get(model.task_name)
    # The file has class names for apps; predictions have GLUE's labels, like the model's.
    named = task is not None and task.class_names == model.labels
    return model.task().adapt(model) if named else model


def _masked_logits(run: RowRunner, tokenizer: Tokenizer, row: Inputs) -> np.ndarray:
    """Return the logits (1,P,V) at a row's P masked positions, one run for each."""
    (ids,), (types,) = row["input_ids"], row["token_type_ids"]
    length = next(length for length in run.lengths if length >= len(ids))
    padded = {name: array[None] for name, array in pad_row(row, tokenizer, ids, types, length).items()}
    positions = row["masked_positions"][0].tolist()
    rows = [padded | {"masked_positions": np.array([[position]], np.int32)} for position in positions]
    return np.concatenate([run(row)["masked_logits"] for row in rows], axis=1)


def _read_description(path: Path) -> tuple[dict[str, Any], Tokenizer]:
    """Read the metadata JSON and the tokenizer of an exported file; raises UserError if either is missing."""
    document, folder = (path.with_name(name) for name in companions(path))
    copy = "Copy it from where `bertzoo convert` wrote the file, or convert the model again."
    if (description := read_metadata(path, "format", "model", "head", "source", "inputs", "signatures")) is None:
        raise UserError(f"{document} is missing; it describes the inputs and labels of {path.name}. {copy}")
    if description.get("sentences") == "random ids":
        raise UserError(
            f"{path} was made from a model without a tokenizer, so it reads no text. Convert a model with a tokenizer."
        )
    tokenizer = tokenizers.read_tokenizer(folder) if folder.is_dir() else None
    if tokenizer is None:
        raise UserError(f"{folder} is missing or holds no tokenizer. {copy}")
    return description, tokenizer


def _read_target(path: Path, description: dict[str, Any], python: Path) -> tuple[Target, load_model.ModelTables]:
    """Return an exported file's format and configs; raises UserError if its metadata JSON is damaged or foreign."""
    try:
        target = targets(python)[description["format"]]
        tables = config.from_dict(load_model.ModelTables, {name: description[name] for name in ("model", "head")})
        inputs = {"input_ids", "token_type_ids", "attention_mask", *tables.head.inputs}
        if unknown := sorted(set(description["inputs"]) - inputs):
            raise UserError(f"inputs.{unknown[0]} is not an input of the model")
        return target, tables
    except (KeyError, UserError) as error:
        document = path.with_name(companions(path)[0])
        raise UserError(
            f"{document} is damaged, or of another version of bertzoo ({error}). Convert the model again."
        ) from error
