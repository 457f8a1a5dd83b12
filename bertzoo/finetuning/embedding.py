"""Fine-tuning of vectors of texts: on pairs, on similarities of pairs, and on a teacher's vectors."""

import hashlib
import logging
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import jax
import numpy as np

from bertzoo.conversion import tensors
from bertzoo.core import atomic
from bertzoo.core.config import plain
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.core.paths import Location, resolve_name
from bertzoo.data.tokenizers.tokenizer import label
from bertzoo.finetuning.embed import EmbeddingModel, unit_vectors
from bertzoo.finetuning.settings import Finetune
from bertzoo.finetuning.task_kind import Purpose, RowForm, Split, TaskKind, Unlabelled, build_head, changed_field
from bertzoo.heads import SentenceEmbedding
from bertzoo.heads.labels import TEACHER
from bertzoo.runs import load_model
from bertzoo.runs.runner import Outputs
from bertzoo.tasks import metrics
from bertzoo.tasks.custom import CustomFiles
from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.rows import Rows, Slot, encode, padded, plan_batches
from bertzoo.tasks.task import Example, SplitExamples
from bertzoo.train.step import Objective

if TYPE_CHECKING:
    from bertzoo.finetuning.evaluate import TaskModel

_LOG = logging.getLogger(__name__)

STSB = "stsb"
_CHUNK = 16_384  # texts whose vectors are computed between two writes
_TOP = 10  # results of a search that count for `mrr`
_QUERIES = 1024  # queries that are compared with all texts at once


