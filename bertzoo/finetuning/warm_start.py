"""Load the model that a fine-tuning run starts from, with a fresh head or, with `keep_head`, its own."""

import re
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax
import numpy as np

from bertzoo.conversion.pretrained import Pretrained, check_vocabulary, source_number
from bertzoo.core.errors import ConfigError
from bertzoo.core.paths import Location
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.finetuning.settings import Finetune
from bertzoo.finetuning.task_kind import TaskKind
from bertzoo.heads import SentenceEmbedding
from bertzoo.runs import load_model
from bertzoo.runs.warm_start import BACKBONE, match_parameters, origin_record
from bertzoo.train import state
from bertzoo.train.step import Objective

WORDS = "embedding/word/embedding"  # the parameter
_ROWS = 1024  # tokens that are embedded at once
_SPREAD = 0.1  # root mean square of the word embeddings, above that of the other initial embeddings (0.02)
_SPARE = re.compile(r"\[unused\d+\]")
_COMMON = 1e-4  # a word of this frequency has half the weight of a rare one (SIF, Arora, Liang & Ma 2017, §3)
FREE = ("dropout", "input_dropout", "beam", "problem_type", "thresholds")  # fields in which a head to keep may differ


@dataclass(frozen=True, kw_only=True)
class StartingModel:
    """The configs of the model that a run starts from, and its loaded parameters `initial` by path.

    recipe: the run's config, with what the model decides. record: the loaded model's entry for run.json. report:
    console lines on the modules that are loaded or start fresh.
    """

    model: Any
    head: Any
    recipe: Finetune
    objective: Objective
    initial: dict[str, np.ndarray]
    tokenizer: Tokenizer
    record: dict[str, Any]
    report: list[str]


def load_starting_model(path: Location, recipe: Finetune, task: TaskKind) -> StartingModel:
    """Load the model at `path` with the task's head, drawn from the seed unless `recipe.keep_head` is set.

    If the config has [model], the model is a new one with the word vectors of the model at `path`.

    Raises UserError if the model is missing or does not fit `recipe`, or if its head is to be kept and does not fit.
    """
    source = load_model.read_model(path)
    if source.tokenizer is None:
        raise ConfigError(f"{path} has no tokenizer. Convert the model again, with its vocabulary.")
    model, owner = (source.model, str(path)) if recipe.model is None else (recipe.model, "[model]")
    if recipe.encoder_dropout is not None:
        rates = [name for name in ("dropout", "attention_dropout") if hasattr(model, name)]  # `static` has no attention
        model = replace(model, **dict.fromkeys(rates, recipe.encoder_dropout))
    if recipe.max_length > model.max_positions:
        raise ConfigError(
            f"max_length = {recipe.max_length} is more than the {model.max_positions} positions of {owner}. Use at "
            f"most {model.max_positions}."
        )
    if recipe.hidden == "model":
        usual = "none" if recipe.embeds or recipe.squad.joint else model.head_activation
        hidden: Any = getattr(source.head, "hidden", usual) if recipe.keep_head else usual
        recipe = replace(recipe, hidden=hidden)
        task = task.with_recipe(recipe)
    task.check_model(model)
    objective = task.objective(task.head.build(model, recipe.compute))
    shapes = state.shapes_of(objective)
    if recipe.keep_head:
        _check_head(source, path, recipe, task)
    if recipe.model is None:
        heads = {name.split("/")[0] for name in shapes} - {*BACKBONE, "pooler"}
        fresh = {} if recipe.keep_head else dict.fromkeys(heads, "trained for the task")
        pooler = {name: array for name, array in source.unused.items() if name.startswith("pooler/")}
        arrays = source.params | pooler
        match = match_parameters(arrays, shapes, str(path), fresh)
        if recipe.keep_head and match.fresh:
            raise ConfigError(f"keep_head = true, but {path} lacks {', '.join(match.fresh)}. Remove keep_head.")
        loaded, report = [name for name in shapes if name.split("/")[0] in match.copied], match.report(str(path))
    else:
        arrays = initial_words(source, model)
        loaded, report = list(arrays), [f"a new {model.kind}, with the tokenizer and the words' vectors of {path}"]
    return StartingModel(
        model=model,
        head=task.head,
        recipe=recipe,
        objective=objective,
        initial={name: arrays[name] for name in loaded},
        tokenizer=source.tokenizer,
        record=origin_record(source, path),
        report=report,
    )


