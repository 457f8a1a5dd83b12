"""Time models in their runtimes: write configs, models and exported files for their backends, and run all in turns."""

import logging
import math
import os
import re
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.benchmarking.interleave import Rounds, ratio, start_workers, take_turns
from bertzoo.benchmarking.options import BACKEND_NAMES, BenchmarkSettings
from bertzoo.benchmarking.worker import TEXT_INPUTS, LoadRequest
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core import config
from bertzoo.core.errors import UserError
from bertzoo.core.kinds import config_class
from bertzoo.core.machine import check_available
from bertzoo.core.tables import aligned
from bertzoo.export.companions import read_metadata
from bertzoo.export.formats import FileSettings, Target, flops_by_signature, targets
from bertzoo.export.graph.reference import training_graph
from bertzoo.export.lengths import USUAL, resolve_lengths
from bertzoo.export.litert.write import row_shapes, signature
from bertzoo.export.options import FORMAT_PRECISIONS, SINGLE, SUFFIXES, Precision
from bertzoo.heads import SequenceClassification, parameter_shapes
from bertzoo.models import Model
from bertzoo.nn.flops import flops_by_scope
from bertzoo.runs import load_model

BACKENDS = {SUFFIXES[name]: name for name in BACKEND_NAMES}  # by the suffix of the files that they run


@dataclass(frozen=True, kw_only=True)
class BenchmarkModel:
    """A model to time: `pretrained`, or an exported `file` with the content of its metadata JSON, {} if it has none."""

    name: str
    pretrained: Pretrained | None = None
    file: Path | None = None
    description: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_bert_base(self) -> bool:
        """Whether the model is a BERT of BERT-base's sizes."""
        model = self.pretrained and self.pretrained.model
        if model is None or model.kind != "bert":
            return False
        return (model.layers, model.hidden_size, model.heads, model.feed_forward_size) == (12, 768, 12, 3072)


def read_model(name: str, overrides: Sequence[tuple[str, str]] = ()) -> BenchmarkModel:
    """Read an exported file, a model directory, or a config with overrides and random weights.

    A model with a pretraining head, or without a head, becomes a classifier of two classes. Raises UserError if `name`
    is none of the three, the file's metadata JSON is damaged or belongs to another file, or the file takes texts.
    """
    path = Path(name)
    if path.suffix in BACKENDS:
        if not path.is_file():
            raise UserError(f"{name} does not exist. Write it with `bertzoo convert`.")
        description = read_metadata(path, "inputs", "precision", "head") or {}
        if description.get("format") == "onnx-text":
            raise UserError(
                f"{path} takes texts, but a benchmark times only files that take ids. Time the file of --to=onnx."
            )
        return BenchmarkModel(name=name, file=path, description=description)
    if path.is_dir():
        pretrained = load_model.read_model(path)
        if not pretrained.head.task_kind:  # the papers time a classifier instead
            pretrained = classifier(pretrained)
        return BenchmarkModel(name=name, pretrained=pretrained)
    model = config.load(config_class(name), [name], overrides).model
    return BenchmarkModel(name=name, pretrained=untrained(model, name))


def check_overrides(overrides: Sequence[tuple[str, str]], models: Sequence[BenchmarkModel]) -> None:
    """Raise UserError if there are overrides, but no model comes from a config."""
    if overrides and not any(model.pretrained and model.pretrained.source == {"format": "random"} for model in models):
        names = ", ".join(model.name for model in models)
        raise UserError(
            f"--{overrides[0][0]} applies to configs, but no MODEL is one: {names}. Name one, or leave it out."
        )


def untrained(model: Model, name: str) -> Pretrained:
    """Return a model with random weights and a classification head of two classes."""
    bare = Pretrained(model=model, head=None, params={}, tokenizer=None, origin=name, source={"format": "random"})
    return classifier(bare)


def classifier(pretrained: Pretrained) -> Pretrained:
    """Return the model with a classification head of two classes; parameters that the model lacks are random."""
    head = SequenceClassification()
    random = np.random.default_rng(0)

    def parameter(path: str, shape: tuple[int, ...]) -> np.ndarray:
        array = pretrained.params.get(path)
        if array is not None and array.shape == shape:
            return array
        if path.endswith(("scale", "bias")):
            return np.full(shape, float(path.endswith("scale")), np.float32)
        return 0.02 * random.standard_normal(shape, np.float32)  # times do not depend on it

    shapes = parameter_shapes(pretrained.model, head)
    check_available(sum(4 * math.prod(shape) for shape in shapes.values()), f"the model of {pretrained.origin}")
    params = {path: parameter(path, shape) for path, shape in shapes.items()}
    return replace(pretrained, head=head, params=params, generator=None, unused={})


