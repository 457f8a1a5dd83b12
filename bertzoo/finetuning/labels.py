"""Tasks that label a text, a pair of texts or every word: training, scores and predictions."""

import hashlib
import json
import logging
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import jax
import numpy as np

from bertzoo.conversion import tensors
from bertzoo.conversion.pretrained import Pretrained, source_number
from bertzoo.core.errors import ConfigError
from bertzoo.core.paths import Location, resolve_name
from bertzoo.finetuning.settings import Finetune
from bertzoo.finetuning.task_kind import (
    Predictions,
    Purpose,
    RowForm,
    Split,
    SplitOutputs,
    TaskKind,
    Unlabelled,
    build_head,
)
from bertzoo.heads import SequenceClassification, TokenClassification
from bertzoo.heads.labels import CLASS_WEIGHT, PROBLEMS, TEACHER, LabelledObjective
from bertzoo.runs import load_model
from bertzoo.runs.runner import FlaxRunner, Outputs
from bertzoo.tasks import decision, metrics
from bertzoo.tasks.decision import sigmoid, softmax
from bertzoo.tasks.entities import labels_of
from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.predictions import label_records
from bertzoo.tasks.rows import Slot, bucket_lengths, encode, padded
from bertzoo.tasks.squad_tasks import SQUAD
from bertzoo.tasks.task import Example, SplitExamples, Task, double_unordered

if TYPE_CHECKING:
    from bertzoo.finetuning.evaluate import TaskModel

_LOG = logging.getLogger(__name__)

_WEIGHTS = 4_000_000  # largest number of a simple classifier's weights, which take some 170 bytes each
_MOST = 20_000  # training examples of simple classifiers, evenly spaced, for a minute at most
CLASSIFIERS = ("classification", "multi_label")  # kinds of tasks


