"""Options of embeddings that have no effect, equal texts, and the files of a teacher's vectors."""

import dataclasses
import json
import os
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from embedding_runs import WORDS, finetune
from messages import mentioning, mentions
from tiny import devices

import bertzoo
from bertzoo.core import atomic
from bertzoo.core.errors import ConfigError
from bertzoo.finetuning import embedding, warm_start
from bertzoo.finetuning.settings import EmbeddingOptions, Finetune
from bertzoo.finetuning.task_kind import RowForm
from bertzoo.heads import SentenceEmbedding
from bertzoo.models import Bert, Compute
from bertzoo.runs import load_model
from bertzoo.tasks.custom import CustomFiles
from bertzoo.tasks.rows import encode
from bertzoo.tasks.task import Example
from bertzoo.train import sharding

PAIRS = {"kind": "texts", "train": "train.csv", "dev": "dev.csv", "text_b": "partner"}
BERT = Bert(vocab_size=20, hidden_size=8, layers=1, heads=2, feed_forward_size=8, max_positions=8)


def task_of(own: dict[str, Any] | None = None, options: Any = None, **recipe: Any) -> embedding.EmbeddingTask:
    """The task of files, or that of STS-B with `task`."""
    files = None if recipe.get("task") == "stsb" else CustomFiles(**PAIRS | (own or {}))
    known = {"task": "own", "head": "embedding", "embedding": EmbeddingOptions(**options or {})} | recipe
    task = embedding.EmbeddingTask(Finetune(**known | ({} if files is None else {"own": files})), files)
    task.check()
    return task


@pytest.mark.parametrize(
    ("options", "recipe", "parts"),
    [
        ({"sizes": (4,)}, {"alpha": 0}, ("embedding.sizes", 4, "alpha", "embedding.relations")),
        ({"l2": 1.0}, {}, ("embedding.l2", "teacher")),
        ({"directions": 0.5}, {}, ("embedding.directions", "teacher")),
        ({"relations": 1.0}, {}, ("embedding.relations", "teacher")),
        ({"vectors_dir": "vectors"}, {}, ("embedding.vectors_dir", "vectors", "teacher")),
        ({"symmetric": True}, {"alpha": 0}, ("embedding.symmetric", "alpha")),
        ({"temperature": 0.1}, {"alpha": 0}, ("embedding.temperature", 0.1, "alpha")),
        ({"symmetric": True, "loss": "cosent"}, {}, ("embedding.symmetric", "contrastive")),
        ({"temperature": 0.1, "loss": "cosine"}, {}, ("embedding.temperature", 0.1)),
        ({"sts_dir": "sts"}, {"task": "stsb", "alpha": 0}, ("embedding.sts_dir", "'sts'", "task = own")),
        ({"loss": "cosine"}, {"own": {"negatives": ("hard",)}}, ("own.negatives", "hard", "contrastive", "teacher")),
    ],
)  # fmt: skip
def test_options_without_effect_are_rejected(options: Any, recipe: Any, parts: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigError, match=mentioning(*parts)):
        task_of(options=options, **recipe)


@pytest.mark.parametrize(
    ("options", "recipe"),
    [
        ({"sizes": (4,), "relations": 1.0}, {"alpha": 0}),
        ({"sizes": (4,), "l2": 1.0, "vectors_dir": "vectors", "symmetric": True, "temperature": 0.1}, {"alpha": 0.5}),
        ({"temperature": 0.1, "loss": "cosent"}, {}),
        ({"loss": "cosine"}, {"own": {"negatives": ("hard",)}, "alpha": 0.5}),
        ({}, {"task": "stsb", "alpha": 0}),
    ],
)  # fmt: skip
def test_options_with_an_effect_are_accepted(options: Any, recipe: Any) -> None:
    task_of(options=options, **recipe)


def test_the_head_of_similarities_up_to_five_is_kept() -> None:
    task = task_of(task="stsb", keep_head=True, options={"loss": "cosent"})
    trained: Any = SimpleNamespace(head=task.head, source={"task": "stsb", **task.notes})
    warm_start._check_head(trained, "run", task.recipe, task)
    trained.source["scale"] = "4.0"
    with pytest.raises(ConfigError, match=mentioning("scale", 4.0, 5.0)):
        warm_start._check_head(trained, "run", task.recipe, task)