def write_timed(
    target: Target, pretrained: Pretrained, file: Path, lengths: Sequence[int], precision: Precision
) -> dict[str, Any]:
    """Write a file for sequences of `lengths` tokens; return the fields of its metadata JSON that a benchmark reads."""
    graph = training_graph(pretrained)
    facts = target.make(pretrained, graph, FileSettings(lengths=tuple(lengths), precision=precision), file)
    model = pretrained.model
    return {
        "precision": precision,
        "parameters": pretrained.parameter_count,
        "model": {"vocab_size": model.vocab_size, "max_positions": model.max_positions},
        "head": {"kind": pretrained.head.kind},
        "inputs": list(graph.inputs),
        "flops": facts.get("flops") or flops_by_signature(graph, lengths),
    }


_LOG = logging.getLogger(__name__)

# Components of SqueezeBERT's Table 1, as patterns of Linen modules' scopes; the first match counts. The table counts
# attention_output in the FFN. BERT-base's projections are 24.3 %, attention 2.70 %, FFN 8.1 + 64.9 = 73.0 %.
COMPONENTS = {
    "embedding": r"/embedding/|/encoder/projection/",
    "projections": r"/layers_\d+/attention/(convolution/)?(query|key|value|gate)/",
    "attention_output": r"/layers_\d+/attention/output/",
    "attention": r"/layers_\d+/attention/",
    "feed_forward": r"/layers_\d+/feed_forward",
    "bottleneck": r"/layers_\d+/",
    "head": "",
}
ANY_VOCABULARY = 32  # vocabulary size assumed for files without a description


def flops_by_component(pretrained: Pretrained, length: int) -> dict[str, int]:
    """Count the FLOPs of a training graph's matrix products for `length` tokens, by name in COMPONENTS."""
    graph = training_graph(pretrained)
    counts = dict.fromkeys(COMPONENTS, 0)
    for scope, count in flops_by_scope(lambda graph, row: graph(**row), graph, row_shapes(graph, length)).items():
        counts[next(name for name, pattern in COMPONENTS.items() if re.search(pattern, scope))] += count
    return counts


@dataclass(frozen=True, kw_only=True)
class ComponentShares:
    """Shares (0 to 1) of a model's FLOPs for a sequence of `length` tokens, by name in COMPONENTS."""

    model: str
    length: int
    flops: dict[str, float]

    def lines(self) -> list[str]:
        """Return aligned lines of text: a title, the column names, each component's share in percent."""
        cells = [("part", "FLOPs %"), *((name, f"{100 * share:.1f}") for name, share in self.flops.items())]
        return [f"{self.model}, {self.length} tokens", *aligned(cells, 1)]