@dataclass(frozen=True, kw_only=True)
class TextSplit(Split):
    """N examples of n texts each, of which T are distinct. `plan` and `batch` run over the distinct texts.

    texts: the distinct texts, (T); texts with equal tokens are one. rows: their tokens, (T). index: each example's
    texts as indices of `rows`, (N,n): a text, its partner, and hard negatives. similarity: of each example's first two
    texts, (N,); None without. teacher: a teacher's vectors of the distinct texts, (T,E); None without. sizes: further
    numbers of first dimensions to score.
    """

    texts: Sequence[str] = ()
    index: np.ndarray
    similarity: np.ndarray | None = None
    teacher: np.ndarray | None = None
    temperature: float = 0.05
    sizes: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.index)

    @property
    def summary(self) -> str:
        return super().summary.replace(" examples", f" examples, {len(self.rows):,} distinct texts", 1)

    @property
    def deciding(self) -> tuple[str, ...]:
        """Name of the metric that is the score: spearman of similarities, mrr of pairs, or the teacher's cosine."""
        if self.similarity is not None:
            return ("spearman",)
        return ("mrr",) if self.index.shape[1] > 1 else ("teacher_cosine",)

    @property
    def digest(self) -> str:
        arrays = [self.index, *([] if self.similarity is None else [self.similarity])]
        return hashlib.sha256(self.rows.digest.encode() + b"".join(array.tobytes() for array in arrays)).hexdigest()

    def predict(self, slots: Sequence[Slot], outputs: Sequence[Outputs]) -> np.ndarray:
        """Return the vectors of the distinct texts, (T,E)."""
        return self.rows.restore(slots, [output["embedding"] for output in outputs])

    def is_finite(self, vectors: np.ndarray) -> bool:
        return bool(np.isfinite(vectors).all())

    def scores(self, vectors: np.ndarray) -> dict[str, float]:
        """Return metrics by name, in points; those of shorter vectors end in their size. All are 0 if not finite.

        spearman: of cosine and similarity. mrr: mean reciprocal rank of an example's second text among those of all
        examples, by the cosine to the first; 0 beyond rank 10. accuracy: share of examples whose second text is first.
        teacher_cosine: mean cosine of a text's vector and the teacher's.
        """
        points: dict[str, float] = {}
        finite = self.is_finite(vectors)
        for size in (None, *self.sizes) if self.deciding != ("teacher_cosine",) else (None,):
            scores = self._scores(vectors[:, :size] if finite else np.ones_like(vectors[:, :1]))
            points |= {name if size is None else f"{name}_{size}": value * finite for name, value in scores.items()}
        return points

    def _scores(self, vectors: np.ndarray) -> dict[str, float]:
        if self.similarity is not None:
            return {"spearman": metrics.spearman(self._cosines(vectors), self.similarity)}
        if self.index.shape[1] == 1:
            return {"teacher_cosine": 100 * float(np.mean(self._to_teacher(vectors)))}
        ranks = np.concatenate([rank for rank, _ in self._search(vectors)])
        return {
            "mrr": 100 * float(np.mean(np.where(ranks <= _TOP, 1 / ranks, 0))),
            "accuracy": 100 * float(np.mean(ranks == 1)),
        }

    def loss(self, vectors: np.ndarray, mean: float | None = None) -> float:
        """Return the loss of the vectors: squared error of the cosine, cross-entropy of the search, or 1 - cosine."""
        if not self.is_finite(vectors):
            return float("nan")
        if self.similarity is not None:
            return float(np.mean(np.square(self._cosines(vectors) - self.similarity)))
        if self.index.shape[1] == 1:
            return 1 - float(np.mean(self._to_teacher(vectors)))
        return float(np.mean(np.concatenate([loss for _, loss in self._search(vectors)])))

    def distinct(self, vectors: np.ndarray) -> set[Any]:
        """Return the distinct vectors, rounded to 6 decimals."""
        return {row.tobytes() for row in np.round(vectors, 6) + 0.0}

    def _cosines(self, vectors: np.ndarray) -> np.ndarray:
        unit = unit_vectors(vectors)
        return np.sum(unit[self.index[:, 0]] * unit[self.index[:, 1]], axis=-1)

    def _to_teacher(self, vectors: np.ndarray) -> np.ndarray:
        assert self.teacher is not None
        return np.sum(unit_vectors(vectors) * unit_vectors(np.asarray(self.teacher, np.float64)), axis=-1)

    def _search(self, vectors: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield, for a chunk of the examples, the rank of each second text among all, from 1, and its cross-entropy.

        Of texts with equal cosines, as of vectors of bits or of a collapsed model, each has the mean of their ranks.
        A text that is a partner of an equal first text, or the first text itself, is no candidate.
        """
        unit, (first, second) = unit_vectors(vectors), self.index[:, :2].T
        candidates = np.unique(second)
        column, partners = np.searchsorted(candidates, second), defaultdict[int, list[int]](list)
        for example, text in enumerate(first.tolist()):
            partners[text].append(example)
        for start in range(0, len(first), _QUERIES):
            queries = first[start : start + _QUERIES]
            answers = column[start : start + _QUERIES]
            cosines = unit[queries] @ unit[candidates].T
            right = cosines[np.arange(len(answers)), answers]
            for row, query in enumerate(queries):
                cosines[row, column[partners[query]]] = -np.inf
            cosines[candidates == queries[:, None]] = -np.inf
            cosines[np.arange(len(answers)), answers] = right
            scaled = cosines / self.temperature
            highest = scaled.max(1, keepdims=True)
            total = highest[:, 0] + np.log(np.exp(scaled - highest).sum(1))
            nearer, equal = ((compare(cosines, right[:, None])).sum(1) for compare in (np.greater, np.equal))
            yield nearer + (1 + equal) / 2, total - right / self.temperature


@dataclass(frozen=True, kw_only=True)
class TrainingTexts(TextSplit):
    """A split to train on: `plan` and `batch` run over the N examples."""

    def plan(self, batch_size: int, lengths: Sequence[int], seed: int | None = None, epoch: int = 0) -> list[Slot]:
        return plan_batches(self.rows.held[self.index].max(1), batch_size, lengths, seed, epoch)

    def batch(self, slot: Slot, batch_size: int) -> dict[str, np.ndarray]:
        """Return the arrays of `heads.embedding.EmbeddingObjective` for a planned batch, by name."""
        width, texts = self.index.shape[1], self.index[slot.rows]
        flat = self.rows.batch(Slot(texts.reshape(-1), slot.length), batch_size * width)
        batch = {name: array.reshape(batch_size, width, *array.shape[1:]) for name, array in flat.items()}
        batch["row_weight"] = batch["row_weight"][:, 0]
        batch["text_id"] = np.full((batch_size, width), -1, np.int32)
        batch["text_id"][: len(texts)] = texts
        if self.similarity is not None:
            batch["similarity"] = padded(self.similarity[slot.rows], batch_size)
        if self.teacher is not None:
            batch[TEACHER] = padded(self.teacher[texts].astype(np.float32), batch_size)
        return batch


@dataclass(frozen=True)
class EmbeddingTask(TaskKind):
    """A fine-tuning task whose model maps a text to a vector. task: the files, or None for STS-B."""

    task: CustomFiles | None

    @classmethod
    def named(cls, model: "TaskModel", name: str, data_dir: str) -> Self:
        """Return the task `name`, by default STS-B; raises ConfigError for another task."""
        name = name or STSB
        if name == "own":
            own = model.recipe.own
            return cls(model.recipe, own.with_usual_files(data_dir) if data_dir else own)
        if name != STSB:
            raise ConfigError(
                f"{model.path} embeds texts, which task = {name!r} does not score. Use stsb, own, sts, "
                "pair_classification, clustering or retrieval."
            )
        return cls(replace(model.recipe, scale=1.0), None)

    @classmethod
    def unnamed(cls, model: "TaskModel") -> Self:
        raise UserError(f"{model.path} predicts no labels: it embeds texts. Use `bertzoo embed` for its vectors.")

    def check(self) -> None:
        recipe, task, options = self.recipe, self.task, self.recipe.embedding
        if recipe.batch_size % recipe.accumulate:
            raise ConfigError(
                f"accumulate = {recipe.accumulate} does not divide batch_size = {recipe.batch_size}. Use a divisor."
            )
        has_teacher, labelled, contrastive = recipe.alpha < 1, recipe.alpha > 0, options.loss == "contrastive"
        rules = (
            (("l2", "directions", "relations", "vectors_dir"), has_teacher, "a teacher, with alpha below 1"),
            (("symmetric",), labelled and contrastive, "embedding.loss = 'contrastive', with alpha above 0"),
            (("temperature",), labelled and options.loss != "cosine", "a loss with a temperature, with alpha above 0"),
            (("sizes",), labelled or options.relations > 0, "alpha above 0 or embedding.relations above 0"),
            (("sts_dir",), task is not None, "task = own, because task = stsb scores STS-B's development set itself"),
        )
        changed = [
            (f"embedding.{field}", needs)
            for names, applies, needs in rules
            if not applies and (field := changed_field(options, names))
        ]
        if recipe.own.negatives and not (has_teacher or contrastive):
            needs = "embedding.loss = 'contrastive' or a teacher"
            changed.append((f"own.negatives = {list(recipe.own.negatives)}", needs))
        if changed:
            option, needs = changed[0]
            raise ConfigError(f"{option} has no effect without {needs}. Remove it, or change that.")
        if task is None and recipe.alpha and options.loss == "contrastive":
            raise ConfigError(
                "embedding.loss = 'contrastive' needs pairs without a similarity, but task = stsb has similarities. "
                "Use 'cosine' or 'cosent'."
            )
        if task is not None and not task.train:
            raise ConfigError("task = own has no training examples. Set own.train.")
        if task is not None and not (task.dev or options.sts_dir):
            raise ConfigError("task = own has no development examples. Set own.dev, or embedding.sts_dir.")
        if task is not None and task.dev and not task.text_b and recipe.alpha == 1:
            raise ConfigError(
                "dev has single texts, which only a teacher can score. Set own.text_b, or name a teacher."
            )

    def check_model(self, model: Any) -> None:
        rates = [getattr(model, name, 0) for name in ("dropout", "attention_dropout")]
        if self.task is not None and not self.task.text_b and self.recipe.alpha and not any(rates):
            raise ConfigError(
                "without own.text_b each text is its own partner, with other dropout, but the model's dropout and "
                "attention_dropout are 0, so there is nothing to learn. Set encoder_dropout = 0.1, for example."
            )

    @property
    def name(self) -> str:
        return STSB if self.task is None else "own"

    @property
    def head(self) -> Any:
        names = ("pooling", "projection", "normalise", "sizes")
        options = {name: getattr(self.recipe.embedding, name) for name in names}
        return build_head(self.recipe, SentenceEmbedding, "embedding", **options)

    def objective(self, module: Any) -> Objective:
        names = ("loss", "temperature", "symmetric", "sizes", "l2", "directions", "relations")
        options = {name: getattr(self.recipe.embedding, name) for name in names}
        return self.head.objective(module, alpha=self.recipe.alpha, chunks=self.recipe.accumulate, **options)

    @property
    def notes(self) -> dict[str, str | int]:
        return {"scale": str(self._scale)}

    @property
    def _scale(self) -> float:
        """Divisor of similarities, which the cosine then equals; that of STS-B is its highest score, 5."""
        return 5.0 if self.task is None and self.recipe.scale == 1 else self.recipe.scale

    @property
    def dev(self) -> tuple[str, ...]:
        if self.task is None:
            return ("dev",)
        return (*(["dev"] if self.task.dev else []), *([STSB] if self.recipe.embedding.sts_dir else []))

    def read(self, name: str, directory: str) -> SplitExamples:
        if name == STSB:
            return GLUE[STSB].read("dev", self.recipe.embedding.sts_dir)
        return GLUE[STSB].read(name, directory) if self.task is None else self.task.read(name, directory)

    def check_labels(self, name: str, read: SplitExamples) -> None:
        unlabelled = [example for example in read.examples if example.label is None]
        if any(example.text_b is None for example in unlabelled):
            raise Unlabelled(f"the {name} set of {self.name} has single texts, so it cannot be scored.")
        if self.task is None and unlabelled:
            raise Unlabelled(f"the {name} set of {self.name} has no scores, so it cannot be scored.")

    def encode(self, examples: Sequence[Example], name: str, form: RowForm, purpose: Purpose = "score") -> TextSplit:
        """Encode each distinct text once. Texts with equal tokens count as the first of them.

        Raises ConfigError for a similarity, divided by the scale, that no cosine has.
        """
        options, scale = self.recipe.embedding, 5.0 if name == STSB else self._scale
        number: dict[str, int] = {}
        index = np.array(
            [
                [number.setdefault(text, len(number)) for text in (e.text_a, *filter(None, [e.text_b]), *e.negatives)]
                for e in examples
            ],
            np.int32,
        )
        distinct = [Example(str(i), text) for i, text in enumerate(number)]
        rows = encode(distinct, form.tokenizer, form.max_length, "texts", form.padding)
        texts, index, rows = _merge_equal(list(number), index, rows)
        similarity = None
        if examples[0].label is not None:
            similarity = np.array([example.label for example in examples], np.float32) / np.float32(scale)
            if np.abs(similarity).max() > 1:
                raise ConfigError(
                    f"{name} has a similarity of {np.abs(similarity).max() * scale:g}, and scale = {scale:g}. Set "
                    "scale to the highest similarity, because a cosine is at most 1."
                )
        kind = TrainingTexts if purpose == "train" else TextSplit
        split = kind(examples=examples, texts=texts, rows=rows, index=index, similarity=similarity)
        return replace(split, temperature=options.temperature, sizes=options.sizes)

    def read_splits(self, form: RowForm) -> tuple[Split, dict[str, Split], dict[str, dict[str, int]]]:
        """Read and encode the splits; raises ConfigError also if the loss or the scale does not fit the examples."""
        recipe, options = self.recipe, self.recipe.embedding
        train, dev, skipped = super().read_splits(form)
        similarities: dict[str, bool] = {
            name: getattr(split, "similarity", None) is not None for name, split in {"train": train, **dev}.items()
        }
        if recipe.alpha and similarities["train"] == (options.loss == "contrastive"):
            has = "similarities" if similarities["train"] else "no similarities"
            raise ConfigError(
                f"embedding.loss = {options.loss!r} does not fit the training examples, which have {has}. Use "
                f"{'cosine or cosent' if similarities['train'] else 'contrastive'}, or remove the column "
                f"{recipe.own.label!r}."
            )
        if recipe.scale != 1 and not any(labelled for name, labelled in similarities.items() if name != STSB):
            raise ConfigError(
                f"scale = {recipe.scale:g} has no effect, because the files have no similarities in a column "
                f"{recipe.own.label!r}. Remove scale, or name the column with own.label."
            )
        return train, dev, skipped

    def add_teacher(
        self, student: Any, train: Any, dev: Mapping[str, Any], teacher: Location, mesh: jax.sharding.Mesh
    ) -> tuple[Any, Mapping[str, Any], dict[str, Any]]:
        model = load_model.read_model(teacher)
        if not isinstance(model.head, SentenceEmbedding) or model.tokenizer is None:
            lacks = "tokenizer" if isinstance(model.head, SentenceEmbedding) else "head for embeddings"
            raise ConfigError(
                f"--teacher={teacher} has no {lacks}. Use a model that bertzoo trained with head = 'embedding', or a "
                "directory of sentence-transformers."
            )
        options = self.recipe.embedding
        width, size = model.head.width(model.model), self.head.width(student)
        if (options.l2 or options.directions) and size != width:
            raise ConfigError(
                f"the vectors have {size} dimensions, but those of --teacher={teacher} have {width}. Set "
                f"embedding.projection = {width}, or use embedding.relations without l2 and directions."
            )
        compared = [name for name, split in dev.items() if split.deciding == ("teacher_cosine",)]
        if compared and size != width:
            raise ConfigError(
                f"the vectors have {size} dimensions, but those of --teacher={teacher}, which {compared[0]} is "
                f"compared with, have {width}. Set embedding.projection = {width}, or score pairs: own.text_b, or "
                "embedding.sts_dir without own.dev."
            )
        record = {"path": resolve_name(teacher), "parameters_sha256": tensors.digest(model.params)}
        train_folder = (Path(self.recipe.data_dir) / (self.task.train if self.task else "")).parent
        folder = Path(options.vectors_dir or self.recipe.data_dir or train_folder)
        splits = {"train": train} | {name: dev[name] for name in compared}
        targets = {
            name: replace(split, teacher=teacher_vectors(model, split.texts, folder, self.recipe, mesh))
            for name, split in splits.items()
        }
        return targets["train"], {**dev, **{name: s for name, s in targets.items() if name != "train"}}, record


def _merge_equal(texts: list[str], index: np.ndarray, rows: Rows) -> tuple[list[str], np.ndarray, Rows]:
    """Keep the first of the texts with equal tokens; return the texts, `index` into them, and their rows."""
    number: dict[bytes, int] = {}
    merged = np.array(
        [
            number.setdefault(rows.ids[start : start + length].tobytes(), len(number))
            for start, length in zip(rows.starts, rows.lengths, strict=True)
        ],
        np.int32,
    )
    if len(number) == len(texts):
        return texts, index, rows
    first = np.unique(merged, return_index=True)[1]
    is_first = np.isin(np.arange(len(texts)), first)
    chosen = {name: getattr(rows, name)[is_first] for name in ("lengths", "middle", "cut")}
    keys, ids = tuple(rows.keys[i] for i in first), rows.ids[np.repeat(is_first, rows.lengths)]
    return [texts[i] for i in first], merged[index], replace(rows, keys=keys, ids=ids, **chosen)


def teacher_vectors(
    teacher: Any, texts: Sequence[str], folder: Path, recipe: Finetune, mesh: jax.sharding.Mesh
) -> np.ndarray:
    """Return the teacher's vectors of texts, (T,E) float16, as a memory map of a file in `folder`.

    The file's name has a hash of the teacher, the texts and the row length. A later call reads the file; one of another
    size is computed again. The suffix .part marks unfinished rows: after a kill, a call appends the missing ones. The
    teacher computes in the run's number format, with its own tokenizer. Raises WriteError for a full disk.
    """
    longest = min(recipe.max_length, teacher.model.max_positions)
    shape = (len(texts), teacher.head.width(teacher.model))
    row = shape[1] * np.dtype(np.float16).itemsize  # bytes of a vector
    name = f"vectors-{_fingerprint(teacher, texts, longest, recipe.compute.dtype)[:16]}.f16"
    file, partial = folder / name, folder / f"{name}.part"
    with atomic.wait_for(file):
        size = file.stat().st_size if file.is_file() else None
        if size is not None and size != len(texts) * row:
            _LOG.warning(f"{file} is damaged, so its vectors are computed again")
        if size != len(texts) * row:
            count = min(partial.stat().st_size // row, len(texts)) if partial.is_file() else 0
            _LOG.info(f"computing the teacher's vectors of {len(texts) - count:,} texts into {file}")
            model = EmbeddingModel(
                **{"path": folder, "pretrained": teacher, "tokenizer": teacher.tokenizer, "recipe": recipe},
                **{"task_name": "", "max_length": longest, "mesh": mesh},
            )
            try:
                with partial.open("ab") as out:
                    out.truncate(count * row)  # a kill may leave the beginning of a vector
                    for start in range(count, len(texts), _CHUNK):
                        out.write(model.embed(texts[start : start + _CHUNK]).astype(np.float16).tobytes())
                        out.flush()
                        os.fsync(out.fileno())
                partial.replace(file)
            except OSError as error:
                raise atomic.WriteError(
                    f"{file} was not written: {error.strerror or error}. Correct this, or set embedding.vectors_dir to "
                    "another folder."
                ) from error
    return np.memmap(file, np.float16, "r", shape=shape)


def _fingerprint(teacher: Any, texts: Sequence[str], longest: int, dtype: str) -> str:
    """Return a SHA-256 of everything that the teacher's vectors depend on, in hexadecimal."""
    tokenizer = teacher.tokenizer
    vocabulary = [label(tokenizer), asdict(replace(tokenizer.config, path=""))]
    facts = [tensors.digest(teacher.params), plain(teacher.model), plain(teacher.head), vocabulary, longest, dtype]
    sha = hashlib.sha256(repr(facts).encode())
    for text in texts:
        data = text.encode(errors="surrogatepass")
        sha.update(len(data).to_bytes(8, "little") + data)
    return sha.hexdigest()