def _check_head(source: Pretrained, path: Location, recipe: Finetune, task: TaskKind) -> None:
    """Raise ConfigError if the source's head was trained for another task, or differs from the task's head."""
    columns = {"own": recipe.own.columns} if recipe.task == "own" else {}
    expected = {"task": recipe.task, **columns, "scale": float(task.notes.get("scale", 1.0)), **_fields(task.head)}
    actual = {
        **{key: source.source.get(key, expected.get(key)) for key in ("task", "own")},
        "scale": source_number(source.source, "scale", 1.0),
        **_fields(source.head),
    }
    for key in expected:
        if actual.get(key) != expected[key]:
            advice = (
                "Remove keep_head"
                if key == "pooling"
                else "Use the options of that head's training, or remove keep_head"
            )
            raise ConfigError(
                f"keep_head = true needs a head with {key} = {expected[key]}, but the head of {path} has {key} = "
                f"{actual.get(key, 'none')}. {advice}."
            )


def _fields(head: Any) -> dict[str, Any]:
    """Return the fields of a head that change its parameters or the meaning of its outputs."""
    fields = {"kind": head.kind, "pooler": head.pooler, **asdict(head)}
    return {key: value for key, value in fields.items() if key not in FREE}


def token_vectors(model: Pretrained) -> np.ndarray:
    """Return the vector (V,E) of each token of a model's vocabulary, alone between [CLS] and [SEP]; not normalised.

    Raises ConfigError if the model has no tokenizer or no head for embeddings.
    """
    if not isinstance(model.head, SentenceEmbedding) or model.tokenizer is None:
        raise ConfigError(
            f"{model.origin} gives texts no vectors. Use a model that bertzoo trained with head = 'embedding', or a "
            "directory of sentence-transformers."
        )
    module, params = replace(model, head=replace(model.head, normalise=False)).module()
    run = jax.jit(model.head.objective(module).predict)
    specials, count = model.tokenizer.specials, model.tokenizer.vocab_size
    vectors = []
    for start in range(0, count, _ROWS):
        tokens = np.arange(start, start + _ROWS, dtype=np.int32) % count
        ids = np.stack([np.full(_ROWS, specials.cls), tokens, np.full(_ROWS, specials.sep)], 1).astype(np.int32)
        batch = {"input_ids": ids, "token_type_ids": np.zeros_like(ids), "attention_mask": np.ones_like(ids)}
        vectors.append(np.asarray(run(params, batch)["embedding"]))
    return np.concatenate(vectors)[:count]


def initial_words(source: Pretrained, model: Any) -> dict[str, np.ndarray]:
    """Return the word embeddings of a new model: the principal components of the source's token vectors.

    Rare words have longer vectors, as in model2vec 0.10 (distill/inference.py), so that the mean of a text's words (the
    model "static") serves untrained.

    Raises UserError if the source gives no vectors, or if their width or vocabulary does not fit [model].
    """
    vectors = token_vectors(source)
    assert source.tokenizer is not None  # for the type checker
    check_vocabulary(source.tokenizer, model.vocab_size, "[model]")
    width = getattr(model, "embedding_size", model.hidden_size)
    if width > vectors.shape[1]:
        raise ConfigError(
            f"[model] has word embeddings of {width} dimensions, but the vectors of {source.origin} have "
            f"{vectors.shape[1]}. Use at most as many."
        )
    specials = source.tokenizer.specials
    excluded = {*asdict(specials).values()} - {specials.pad, specials.unk}
    tokens = (source.tokenizer.token(i) for i in range(source.tokenizer.vocab_size))
    # The tokens that are neither special nor BERT's spare tokens.
    ids = np.array([i for i, token in enumerate(tokens) if i not in excluded and not _SPARE.fullmatch(token)])
    centred = vectors[ids] - vectors[ids].mean(0)
    words = centred @ np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :width]
    frequency = 1 / np.arange(2, 2 + len(ids))  # Zipf's law; the order of a vocabulary is about that of frequency
    words *= (_COMMON / (_COMMON + frequency / frequency.sum()))[:, None]
    table = np.zeros((model.vocab_size, width), np.float32)
    table[ids] = words * (_SPREAD / np.sqrt(np.mean(np.square(words))))
    table[[specials.pad, specials.unk]] = 0
    return {WORDS: table}
