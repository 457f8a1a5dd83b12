"""The losses of vectors beside numpy, in parts and on several devices; test_live_sentence.py has another library's."""

import dataclasses
import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
import zoo

from bertzoo.heads import SentenceEmbedding
from bertzoo.heads.embedding import EmbeddingObjective
from bertzoo.heads.labels import TEACHER
from bertzoo.models import Bert, Compute

ROWS, TEXTS, WIDTH = 6, 3, 10
BERT = Bert(**zoo.SIZES, layers=1, heads=4, feed_forward_size=20, dropout=0.0, attention_dropout=0.0)


class Given(EmbeddingObjective):
    """The losses of given vectors (B,n,E), which are the parameters."""

    def embed(self, params: Any, batch: Any, key: Any) -> Any:
        return params


def given(**options: Any) -> Given:
    return Given(model=None, **options)  # pyright: ignore[reportArgumentType]


def batch(rows: int = ROWS, texts: int = TEXTS, width: int = WIDTH, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        "input_ids": random.integers(1, 61, (rows, texts, 7)).astype(np.int32),
        "token_type_ids": np.zeros((rows, texts, 7), np.int32),
        "attention_mask": np.ones((rows, texts, 7), np.int32),
        "text_id": np.arange(rows * texts, dtype=np.int32).reshape(rows, texts),
        "row_weight": np.ones(rows, np.float32),
        "similarity": random.uniform(0, 1, rows).astype(np.float32),
        TEACHER: random.normal(size=(rows, texts, width)).astype(np.float32),
    }


def vectors(rows: int = ROWS, texts: int = TEXTS) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(rows, texts, WIDTH)).astype(np.float32)


@functools.partial(jax.jit, static_argnums=0)
def mean_loss(objective: Any, params: Any, rows: dict[str, Any], key: Any = None) -> Any:
    sums, _ = objective(params, None, rows, key)
    ((term, value),) = sums.items()
    return value / objective.weights(rows)[term]


@functools.partial(jax.jit, static_argnums=0)
def losses(objective: Any, params: Any, rows: dict[str, Any], key: Any = None) -> Any:
    """The mean loss and its gradients."""
    return jax.value_and_grad(lambda params: mean_loss(objective, params, rows, key))(params)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def cross_entropy(logits: np.ndarray, right: int) -> float:
    return float(np.log(np.exp(logits - logits[right]).sum()))


@pytest.mark.parametrize("symmetric", [False, True])
def test_contrastive(symmetric: bool) -> None:
    x, rows = vectors(), batch()
    rows["text_id"][3, 1] = rows["text_id"][0, 1]  # both have the same right answer
    rows["text_id"][4, 0] = rows["text_id"][1, 0]  # both ask the same
    rows["text_id"][2, 2] = rows["text_id"][5, 0]  # a hard negative is a question itself
    wrong = {(0, 3), (3, 0), (1, 4), (4, 1), (5, 6 + 2)}
    candidates, expected = np.concatenate([x[:, 1], x[:, 2]]), []
    cosines = unit(x[:, 0]) @ unit(candidates).T / 0.1
    for row in range(ROWS):
        kept = [column for column in range(2 * ROWS) if (row, column) not in wrong]
        loss = cross_entropy(cosines[row, kept], kept.index(row))
        if symmetric:
            back = [one for one in range(ROWS) if (one, row) not in wrong]
            loss = (loss + cross_entropy(cosines[back, row], back.index(row))) / 2
        expected.append(loss)
    found = mean_loss(given(temperature=0.1, symmetric=symmetric), x, rows)
    np.testing.assert_allclose(found, np.mean(expected), rtol=1e-5)


def test_equal_texts_are_not_negatives() -> None:
    """A batch that holds one pair twice has no negatives."""
    x, rows = vectors(1, 2), batch(1, 2)
    twice = {name: np.concatenate([array, array]) for name, array in rows.items()}
    for symmetric in (False, True):
        np.testing.assert_allclose(mean_loss(given(symmetric=symmetric), np.tile(x, (2, 1, 1)), twice), 0, atol=1e-6)


def test_similarities() -> None:
    x, rows = vectors(texts=2), batch(texts=2)
    cosine, similarity = np.sum(unit(x[:, 0]) * unit(x[:, 1]), -1), rows["similarity"]
    squares = np.square(cosine - similarity).mean()
    np.testing.assert_allclose(mean_loss(given(loss="cosine"), x, rows), squares, rtol=1e-5)
    pairs = [(i, j) for i in range(ROWS) for j in range(ROWS) if similarity[i] < similarity[j]]
    expected = np.log1p(sum(np.exp((cosine[i] - cosine[j]) / 0.05) for i, j in pairs))
    np.testing.assert_allclose(mean_loss(given(loss="cosent"), x, rows), expected, rtol=1e-5)


