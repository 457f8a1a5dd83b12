"""The shipped pairs of teacher and student in small, with random teachers, and their losses in numpy."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import linen as nn

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core import config
from bertzoo.data.corpus.reader import Corpus
from bertzoo.heads import MaskedLanguageModel
from bertzoo.models import Compute
from bertzoo.objectives import Replaced
from bertzoo.runs import experiments, load_model
from bertzoo.runs.configs import Pretrain, Transfer
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.train import optim, sharding, state
from bertzoo.train.checkpoint import Checkpoints, restore_params
from bertzoo.train.state import boxed_shapes, named

BASE = {"max_positions": 24, "vocab_size": 256, "initializer_range": 0.2, "layers": 2}
PLAIN = {"hidden_size": 16, "heads": 2, "feed_forward_size": 16}
NARROW = {"embedding_size": 8, **PLAIN, "bottleneck_size": 8}  # a MobileBERT
IB_BERT = {**NARROW, "bottleneck_size": 16, "feed_forward_size": 32}


class Pair(NamedTuple):
    """A shipped config with small sizes; fields that are equal or differ there do so here."""

    teacher: dict[str, Any]
    model: dict[str, Any]
    layers: tuple[int, ...] = ()  # knowledge.layers
    heads: tuple[int, int] = (2, 2)  # maps of attention of student and teacher
    copied: tuple[str, ...] = ()  # modules, as a run prints them


HEADS = ("masked_head", "masked_head/dense", "masked_head/norm", "sentence_head")
TABLES = ("embedding/position", "embedding/token_type", "embedding/word")
WHOLE = ("embedding/transformation", *TABLES, "masked_head/extra", *HEADS)  # a MobileBERT's from an IB-BERT
PAIRS = {
    "squeezebert_transfer": Pair(
        PLAIN, {**PLAIN, **BASE}, copied=(*TABLES, "embedding/norm", *HEADS[:-1], "pooler")
    ),  # the sentence head is for another question
    "convbert_small_transfer": Pair(
        {"embedding_size": 24, "hidden_size": 24, "heads": 6, "feed_forward_size": 32},
        {"embedding_size": 8, "hidden_size": 16, "heads": 4, "feed_forward_size": 16},
        layers=(1, 2),
        heads=(2, 3),  # the other half are convolutions
    ),
    "mobilebert_electra_transfer": Pair(
        {"embedding_size": 24, "hidden_size": 24, "heads": 3, "feed_forward_size": 32},
        {**NARROW, "feed_forwards": 2, "layers": 4},
        layers=(1, 1, 2, 2),
        heads=(2, 3),
    ),
    "bottleneck_transfer": Pair(
        {**PLAIN, "heads": 4}, {**NARROW, "feed_forwards": 2}, heads=(2, 4), copied=(*TABLES[:2], *HEADS)
    ),
    "plain_student_transfer": Pair(IB_BERT, {**NARROW, "bottleneck_size": "none"}, copied=WHOLE),
    "mobilebert_transfer": Pair(IB_BERT, {**NARROW, "feed_forwards": 2}, copied=WHOLE),
    "mobilebert_tiny_transfer": Pair(IB_BERT, NARROW, copied=WHOLE),
}
STRETCH = {"steps": 2, "batch_size": 8, "max_length": 24, "max_predictions": 4}
# So few layers make a test of a discriminator quick.
QUICK = {"teacher.layers": 1, "model.layers": 2, "model.feed_forwards": 1, "knowledge.layers": [1, 1]}


def options(name: str, corpus: Path, **more: Any) -> list[str]:
    """The command line's options that cut a shipped config down to this text."""
    pair = PAIRS[name]
    given: dict[str, Any] = {"data.source": corpus, "data.heldout": 0.2, "data.sentences": "lines"}
    given |= {"data.tokenizer.vocab_size": 250, "compute.dtype": "float32", "knowledge.dtype": "float32"}
    given |= {f"teacher.{key}": value for key, value in (BASE | pair.teacher).items()}
    given |= {f"model.{key}": value for key, value in (BASE | pair.model).items()}
    given |= {f"{table}.{key}": value for table in ("transfer", "distillation.0") for key, value in STRETCH.items()}
    given |= {"optimizer.schedule.warmup_steps": 1, "run.log_every": 1, "run.evaluate_every": 0, "run.save_every": 0}
    given |= {"run.keep_last": 9, "run.keep_best": 0}
    if pair.layers:
        given["knowledge.layers"] = list(pair.layers)
    return [f"--{key}={value}" for key, value in {**given, **more}.items()]


def load(name: str, given: list[str]) -> Transfer:
    """The config under options."""
    pairs = [option.removeprefix("--").split("=", 1) for option in given]
    return config.load(Transfer, [name], [(key, value) for key, value in pairs])


def drawn(objective: Any, seed: int) -> dict[str, np.ndarray]:
    """Parameters by path, all unlike an initialiser's values, so that a copy is visible in biases too."""
    draw, shapes = np.random.default_rng(seed), boxed_shapes(objective)
    return {
        name: (name.endswith("scale") + 0.2 * draw.normal(size=leaf.shape)).astype(np.float32)
        for name, leaf in named(nn.unbox(shapes)).items()
    }