def speed(row: dict[str, Any], rows: Sequence[Mapping[str, Any]], base: str) -> float | None:
    """Return how many times as fast as `base` a row is (2.0: twice), or None if `base` lacks the row's setting."""
    setting = row | {"model": base}
    for other in rows:
        if all(other[name] == setting[name] for name in ("model", "backend", "threads", "length")):
            return ratio(other["rounds_ms"], row["rounds_ms"])
    return None


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return aligned lines of text: the column names, then one line for each row."""

    def optional(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    head = ["model", "backend", "precision", "threads", "length", "median ms", "mean ms", "speed", "file MB", "peak MB"]
    cells = [
        [
            row["model"],
            row["backend"],
            row["precision"] or "",
            str(row["threads"]),
            str(row["length"]),
            f"{row['median_ms']:.2f}",
            f"{row['mean_ms']:.2f}",
            optional(row["speed"], ".2f"),
            f"{row['file_bytes'] / 1e6:,.1f}",
            f"{row['peak_bytes'] / 1e6:,.1f}",
            optional(row["flops"] and row["flops"] / 1e9, ".2f"),
            optional(row["parameters"], ","),
        ]
        for row in rows
    ]
    return aligned([[*head, "GFLOPs", "parameters"], *cells], 3)


@dataclass(frozen=True, kw_only=True)
class BenchmarkResult:
    """A benchmark's measurements.

    runs: timed runs of each case.
    rounds: number of rounds, each with a share of every case's runs.
    base: name of the model to which speeds are relative.
    rows: of the JSON that `bertzoo benchmark --json` prints.
    parts: each model's FLOPs by component; empty unless requested.
    """

    runs: int
    rounds: int
    base: str
    rows: list[dict[str, Any]]
    parts: list[ComponentShares]

    def document(self) -> dict[str, Any]:
        """Return the object that `bertzoo benchmark --json` prints."""
        profiles = [{"model": part.model, "length": part.length, "flops": part.flops} for part in self.parts]
        return {
            "runs": self.runs,
            "rounds": self.rounds,
            "cores": os.cpu_count(),
            "speed_of": self.base,
            "rows": self.rows,
            "profiles": profiles,
        }

    def lines(self) -> list[str]:
        """Return the measurements as aligned lines of text, column names first."""
        note = f"speed: 2.0 is twice as fast as {self.base} with the same backend, threads and length"
        return [*table(self.rows), note]

    def _repr_html_(self) -> str:
        text = escape("\n".join(self.lines()))
        return f"<pre>{text}</pre>"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A file and how one process times it; description: of its metadata JSON or {}, length: None for the default."""

    model: str
    backend: str
    file: Path
    description: Mapping[str, Any]
    threads: int
    length: int | None

    def _model_size(self, name: str, default: int) -> int:
        return self.description.get("model", {}).get(name) or default

    def request(self) -> LoadRequest:
        """Return the request that makes a worker load this case."""
        vocabulary = self._model_size("vocab_size", ANY_VOCABULARY)
        inputs = tuple(self.description.get("inputs", TEXT_INPUTS))
        return LoadRequest(self.backend, str(self.file), self.threads, vocabulary, inputs)

    def resolve_length(self, available: Sequence[int]) -> int:
        """Return the sequence length to time, in tokens; raises UserError if it is not one of `available`.

        available: the file's lengths; empty if the file takes any length, or a range that its description has. If
        `self.length` is None, the result is 128 or, if the file does not take 128, the file's greatest length.
        """
        if (span := self.description.get("lengths")) and not available:
            shortest, longest = span["shortest"], span["longest"]
            if self.length is None:
                return min(max(USUAL, shortest), longest)
            if not shortest <= self.length <= longest:
                raise UserError(
                    f"--lengths={self.length} is not a length of {self.model}. Use {shortest} to {longest}."
                )
        if self.length is None and available:
            return USUAL if USUAL in available else max(available)
        if self.length is None:
            return min(USUAL, self._model_size("max_positions", USUAL))
        if available and self.length not in available:
            lengths = ", ".join(map(str, available))
            raise UserError(f"--lengths={self.length} is not a length of {self.model}. Use {lengths}.")
        return self.length

    def row(self, state: Mapping[str, Any], length: int, rounds: Rounds, peak: int) -> dict[str, Any]:
        """Return the row of `bertzoo benchmark --json` without its speed; state: the worker's, peak: in bytes."""
        times = [1e3 * second for runs in rounds for second in runs]
        return {
            "model": self.model,
            "backend": self.backend,
            "version": state["version"],
            "precision": self.description.get("precision"),
            "threads": state["threads"],
            "length": length,
            "head": self.description.get("head", {}).get("kind"),
            "median_ms": statistics.median(times),
            "mean_ms": statistics.fmean(times),
            "least_ms": min(times),
            "file_bytes": self.file.stat().st_size,
            "peak_bytes": peak,
            "runtime_bytes": state["empty"],
            "flops": self.description.get("flops", {}).get(signature(length)),
            "parameters": self.description.get("parameters"),
            "rounds_ms": [[1e3 * second for second in runs] for runs in rounds],
        }


def benchmark(
    models: Sequence[str],
    *,
    overrides: Sequence[tuple[str, str]] = (),
    settings: BenchmarkSettings | None = None,
    parts: bool = False,
) -> BenchmarkResult:
    """Time models in turns on this machine's CPU; each is loaded in a separate process.

    models: configs (random weights), model directories, or files of `bertzoo convert`. overrides: options of
    the configs. parts: also count each model's operations by component.

    Raises UserError if a model is named twice or cannot be read, or the settings do not apply to the models. Raises
    BenchmarkFailed if a model does not run.
    """
    settings = settings or BenchmarkSettings()
    if repeated := [name for name in models if list(models).count(name) > 1]:
        raise UserError(f"{repeated[0]} is named twice. Name every MODEL once.")
    loaded = [read_model(name, overrides) for name in models]
    check_overrides(overrides, loaded)
    if parts and all(model.pretrained is None for model in loaded):
        raise UserError(
            f"--profile counts a model's operations, but every MODEL is a file: {', '.join(models)}. Name a config or "
            "a model directory."
        )
    backends = {model.name: _backends(settings, model) for model in loaded}
    _check_backends(settings, loaded, backends)
    base = next((model.name for model in loaded if model.is_bert_base), loaded[0].name)
    with tempfile.TemporaryDirectory(prefix="bertzoo.") as folder:
        cases = [case for model in loaded for case in prepare(settings, model, backends[model.name], Path(folder))]
        requests = [(f"{case.model} in {case.backend}", case.request()) for case in cases]
        with start_workers(requests, str(settings.interpreter)) as workers:
            states = [worker.state for worker in workers]
            lengths = [case.resolve_length(state["lengths"]) for case, state in zip(cases, states, strict=True)]
            rounds = take_turns(workers, lengths, settings.runs, settings.rounds)
            measured = [
                case.row(worker.state, length, seconds, worker.peak())
                for case, worker, length, seconds in zip(cases, workers, lengths, rounds, strict=True)
            ]
    rows = [row | {"speed": speed(row, measured, base)} for row in measured]
    shares = [part for model in loaded for part in _component_shares(settings, model)] if parts else []
    return BenchmarkResult(runs=settings.runs, rounds=settings.rounds, base=base, rows=rows, parts=shares)