def test_a_teacher_s_vectors() -> None:
    x, rows = vectors(), batch()
    ours, theirs = (array.reshape(-1, WIDTH) for array in (x, rows[TEACHER]))
    weights = {"alpha": 0.0, "l2": 0.0, "directions": 0.0, "relations": 0.0}
    directions = np.mean(1 - np.sum(unit(ours) * unit(theirs), -1))
    relations = np.mean(np.square(unit(ours) @ unit(ours).T - unit(theirs) @ unit(theirs).T))
    short = np.mean(np.square(unit(ours[:, :4]) @ unit(ours[:, :4]).T - unit(theirs) @ unit(theirs).T))
    squares = np.mean(np.square(ours - theirs))
    for name, expected in {"l2": squares, "directions": directions, "relations": relations}.items():
        found = mean_loss(given(**weights | {name: 2.0}), x, rows)
        np.testing.assert_allclose(found, 2 * expected, rtol=1e-5, err_msg=name)
    found = mean_loss(given(**weights | {"relations": 1.0, "sizes": (4,)}), x, rows)
    np.testing.assert_allclose(found, relations + short, rtol=1e-5)
    both = mean_loss(given(alpha=0.25, sizes=(4,)), x, rows)
    labels = mean_loss(given(), x, rows) + mean_loss(given(), x[..., :4], rows)
    np.testing.assert_allclose(both, 0.25 * labels + 0.75 * directions, rtol=1e-5)


KINDS: dict[str, dict[str, Any]] = {
    "contrastive": {},
    "symmetric": {"symmetric": True, "sizes": (4,)},
    "cosine": {"loss": "cosine"},
    "cosent": {"loss": "cosent"},
    "teacher": {"alpha": 0.0, "l2": 1.0, "directions": 1.0, "relations": 1.0, "sizes": (3,)},
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_weight_0_change_nothing(kind: str) -> None:
    objective, x, rows = given(**KINDS[kind]), vectors(), batch()
    padded = {name: np.concatenate([array, 9 + 0 * array[:2]]) for name, array in rows.items()}
    padded["row_weight"][ROWS:], padded["text_id"][ROWS:] = 0, -1
    more = np.concatenate([x, 0 * x[:1], 5 * x[:1]])
    loss, gradients = losses(objective, x, rows)
    other, wide = losses(objective, more, padded)
    np.testing.assert_allclose(other, loss, rtol=1e-6)
    np.testing.assert_allclose(wide[:ROWS], gradients, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(wide[ROWS:], 0)


def trained(rate: float = 0.0, **options: Any) -> tuple[EmbeddingObjective, Any]:
    model = dataclasses.replace(BERT, dropout=rate, attention_dropout=rate)
    head = SentenceEmbedding(projection=WIDTH)
    objective = EmbeddingObjective(model=head.build(model, Compute()), temperature=0.3, **options)
    return objective, zoo.drawn(objective.init, jax.random.key(0))


@pytest.mark.parametrize("chunks", tiers.quick((2, 3), 3))
def test_gradients_in_parts_are_the_whole_batch_s(chunks: int) -> None:
    whole, params = trained()
    parts = dataclasses.replace(whole, chunks=chunks)
    expected, found = (losses(one, params, batch(), jax.random.key(1)) for one in (whole, parts))
    chex.assert_trees_all_close(found, expected, rtol=1e-4, atol=1e-6)


def test_dropout_of_each_part_has_its_own_draws() -> None:
    """Part i has rows i, i + chunks, …; its draws are those of the i-th key."""
    objective, params = trained(0.5, chunks=2)
    rows, key = batch(), jax.random.key(1)
    embed = jax.jit(EmbeddingObjective.embed, static_argnums=0)
    found = embed(objective, params, rows, key)
    single = dataclasses.replace(objective, chunks=1)
    for part, own in enumerate(jax.random.split(key, 2)):
        chosen = {name: array[part::2] for name, array in rows.items()}
        np.testing.assert_allclose(found[part::2], embed(single, params, chosen, own), rtol=1e-4, atol=1e-6)
    loss, _ = losses(objective, params, rows, key)
    again = mean_loss(given(temperature=0.3), found, rows)
    np.testing.assert_allclose(loss, again, rtol=1e-5)


def test_a_text_alone_is_its_own_partner() -> None:
    """As in SimCSE: two passes with other dropout; without dropout both vectors are equal."""
    rows = batch(texts=1)
    objective, params = trained(0.5)
    assert mean_loss(objective, params, rows, jax.random.key(1)) > mean_loss(objective, params, rows) > 0


@pytest.mark.parametrize("kind", tiers.quick(KINDS, "symmetric"))
def test_two_devices_compute_what_one_does(kind: str) -> None:
    objective, params = trained(**KINDS[kind], chunks=2)
    rows = batch(rows=8)
    expected = losses(objective, params, rows, jax.random.key(1))
    mesh = zoo.mesh_of((2, 1, 1))
    split = jax.device_put(rows, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data")))
    everywhere = jax.device_put(params, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))
    found = losses(objective, everywhere, split, jax.random.key(1))
    chex.assert_trees_all_close(jax.device_get(found), jax.device_get(expected), rtol=1e-4, atol=1e-6)


def test_vectors_of_texts_that_fill_their_rows() -> None:
    objective, params = trained()
    rows = batch(texts=1)
    flat = {name: rows[name][:, 0] for name in ("input_ids", "token_type_ids", "attention_mask")}
    found = objective.predict(params, flat)["embedding"]
    np.testing.assert_allclose(jnp.linalg.norm(found, axis=-1), 1, rtol=1e-5)
    np.testing.assert_allclose(found, objective.embed(params, rows, None)[:, 0], rtol=1e-5)