@dataclass(frozen=True, kw_only=True)
class LabelSplit(Split):
    """Encoded examples of a split, each with a label, any number of labels, word tags or a number.

    scale: a regression's output times `scale` is the predicted number.
    teacher: a teacher's logits for each example and label, (N,C), to train on; None without.
    weights: weight of each label in the loss, (C,); None without. thresholds: as in `SequenceClassification`.
    """

    task: Task
    scale: float = 1.0
    teacher: np.ndarray | None = None
    weights: np.ndarray | None = None
    thresholds: tuple[float, ...] | None = None

    @property
    def deciding(self) -> tuple[str, ...]:
        """All metrics in points or, for multi_label, the first (by default micro-F1)."""
        if self.task.kind == "multi_label":
            return self.task.metrics[:1]
        return tuple(filter(metrics.in_points, self.task.metrics)) or self.task.metrics

    @property
    def digest(self) -> str:
        """SHA-256 of the examples as the model reads them, with their labels if only some have one, in hexadecimal."""
        if self.rows.label is not None:
            return self.rows.digest
        labels = json.dumps([example.label for example in self.examples], default=int)
        return hashlib.sha256((self.rows.digest + labels).encode()).hexdigest()

    def batch(self, slot: Slot, batch_size: int) -> dict[str, np.ndarray]:
        """Return the arrays of a planned batch, by name; numbers are divided by `scale`."""
        batch = super().batch(slot, batch_size)
        if self.teacher is not None:
            batch[TEACHER] = padded(self.teacher[slot.rows].astype(np.float32), batch_size)
        if self.weights is not None and self.task.kind == "multi_label":
            batch[CLASS_WEIGHT] = np.where(batch["label"] > 0, self.weights, np.float32(1))
        elif self.weights is not None:
            batch["row_weight"] *= self.weights[batch["label"]]
        if self.scale != 1 and "label" in batch:
            return {**batch, "label": (batch["label"] / self.scale).astype(np.float32)}
        return batch

    def predict(self, slots: Sequence[Slot], outputs: Sequence[Outputs]) -> Any:
        """Return predictions in the order of the examples, as in Predictions.values."""
        if self.task.kind == "tokens":
            return self.rows.restore_words(slots, [output["logits"].argmax(-1) for output in outputs])
        return self.predict_texts(self.logits(slots, outputs))

    def predict_texts(self, logits: np.ndarray) -> np.ndarray:
        """Return the predictions for texts, whose logits are (N,C)."""
        if self.thresholds:
            several = self.task.kind == "multi_label"
            return decision.predict((sigmoid if several else softmax)(logits), self.thresholds, several)
        if self.task.kind == "multi_label":
            return (logits > 0).astype(np.int32)
        return logits[:, 0].astype(np.float64) * self.scale if self.task.kind == "regression" else logits.argmax(-1)

    def add_teacher(self, logits: np.ndarray) -> "LabelSplit":
        """Return the split with a teacher's logits (N,C); its predictions are the labels of examples without one."""
        rows = self.rows
        if rows.label is None:
            labels = [example.label for example in self.examples]
            predicted = self.predict_texts(logits)
            filled = [value if label is None else label for label, value in zip(labels, predicted, strict=True)]
            rows = replace(rows, label=np.array(filled, np.float32 if self.task.kind == "regression" else np.int32))
        return replace(self, teacher=logits, rows=rows)

    def logits(self, slots: Sequence[Slot], outputs: Sequence[Outputs]) -> np.ndarray:
        """Return the logits (N,C) in the order of the examples."""
        return self.rows.restore(slots, [output["logits"] for output in outputs])

    def probabilities(self, slots: Sequence[Slot], outputs: Sequence[Outputs]) -> Any:
        """Return the probabilities of the labels, as in Predictions."""
        if self.task.kind == "tokens":
            return self.rows.restore_words(slots, [softmax(output["logits"]).max(-1) for output in outputs])
        activation = sigmoid if self.task.kind == "multi_label" else softmax
        return None if self.task.kind == "regression" else activation(self.logits(slots, outputs))

    def is_finite(self, predictions: Any) -> bool:
        return self.task.kind != "regression" or bool(np.isfinite(predictions).all())

    def scores(self, predictions: Any) -> dict[str, float]:
        if not self.is_finite(predictions):
            return dict.fromkeys(self.task.metrics, 0.0)
        labels = [example.label for example in self.examples]
        points = metrics.score(self.task, predictions, labels)
        if self.thresholds:
            points |= decision.precision_recall(predictions, np.array(labels), len(self.task.labels))
        return points

    def distinct(self, predictions: Any) -> set[Any]:
        """Return the distinct predictions; numbers, divided by `scale`, are rounded to 6 decimals."""
        if self.task.kind == "regression":
            return set(np.round(predictions / self.scale, 6).tolist())
        if self.task.kind == "multi_label":
            return set(map(tuple, predictions.tolist()))
        classes = np.concatenate(predictions) if self.task.kind == "tokens" else predictions
        return set(np.unique(classes).tolist()) - {-1}  # -1: a word that was cut off, or no label