def test_single_texts_without_dropout_are_rejected() -> None:
    """Both vectors of a text would be equal."""
    single = task_of({"text_b": ""}, alpha=0.5)
    for rates in ((0.1, 0.0), (0.0, 0.1)):
        single.check_model(dataclasses.replace(BERT, dropout=rates[0], attention_dropout=rates[1]))
    without = dataclasses.replace(BERT, dropout=0.0, attention_dropout=0.0)
    for task in (task_of(), task_of({"text_b": ""}, alpha=0)):
        task.check_model(without)
    with pytest.raises(ConfigError, match=mentioning("encoder_dropout", "attention_dropout")):
        single.check_model(without)


def test_the_least_length_of_a_row_is_named(place: Path) -> None:
    tokenizer: Any = load_model.read_model(place / "run").tokenizer
    with pytest.raises(ConfigError, match=mentioning("max_length = 2", "a text", 3)):
        encode([Example("0", "bara")], tokenizer, 2, "texts")
    with pytest.raises(ConfigError, match=mentioning("max_length = 4", "two texts", 5)):
        encode([Example("0", "bara", "doti")], tokenizer, 4, "classification")
    assert encode([Example("0", "bara doti")], tokenizer, 3, "texts").lengths.tolist() == [3]


def test_texts_with_equal_tokens_are_one(place: Path) -> None:
    """A text that differs only in case must be no wrong answer."""
    tokenizer: Any = load_model.read_model(place / "run").tokenizer
    texts = ("doti kelu", "BARA", "Doti Kelu", "bara", "mopi")
    examples = [Example("0", texts[0], texts[1]), Example("1", texts[2], texts[3]), Example("2", texts[4], texts[1])]
    split = task_of().encode(examples, "train", RowForm(tokenizer, 12, 0))
    assert split.index.tolist() == [[0, 1], [0, 1], [2, 1]] and list(split.texts) == ["doti kelu", "BARA", "mopi"]
    expected = encode([Example(str(i), text) for i, text in enumerate(split.texts)], tokenizer, 12, "texts")
    assert split.rows.digest == expected.digest and len(split.rows.keys) == len(split.rows.cut) == 3