def _backends(settings: BenchmarkSettings, model: BenchmarkModel) -> list[str]:
    """Return the backends to time a model in; raises UserError if the settings exclude a file's only backend."""
    if model.file is None:
        return list(settings.backends or ["litert"])
    backend = BACKENDS[model.file.suffix]
    if settings.backends and backend not in settings.backends:
        names = ",".join(settings.backends)
        raise UserError(f"--backends={names} lacks {backend}, the only backend that runs {model.name}. Add {backend}.")
    return [backend]


def _check_backends(
    settings: BenchmarkSettings, models: Sequence[BenchmarkModel], backends: dict[str, list[str]]
) -> None:
    """Raise UserError if a backend cannot run here, runs no model, or has none of the requested precisions."""
    used = {name for names in backends.values() for name in names}
    written = {name for model in models if model.file is None for name in backends[model.name]}
    for name in settings.backends or ():
        if name not in used:
            raise UserError(f"--backends={name} runs none of {', '.join(backends)}. Leave {name} out.")
    if settings.precisions and not written:
        raise UserError(
            f"--precision applies to configs and model directories, but every MODEL is a file: {', '.join(backends)}. "
            "Leave --precision out."
        )
    for name in sorted(written):
        supported = FORMAT_PRECISIONS[name]
        missing = [precision for precision in settings.precisions or () if precision not in supported]
        if missing and len(missing) == len(settings.precisions or ()):
            raise UserError(
                f"--precision={','.join(missing)}: {name} has only {', '.join(supported)}. Add a precision of {name}."
            )
        for precision in missing:
            _LOG.info(f"left out: {precision}, which {name} does not have")
    formats = targets(settings.interpreter)
    for name in sorted(used):
        check = formats[name].check if name in written else formats[name].check_runtime
        check()
    if max(settings.threads) > (cores := os.cpu_count() or 1):
        _LOG.warning(f"{max(settings.threads)} threads share {cores} cores")


def prepare(
    settings: BenchmarkSettings, model: BenchmarkModel, backends: Sequence[str], folder: Path
) -> Iterator[Case]:
    """Yield a case for each backend, precision, thread count and length of a model.

    A model that is not a file is first written to `folder`, once for each backend and precision or, if the backend's
    files have a single length, once for each backend, precision and length.
    """

    def cases(backend: str, files: Mapping[Any, tuple[Path, Mapping[str, Any]]]) -> Iterator[Case]:
        for threads in settings.threads:
            for length, (file, facts) in files.items():
                yield Case(
                    model=model.name, backend=backend, file=file, description=facts, threads=threads, length=length
                )

    if model.pretrained is None:
        assert model.file is not None
        yield from cases(backends[0], dict.fromkeys(settings.lengths or [None], (model.file, model.description)))
        return
    lengths = resolve_lengths(model.pretrained, settings.lengths or ())
    for name in backends:
        target = targets(settings.interpreter)[name]
        for precision in settings.precisions or ["fp32"]:
            if precision not in FORMAT_PRECISIONS[name]:
                continue
            _LOG.info(f"writing {model.name} for {name}, {precision}")
            files = {}
            for group in [[length] for length in lengths] if name in SINGLE else [lengths]:
                file = folder / f"{len(list(folder.iterdir()))}{SUFFIXES[name]}"
                description = write_timed(target, model.pretrained, file, group, precision)  # pyright: ignore[reportArgumentType] (known)
                files |= dict.fromkeys(group, (file, description))
            yield from cases(name, files)


def _component_shares(settings: BenchmarkSettings, model: BenchmarkModel) -> Iterator[ComponentShares]:
    if model.pretrained is None:
        return
    for length in resolve_lengths(model.pretrained, settings.lengths or ()):
        counts = flops_by_component(model.pretrained, length)
        total = sum(counts.values())
        present = {name: count / total for name, count in counts.items() if count}
        yield ComponentShares(model=model.name, length=length, flops=present)