@dataclass(frozen=True)
class LabelTask(TaskKind):
    """A task whose examples have a label, any number of labels, a number, or a tag for each word."""

    task: Task

    @classmethod
    def named(cls, model: "TaskModel", name: str, data_dir: str) -> Self:
        """Return a task with labels. Without labels in the config, the task `own` gets those of the model's head."""
        if not name:
            raise ConfigError(f"{model.path} does not record its task. Name a task with --task.")
        if name in SQUAD:
            raise ConfigError(
                f"{model.path} is fine-tuned for {model.kind}, but {name} has questions. Name a task with labels."
            )
        if name == "own":
            own = model.recipe.own
            names = labels_of(model.labels) if own.kind == "entities" else model.labels
            own = own if own.labels else replace(own, labels=names)
            return cls(model.recipe, own.task(data_dir or model.recipe.data_dir))
        if name not in GLUE:
            raise ConfigError(f"task = {name!r} is unknown. Use one of {', '.join((*GLUE, 'own'))}.")
        return cls(model.recipe, GLUE[name])

    @classmethod
    def unnamed(cls, model: "TaskModel") -> Self:
        limits = GLUE[model.task_name].range if model.task_name in GLUE else None
        read: Any = None
        return cls(
            model.recipe, Task(name="", kind=model.kind, metrics=(), read=read, labels=model.labels, range=limits)
        )

    def adapt(self, model: "TaskModel") -> "TaskModel":
        if self.task.kind != model.kind:
            raise ConfigError(
                f"{model.path} is fine-tuned for tasks of kind {model.kind}, but {self.name} is of kind "
                f"{self.task.kind}. Name a task of kind {model.kind}."
            )
        order = label_order(model.pretrained.head.labels, self.task, str(model.path))
        file = model.file
        if file is not None and order is not None:
            file = file.then(lambda outputs: outputs | {"logits": outputs["logits"][..., order]})
        return replace(model, pretrained=relabel(model.pretrained, self.task, str(model.path)), file=file)

    @property
    def dev(self) -> tuple[str, ...]:
        return self.task.dev

    def data_sets(self, split: str) -> tuple[str, ...]:
        return self.task.data_sets(split)

    def check(self) -> None:
        recipe, task = self.recipe, self.task
        if not task.train or not task.dev:
            lacking, key = ("development", "dev") if task.train else ("training", "train")
            raise ConfigError(f"task = {task.name} has no {lacking} examples. Set own.{key}.")
        if not any(map(metrics.in_points, task.metrics)):
            raise ConfigError(
                f"metrics = {list(task.metrics)} has no score that grows with the quality, to choose an epoch by. Add "
                "pearson or spearman."
            )
        if recipe.own.unlabelled and recipe.alpha == 1:
            raise ConfigError(
                f"own.unlabelled = {recipe.own.unlabelled!r} needs a teacher. Name it with --teacher and set alpha "
                "below 1, or remove own.unlabelled."
            )
        if recipe.threshold != "none" and not hasattr(self.head, "thresholds"):
            raise ConfigError(
                f"threshold = {recipe.threshold!r} does not apply to head = {recipe.head!r}, which has none. Remove it."
            )
        weights = recipe.class_weights
        if weights and weights != "balanced" and len(weights) != len(task.labels):
            raise ConfigError(
                f"class_weights = {list(weights)} has {len(weights)} weights, but {task.name} has the labels "
                f"{', '.join(task.labels)}. Give one weight for each label, in this order."
            )
        if recipe.double_unordered and not task.symmetric:
            raise ConfigError(
                "double_unordered applies only to tasks on pairs of texts whose order is irrelevant, not to "
                f"{task.name}. Remove it."
            )

    @property
    def head(self) -> Any:
        tags = self.task.kind in ("tokens", "entities")
        return build_head(
            self.recipe,
            TokenClassification if tags else SequenceClassification,
            "tokens" if tags else self.task.kind,
            labels=self.task.labels or ("number",),  # a regression has a single output
            hidden=self.recipe.hidden,
            dropout=self.recipe.dropout,
            problem_type=PROBLEMS[self.task.kind],
            pooler=self.recipe.pooler and not tags,
        )

    def check_labels(self, name: str, read: SplitExamples) -> None:
        if unlabelled := sum(example.label is None for example in read.examples):
            raise Unlabelled(
                f"the {name} set of {self.name} has no label for {unlabelled:,} of its {len(read.examples):,} "
                "examples, so it cannot be scored."
            )

    @property
    def notes(self) -> dict[str, str | int]:
        return {"scale": str(self.recipe.scale)}

    def add_teacher(
        self, student: Any, train: LabelSplit, dev: Mapping[str, Any], teacher: Location, mesh: jax.sharding.Mesh
    ) -> tuple[LabelSplit, Mapping[str, Any], dict[str, Any]]:
        logits, record = teacher_logits(teacher, self.recipe, self.task, train.examples, mesh)
        return train.add_teacher(logits), dev, record

    def draw_subset(self, examples: list[Example]) -> list[Example]:
        most, drawn, counts = self.recipe.per_class, [], Counter[int]()
        if not most:
            labelled = [example for example in examples if example.label is not None]
            return super().draw_subset(labelled) + [example for example in examples if example.label is None]
        for index in self.shuffled(len(examples)):
            labels = self._labels(examples[index])
            if examples[index].label is None or any(counts[label] < most for label in labels):
                drawn.append(index)
                counts.update(labels)
        fewer = [f"{name} {counts[i]}" for i, name in enumerate(self.task.labels) if counts[i] < most]
        if fewer:
            _LOG.info(f"train: fewer than {most} examples of {', '.join(fewer)}")
        return [examples[index] for index in sorted(drawn)]

    def _labels(self, example: Example) -> list[int]:
        """Return the indices of an example's labels: [-1] if none applies, [] if they are unknown."""
        label: Any = example.label
        if label is None:
            return []
        return ([i for i, flag in enumerate(label) if flag] or [-1]) if self._several else [label]

    def _class_weights(self, examples: Sequence[Example]) -> np.ndarray | None:
        """Return the weight of each label, (C,), or None.

        Those that are "balanced" are N / (C · examples of the label), as in scikit-learn. For multi_label, they are
        examples without the label / examples with it.
        """
        weights, size = self.recipe.class_weights, len(self.task.labels)
        if weights == "balanced":
            counts = Counter(label for example in examples for label in self._labels(example))
            count = np.maximum([counts[label] for label in range(size)], 1)
            total = sum(example.label is not None for example in examples)
            weights = total / count - 1 if self._several else total / (size * count)
            if not np.all(weights):
                name = self.task.labels[int(np.argmin(weights))]
                raise ConfigError(
                    f'class_weights = "balanced" gives the label {name!r} the weight 0, because every training example '
                    "has it. Write the weights as a list."
                )
        return np.array(weights, np.float32) if len(weights) else None

    def finish(
        self, model: Pretrained, dev: Mapping[str, Any], outputs: SplitOutputs
    ) -> tuple[Pretrained, dict[str, Any] | None]:
        """Return the model with the temperature in its output layer and thresholds, and the document of `decide`."""
        recipe = self.recipe
        if (arrays := self._join_splits(dev, outputs)) is None:
            return model, None
        temperature, thresholds, document = decision.decide(
            *arrays, self.task.labels, self._several, recipe.calibrate, recipe.threshold, recipe.min_precision
        )
        if recipe.calibrate:
            layer = output_layer(model, self.name)
            scaled = {name: array / np.float32(temperature) for name, array in layer.items()}
            model = replace(model, params=model.params | scaled, source=model.source | {"temperature": temperature})
        if thresholds:
            model = replace(model, head=replace(model.head, thresholds=thresholds))
        return model, document

    def measures(self, splits: Mapping[str, Any], outputs: SplitOutputs) -> dict[str, float]:
        if (arrays := self._join_splits(splits, outputs)) is None:
            return {}
        logits, labels = arrays
        chances = (sigmoid if self._several else softmax)(logits)
        return {"ece": decision.reliability(chances, labels, self._several)["ece"]}

    @property
    def _several(self) -> bool:
        return self.task.kind == "multi_label"

    def _join_splits(self, splits: Mapping[str, Any], outputs: SplitOutputs) -> tuple[np.ndarray, np.ndarray] | None:
        """Return a classifier's logits and labels of all splits; None for another kind, or if a logit is not finite."""
        if self.task.kind not in CLASSIFIERS or not outputs:
            return None
        logits = np.concatenate([split.logits(*outputs[name]) for name, split in splits.items()])
        labels = np.array([example.label for split in splits.values() for example in split.examples])
        return (logits, labels) if np.isfinite(logits).all() else None

    def compare(self, train: LabelSplit, dev: Mapping[str, Any], words: np.ndarray) -> dict[str, Any]:
        """Score simple classifiers, which a fine-tuned model should beat; {} if the task's kind is not in CLASSIFIERS.

        Returns `rows`, the number of training examples in use, and `scores` of each classifier by split and metric.

        The classifiers are the most common label, and logistic regressions on tf-idf of words and pairs of words, and
        on the mean of the model's word embeddings, `words` (V,E), before training. They have the class weights of
        `train`, except for multi_label.
        """
        if self.task.kind not in CLASSIFIERS:
            return {}
        import scipy.sparse
        from sklearn.dummy import DummyClassifier
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.multiclass import OneVsRestClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        def texts(split: LabelSplit, chosen: Sequence[int]) -> list[str]:
            return [" ".join(split.examples[row].texts) for row in chosen]

        def vectors(split: LabelSplit, chosen: Sequence[int]) -> np.ndarray:
            rows = split.rows
            ends = np.append(rows.starts, len(rows.ids))
            counts = scipy.sparse.csr_array(
                (np.ones(len(rows.ids), np.float32), rows.ids, ends), (len(rows), len(words))
            )
            return counts[chosen] @ words / rows.lengths[chosen, None]

        labelled = [row for row, example in enumerate(train.examples) if example.label is not None]
        drawn = labelled[:: -(-len(labelled) // _MOST)]
        labels: Any = np.array([train.examples[row].label for row in drawn])
        weights = None if self._several or train.weights is None else dict(enumerate(train.weights.tolist()))
        model: Any = LogisticRegression(max_iter=1000, class_weight=weights)
        if self._several:
            model = OneVsRestClassifier(model)
        elif len(np.unique(labels)) < 2:
            model = DummyClassifier()
        most = _WEIGHTS // max(2, len(self.task.labels))
        tokens = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]", max_features=most)
        models = {
            "the most common label": (texts, DummyClassifier()),
            "logistic regression on tf-idf": (texts, make_pipeline(tokens, model)),
            "logistic regression on the model's word embeddings": (vectors, make_pipeline(StandardScaler(), model)),
        }
        scores = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a label that all or no examples have
            for name, (read_features, classifier) in models.items():
                classifier.fit(read_features(train, drawn), labels)
                scores[name] = {
                    split_name: split.scores(classifier.predict(read_features(split, range(len(split.examples)))))
                    for split_name, split in dev.items()
                }
        return {"rows": len(drawn), "scores": scores}

    def encode(self, examples: Sequence[Example], name: str, form: RowForm, purpose: Purpose = "score") -> LabelSplit:
        if purpose == "train" and self.recipe.double_unordered:
            examples = double_unordered(examples)
        bare = [example._replace(label=None) for example in examples] if purpose == "predict" else examples
        rows = encode(bare, form.tokenizer, form.max_length, self.task.kind, form.padding)
        weights = self._class_weights(examples) if purpose == "train" else None
        return LabelSplit(task=self.task, examples=examples, rows=rows, scale=self.recipe.scale, weights=weights)

    def decode(self, split: LabelSplit, slots: Sequence[Slot], outputs: Sequence[Outputs]) -> Predictions:
        """Return labels, numbers or tags. A number is clipped to the task's limits."""
        rows, values = split.rows, split.predict(slots, outputs)
        if self.task.range is not None:
            values = np.clip(values, *self.task.range)
        chances = split.probabilities(slots, outputs)
        empty = sum(
            not (pair.text_a.strip() and (pair.text_b is None or pair.text_b.strip())) for pair in split.examples
        )
        records = label_records(split.examples, self.task.labels, values, chances, rows.cut)
        counts = [(int(rows.cut.sum()), f"cut to {rows.max_length} tokens"), (empty, "empty")]
        return Predictions(values, chances, rows.cut, records, counts)


def relabel(model: Pretrained, task: Task, origin: str) -> Pretrained:
    """Return the model with its outputs in the order of the task's labels; raises ConfigError if the labels differ.

    Case is ignored, and the task's aliases count as labels. Labels without a name (LABEL_0) are assumed to be in the
    task's order, which is logged. origin: the model's name in messages.
    """
    if (order := label_order(model.head.labels, task, origin)) is None:
        return model
    if _are_nameless(model.head.labels, task):
        _LOG.info(
            f"{origin} names its labels LABEL_0 and so on; they are read as {', '.join(task.labels)}. Check this order "
            "with the model's author."
        )
    layer = {name: array[..., order] for name, array in output_layer(model, origin).items()}
    values = getattr(model.head, "thresholds", None)
    changes = {"thresholds": tuple(values[index] for index in order)} if values else {}
    return replace(model, params=model.params | layer, head=replace(model.head, labels=task.labels, **changes))


def output_layer(model: Pretrained, origin: str) -> dict[str, np.ndarray]:
    """Return the parameters of the layer that computes the logits; raises TypeError if they have other names.

    The model of an exported file has no parameters. origin: the model's name in messages.
    """
    names = {f"{module}/output/{leaf}" for module in model.head.parameters for leaf in ("kernel", "bias")}
    layer = {name: array for name, array in model.params.items() if name in names}
    if model.params and not layer:
        raise TypeError(
            f"the labels of {origin} cannot be reordered or calibrated: its head {model.head.kind} has none of the "
            f"parameters {', '.join(sorted(names))}. Name the head's output layer `output`, and its path in "
            "`parameters`."
        )
    return layer


def name_classes(model: Pretrained) -> Pretrained:
    """Return the model with class names for GLUE's labels, such as "positive" for SST-2's label 1.

    A model that does not record a task of GLUE, or has other labels, is returned unchanged.
    """
    task = GLUE.get(model.source.get("task", ""))
    if task is None or getattr(model.head, "labels", ()) != task.labels:
        return model
    return replace(model, head=replace(model.head, labels=task.class_names))


def label_order(labels: tuple[str, ...], task: Task, origin: str) -> list[int] | None:
    """Return, for each label of the task, its index in a model's `labels`; None if nothing must be reordered.

    Matches labels and raises ConfigError as `relabel` does.
    """
    expected = task.labels
    if len(labels) != (len(expected) or 1):
        raise ConfigError(
            f"{origin} has {len(labels)} labels, but {task.name} has {len(expected) or 1}. Use a model of this task."
        )
    if not expected or labels == expected:
        return None
    by_name = {name.casefold(): label for name, label in task.aliases.items()}
    by_name |= {label.casefold(): label for label in expected}
    names = labels if set(labels) == set(expected) else [by_name.get(label.casefold(), label) for label in labels]
    if set(names) == set(expected):
        return [names.index(label) for label in expected]
    if not _are_nameless(labels, task):
        raise ConfigError(
            f"{origin} has the labels {', '.join(labels)}, but {task.name} has {', '.join(expected)}. Use a model of "
            "this task."
        )
    return list(range(len(labels)))


def _are_nameless(labels: tuple[str, ...], task: Task) -> bool:
    return set(labels) != set(task.labels) and all(label.startswith("LABEL_") for label in labels)


def teacher_logits(
    path: Location, recipe: Finetune, task: Task, examples: Sequence[Example], mesh: jax.sharding.Mesh
) -> tuple[np.ndarray, dict[str, str]]:
    """Return the teacher's logits (examples, labels), and the teacher's path and parameter hash for run.json.

    A regression's logits are rescaled to the `scale` of `recipe`, the student's config. The teacher uses its own
    tokenizer. Raises ConfigError if the teacher lacks a tokenizer or the task's labels, or if only one of teacher and
    task allows several labels of a text.
    """
    model = load_model.read_model(path)
    tokenizer = model.tokenizer
    if not isinstance(model.head, SequenceClassification) or tokenizer is None:
        lacks = "tokenizer" if isinstance(model.head, SequenceClassification) else "head for labels"
        raise ConfigError(f"--teacher={path} has no {lacks}. Use a model fine-tuned on {task.name}.")
    several = model.head.task_kind == "multi_label"
    if several != (task.kind == "multi_label"):
        number = ("one label", "any number of labels")
        raise ConfigError(
            f"--teacher={path} predicts {number[several]} per text, but {task.name} has {number[not several]} per "
            f"text. Use a model fine-tuned on {task.name}."
        )
    record = {"path": resolve_name(path), "parameters_sha256": tensors.digest(model.params)}
    _LOG.info(f"computing the teacher's predictions of {len(examples):,} examples")
    model = relabel(model, task, f"--teacher={path}")
    module, params = model.module()
    longest = min(recipe.max_length, model.model.max_positions)
    rows = encode(examples, tokenizer, longest, task.kind, model.model.padding_seen)
    predict = LabelledObjective(module).predict
    lengths = bucket_lengths([rows], recipe.buckets, longest)
    slots, outputs = FlaxRunner(predict, params, mesh, recipe.batch_size, lengths).run_all(rows)
    scale = source_number(model.source, "scale", 1.0) / recipe.scale
    return rows.restore(slots, [output["logits"] for output in outputs]) * np.float32(scale), record