def test_hard_negatives_follow_the_partner(place: Path, tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,partner,hard,harder\nbara,doti,kelu,mopi\nnuro,sati,vexo,zupi\n")
    own = CustomFiles(**PAIRS | {"negatives": ("hard", "harder")})
    examples = own.read("train", tmp_path).examples
    assert [example.negatives for example in examples] == [("kelu", "mopi"), ("vexo", "zupi")]
    tokenizer: Any = load_model.read_model(place / "run").tokenizer
    split = task_of().encode(examples, "train", RowForm(tokenizer, 12, 0))
    assert [[split.texts[i] for i in row] for row in split.index] == [
        ["bara", "doti", "kelu", "mopi"], ["nuro", "sati", "vexo", "zupi"]
    ]  # fmt: skip


@pytest.mark.parametrize("pooling", ["mean", "weighted_mean"])
def test_pooling_multiplies_in_full_precision(pooling: Any) -> None:
    """A TPU's default is bfloat16."""
    module = SentenceEmbedding(pooling=pooling).build(BERT, Compute())
    ids = jnp.ones((2, 3), jnp.int32)
    params = jax.eval_shape(module.init, jax.random.key(0), ids, 0 * ids, ids)
    graph = jax.make_jaxpr(lambda params: module.apply(params, ids, 0 * ids, ids).logits)(params)
    *_, product = [one for one in graph.eqns if one.primitive.name == "dot_general"]
    assert product.params["precision"] == (jax.lax.Precision.HIGHEST,) * 2


TEXTS = [f"{a} {b}" for a in WORDS for b in WORDS[:3]]


class Vectors:
    """Writes a teacher's vectors into `folder`: each text's have its hash, which needs no model to run."""

    def __init__(self, place: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, logged: list[str]):
        self.teacher, self.folder = load_model.read_model(place / "run"), folder
        self.computed, self.told, self.fail = [], logged, 0
        self.mesh, self.recipe = sharding.one_device(), Finetune(max_length=12)
        monkeypatch.setattr(embedding, "_CHUNK", 10)
        monkeypatch.setattr(embedding.EmbeddingModel, "embed", lambda model, texts: self.embed(texts))

    def embed(self, texts: list[str]) -> np.ndarray:
        if self.fail and len(self.computed) >= self.fail:
            raise KeyboardInterrupt
        self.computed += texts
        return np.array([[sum(text.encode()) % 97 + i for i in range(16)] for text in texts], np.float32)

    def write(self, teacher: Any = None, texts: list[str] = TEXTS, **recipe: Any) -> np.ndarray:
        self.computed = []
        self.told.clear()
        settings = dataclasses.replace(self.recipe, **recipe)
        return embedding.teacher_vectors(teacher or self.teacher, texts, self.folder, settings, self.mesh)

    def check(self, count: int = len(TEXTS)) -> None:
        """Write again, and compare the vectors, and the number of texts that were computed for them."""
        found, computed = self.write(), len(self.computed)
        np.testing.assert_array_equal(found, self.embed(TEXTS))
        assert computed == count and {path.suffix for path in self.folder.iterdir()} == {".f16", ".lock"}

    def kill(self, after: int) -> None:
        self.fail = after
        with pytest.raises(KeyboardInterrupt):
            self.write()
        self.fail = 0

    def find(self, suffix: str = "") -> Path:
        (file,) = self.folder.glob(f"*.f16{suffix}")
        return file


@pytest.fixture
def vectors(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[str]) -> Vectors:
    (tmp_path / "vectors").mkdir()
    return Vectors(place, tmp_path / "vectors", monkeypatch, logged)


def test_unfinished_vectors_are_completed(vectors: Vectors) -> None:
    vectors.kill(after=20)
    vectors.find(".part").write_bytes(vectors.find(".part").read_bytes()[:-1])  # 19 vectors, and most of one
    vectors.check(len(TEXTS) - 19)


def test_damaged_vectors_are_computed_again(vectors: Vectors) -> None:
    vectors.write()
    whole = vectors.find().read_bytes()
    for damage in (whole[:-1], whole + b"0", b""):
        vectors.find().write_bytes(damage)
        vectors.write()
        assert mentions(vectors.told[0], vectors.find().name, "damaged")
        assert vectors.find().read_bytes() == whole
    vectors.check(0)


def test_a_write_of_vectors_without_room_is_an_error(vectors: Vectors) -> None:
    """The limit on a file's size stands for that of the disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(atomic.WriteError, match=mentioning("vectors-", "embedding.vectors_dir", os.strerror(27))):
            vectors.write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert vectors.find(".part").stat().st_size == 1000  # a call goes on there
    vectors.check(len(TEXTS) - 1000 // 32)


def test_vectors_of_another_teacher_have_another_file(vectors: Vectors) -> None:
    """Also if only its tokenizer differs, or a value of its config that has no parameters."""
    teacher, known = vectors.teacher, cast(Any, vectors.teacher.tokenizer)
    config = dataclasses.replace(known.config, lowercase=not known.config.lowercase)
    swapped = [*known._tokens[:-2], *known._tokens[:-3:-1]]
    changes = (
        {},
        {"tokenizer": type(known)(config, [*known._tokens], "here")},
        {"tokenizer": type(known)(known.config, swapped, "here")},
        {"model": dataclasses.replace(teacher.model, norm_epsilon=1e-3)},
        {"head": dataclasses.replace(teacher.head, pooling="max")},
    )
    for change in changes:
        vectors.write(dataclasses.replace(teacher, **change))
        assert len(vectors.computed) == len(TEXTS)
    for texts in (["bara", "dotikelu"], ["baradoti", "kelu"]):
        vectors.write(texts=texts)
        assert len(vectors.computed) == 2
    vectors.write(max_length=9)
    assert len(list(vectors.folder.glob("*.f16"))) == len(changes) + 3


def test_vectors_lie_beside_the_training_file(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without data_dir; and the saved model has the loss of the run, whose temperature it records."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in ("train", "dev"):
        (tmp_path / f"{name}.jsonl").write_text("".join((place / f"{name}.jsonl").read_text().splitlines(True)[:16]))
    files = [f"--own.{name}={tmp_path / name}.jsonl" for name in ("train", "dev")]
    more = ["--alpha=0.5", f"--teacher={place / 'run'}", "--embedding.temperature=0.5", "--epochs=1"]
    with devices(1):
        assert finetune(place, tmp_path / "run", "--data_dir=", *files, *more) == 0
    assert not list((tmp_path / "here").iterdir()) and len(list(tmp_path.glob("vectors-*.f16"))) == 1
    (epoch,) = json.loads((tmp_path / "run" / "results.json").read_text())["seeds"][0]["history"]
    found = bertzoo.evaluate(tmp_path / "run")
    assert found["loss"] == pytest.approx(epoch["loss"], rel=1e-4)