def write_teacher(recipe: Transfer, path: Path, corpus: Path) -> Path:
    """A teacher as the config wants it, untrained: a model directory, or of a discriminator, which has its generator
    nowhere else, a run.
    """
    objective = recipe.teacher_objective.build(recipe.teacher, Compute())
    params = drawn(objective, 7)
    if isinstance(recipe.teacher_objective, Replaced):
        return write_run(recipe, path, corpus)
    sentence = recipe.teacher_objective.sentence
    head = MaskedLanguageModel(sentence=sentence != "none")
    path.mkdir()
    load_model.write_model(
        Pretrained(
            model=recipe.teacher,
            head=head,
            params=params,
            tokenizer=Corpus.open(corpus).tokenizer,
            origin=str(path),
            source={"format": "random", "sentence": sentence},
        ),
        path,
    )
    return path


def write_run(recipe: Transfer, path: Path, corpus: Path) -> Path:
    """The same teacher as a run that has only a checkpoint."""
    objective = recipe.teacher_objective.build(recipe.teacher, Compute())
    made = Pretrain(
        model=recipe.teacher,
        objective=recipe.teacher_objective,
        data=recipe.data,
        optimizer=recipe.optimizer,
        stages=recipe.distillation,
    )
    run, mesh = RunDirectory(path), sharding.make_mesh(sharding.Mesh(), jax.devices()[:1])
    path.mkdir()
    run.write_config(made)
    run.write_provenance(Corpus.open(corpus))
    shapes = state.abstract(objective, optim.build(made.optimizer, 2), mesh)
    zeros = jax.tree.map(lambda leaf: jax.device_put(np.zeros(leaf.shape, leaf.dtype), leaf.sharding), shapes)
    values = drawn(objective, 7)
    params = jax.tree.map_with_path(
        lambda path, leaf: jax.device_put(values[state.name_of(path)], leaf.sharding), shapes.params
    )
    with Checkpoints(run.checkpoints) as checkpoints:
        checkpoints.save(dataclasses.replace(zeros, params=params), loss=None)
        checkpoints.wait()
    return path


def parameters(run: Path, step: int | str = "latest") -> Any:
    """All parameters of a transfer's checkpoint, projections included."""
    mesh = sharding.make_mesh(sharding.Mesh(), jax.devices()[:1])
    shapes = state.abstract_params(experiments.build_setups(RunDirectory(run).load())[-1].objective, mesh)
    return restore_params(run / "checkpoints", shapes, step)[0]


def layer_losses(recipe: Transfer, layer: int, mine: Any, theirs: Any, params: Any, batch: Any) -> dict[str, float]:
    """The four terms of a layer, counted from 1, from the outputs of whole models (MobileBERT §3.5)."""
    other, weights = recipe.layer_map[layer], recipe.knowledge.weights
    tokens = np.asarray(batch["attention_mask"] * batch["row_weight"][:, None], np.float64)
    teacher, student = (np.asarray(x, np.float64) for x in (theirs.hidden_states[other], mine.hidden_states[layer]))
    if "projections" in params:
        learnt = params["projections"][f"layers_{layer - 1}"]
        student = student @ np.asarray(learnt["kernel"], np.float64) + np.asarray(learnt["bias"])
    maps = [np.asarray(x, np.float64) for x in (theirs.attentions[other - 1], mine.attentions[layer - 1])]
    if maps[0].shape[1] != maps[1].shape[1]:
        maps = [x.mean(axis=1, keepdims=True) for x in maps]
    logs = np.log(np.maximum(maps, 1.2e-38))
    each = {
        "feature": ((_normalised(teacher) - _normalised(student)) ** 2).mean(-1),
        "mean": (teacher.mean(-1) - student.mean(-1)) ** 2,
        "variance": np.abs(teacher.var(-1) - student.var(-1)),
        "attention": (maps[0] * (logs[0] - logs[1])).sum(-1).mean(1),
    }
    return {
        name: weights[name] / recipe.model.layers * float((value * tokens).sum() / tokens.sum())
        for name, value in each.items()
    }


def distilled(recipe: Transfer, mine_BPV: Any, theirs_BPV: Any, batch: Any) -> dict[str, float]:
    """The terms of the masked positions: the true token's and the teacher's distribution's (§3.5)."""
    truth, slots = recipe.knowledge.ground_truth, np.asarray(batch["masked_weights"], np.float64)
    log_mine, log_theirs = _log_softmax(mine_BPV), _log_softmax(theirs_BPV)
    right = np.take_along_axis(log_mine, np.asarray(batch["masked_ids"])[:, :, None], -1)[..., 0]
    soft = (np.exp(log_theirs) * log_mine).sum(-1)
    return {
        "mlm": -truth * float((right * slots).sum() / slots.sum()),
        "distillation": -(1 - truth) * float((soft * slots).sum() / slots.sum()),
    }


def _normalised(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)


def _log_softmax(x: Any) -> np.ndarray:
    x = np.asarray(x, np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))
