"""Every command as a function: the same settings, and a result object instead of printed text.

config: the name of a shipped config, a file, several of them (later ones win), or a config object. overrides: the
command line's options by key, such as `{"stages.0.steps": 100, "optimizer.learning_rate": 2e-3}`. tell: receives each
line for the user; None silences a function. Every function raises UserError on wrong input. A signal raises Stopped
after a checkpoint; the same call resumes.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

if TYPE_CHECKING:
    from bertzoo.benchmarking.benchmark import BenchmarkResult
    from bertzoo.planning.estimate import RunPlan

T = TypeVar("T")
Config = Any  # a name, a path, a sequence of these, or a config object
Say = Callable[[str], None]


class Loaded(NamedTuple):
    """A model. model: a Linen module; params: its parameters; tokenizer: None if the source has none."""

    model: Any
    params: Any
    tokenizer: Any


class Run(NamedTuple):
    """A finished training run. run_dir: its directory, or its URL; step: the last step."""

    run_dir: Path | str
    step: int

    @property
    def metrics(self) -> dict[str, float]:
        """The last held-out losses and metrics."""
        from bertzoo.runs.report.page import read_history
        from bertzoo.runs.run_dir import RunDirectory

        run = RunDirectory(self.run_dir)
        run.fetch()
        lines = read_history(run.metrics).heldout
        return dict(lines[-1]) if lines else {}

    def load(self) -> Loaded:
        """Load the model with its newest parameters."""
        return load(self.run_dir)


class FineTuned(NamedTuple):
    """A finished fine-tuning run. run_dir: its directory; results: what its results.json holds."""

    run_dir: Path
    results: dict[str, Any]

    @property
    def score(self) -> dict[str, dict[str, float]]:
        """The median over seeds, by split and metric, in points."""
        return self.results["median"]

    def predict(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Apply the model of the best seed to texts, as `bertzoo.predict`."""
        return predict(self.run_dir, texts)


def load(path: Path | str) -> Loaded:
    """Load the model at `path`: a run or one of its checkpoints, a model directory, a Hugging Face directory, or an
    original TensorFlow 1 checkpoint of BERT, MobileBERT, ELECTRA or ConvBERT.

    A masked language model takes the positions to predict as a fourth array (B,P) and returns `masked_logits` (B,P,V);
    any other head returns `logits`.

    >>> import jax, numpy as np
    >>> model, params, tokenizer = bertzoo.load("tiny")
    >>> words = [tokenizer.specials.cls, *tokenizer.encode_batch(["a model"])[0], tokenizer.specials.sep]
    >>> ids = np.array([words])
    >>> output = jax.jit(model.apply)({"params": params}, ids, 0 * ids, ids >= 0)
    >>> output.hidden_states[-1].shape
    (1, 4, 24)
    >>> output.pooled.shape
    (1, 24)
    """
    from bertzoo.runs.any_model import read_model

    pretrained = read_model(path)
    return Loaded(*pretrained.module(), pretrained.tokenizer)


def tokenize(
    source: Path | str, destination: Path | str, *, overrides: Mapping[str, Any] | None = None, workers: int = 0
) -> dict[str, Any]:
    """Tokenise text into a corpus, as `bertzoo tokenize`; return its manifest.

    source: files, as `data.source` names them. destination: a directory, or a URL. overrides: keys of [data], such as
    `{"data.tokenizer.vocab_size": 8000}`. workers: processes, 0 for one per core.
    """
    from dataclasses import replace

    from bertzoo.core.errors import UserError
    from bertzoo.core.paths import is_url
    from bertzoo.data.corpus.tokenize import write_corpus
    from bertzoo.data.settings import CorpusConfig

    if "data.source" in (overrides or {}):
        raise UserError(
            f"overrides has data.source = {(overrides or {})['data.source']!r}, and source = {source!r}. Remove it."
        )
    data = replace(_resolved(CorpusConfig, (), overrides).data, source=str(source))
    place = str(destination) if is_url(str(destination)) else _on_disk(destination, "destination")
    return write_corpus(data, place, workers=workers, tell=lambda line: None).raw


def pretrain(
    config: Config,
    *,
    run_dir: Path | str,
    overrides: Mapping[str, Any] | None = None,
    from_model: Path | str | None = None,
    workers: int = 0,
    tell: Say | None = print,
) -> Run:
    """Pretrain a model, or resume the run, as `bertzoo pretrain`.

    from_model: the model that a new run starts from. workers: processes that tokenise, 0 for one per core.
    """
    from bertzoo.runs import open_run
    from bertzoo.runs.pretrain_config import Pretrain

    recipe = _resolved(Pretrain, config, overrides)
    return Run(run_dir, open_run.pretrain(recipe, run_dir, _on_disk(from_model, "from_model"), _options(workers, tell)))


def transfer(
    config: Config,
    *,
    run_dir: Path | str,
    teacher: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    workers: int = 0,
    tell: Say | None = print,
) -> Run:
    """Train a student with a teacher, or resume, as `bertzoo transfer`; a resumed run finds its teacher in run.json."""
    from bertzoo.runs import open_run
    from bertzoo.runs.transfer_config import Transfer

    recipe = _resolved(Transfer, config, overrides)
    return Run(run_dir, open_run.transfer(recipe, run_dir, _on_disk(teacher, "teacher"), None, _options(workers, tell)))


def prune(
    config: Config,
    *,
    run_dir: Path | str,
    from_model: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    workers: int = 0,
    tell: Say | None = print,
) -> Path:
    """Prune a model to a budget (schuBERT), or resume, as `bertzoo prune`; return the directory of the pruned model."""
    from bertzoo.pruning.run import prune
    from bertzoo.pruning.settings import Prune

    return prune(
        _resolved(Prune, config, overrides), run_dir, _on_disk(from_model, "from_model"), _options(workers, tell)
    ).model.absolute()


def finetune(
    config: Config = "finetune",
    *,
    run_dir: Path | str,
    from_model: Path | str | None = None,
    teacher: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    tell: Say | None = print,
) -> FineTuned:
    """Fine-tune a model on a task over several seeds, or resume, as `bertzoo finetune`.

    overrides: at least `task` and `data_dir` for a shipped config. from_model: may be None for a resumed run.
    """
    from bertzoo.finetuning import run
    from bertzoo.finetuning.settings import Finetune

    recipe = _resolved(Finetune, config, overrides)
    models = _on_disk(from_model, "from_model"), _on_disk(teacher, "teacher")
    return FineTuned(Path(run_dir), run.train(recipe, str(run_dir), *models, tell or _silent))


def evaluate(
    path: Path | str,
    *,
    split: str | None = None,
    data_dir: Path | str | None = None,
    checkpoint: str | int | None = None,
) -> dict[str, Any]:
    """Measure a model, as `bertzoo evaluate`.

    A fine-tuned model: its task, the number of examples and `scores` by split and metric, in points, on `split` (train,
    dev or test; default dev) of the files in `data_dir` (default: the training files' folder).
    A pretraining run: its held-out losses and
    metrics, with the unigram entropy, at a `checkpoint` (latest, best or a step; default latest).
    """
    from bertzoo.finetuning import evaluate
    from bertzoo.finetuning.saved_model import is_finetuned
    from bertzoo.runs.load_run import evaluate_run, load_run

    if is_finetuned(path):
        _reject(path, "a fine-tuned model", checkpoint=checkpoint)
        return evaluate.evaluate_split(evaluate.load_model(path), split=split or "dev", data_dir=str(data_dir or ""))
    _reject(path, "a pretraining run", split=split, data_dir=data_dir)
    which: Any = "latest" if checkpoint is None else checkpoint
    return evaluate_run(load_run(path, which))


def predict(
    path: Path | str, texts: Sequence[str] | Sequence[tuple[str, str]], *, top: int | None = None
) -> list[dict[str, Any]]:
    """Apply a model to texts, in their order, as `bertzoo predict`.

    A fine-tuned model returns for each text, or pair of texts, `label` and `probability`, or `number`, or `words` and
    `tags`; a model of questions takes pairs of a question and its context and returns `answer`, `start`, `end`. A
    pretraining run fills every `[MASK]`: `blanks` has for each the `top` (default 5) likeliest tokens with their
    probabilities.
    """
    from bertzoo.core.errors import UserError
    from bertzoo.finetuning import evaluate
    from bertzoo.finetuning.saved_model import is_finetuned
    from bertzoo.runs.load_run import fill_blanks, load_run

    if isinstance(texts, str):
        raise UserError(f"texts is one text, {texts[:40]!r}. Give a list of texts.")
    if is_finetuned(path):
        _reject(path, "a fine-tuned model", top=top)
        return evaluate.predict_texts(evaluate.load_model(path), texts)
    if pairs := [text for text in texts if not isinstance(text, str)]:
        raise UserError(f"{path} is a pretraining run, which fills the blanks of single texts, not of {pairs[0]!r}")
    loaded = load_run(path)
    entries = loaded.tokenizer.vocab_size
    if top is not None and not 1 <= top <= entries:
        raise UserError(f"top={top} is not between 1 and the {entries} entries of the vocabulary")
    filled = [fill_blanks(loaded, str(text), "[MASK]", top or 5) for text in texts]
    return [
        {"text": text, "blanks": [dict(zip(b.tokens, b.probabilities, strict=True)) for b in blanks]}
        for text, blanks in zip(texts, filled, strict=True)
    ]


def convert(
    source: Path | str, destination: Path | str, *, to: str, tell: Say | None = print, **options: Any
) -> dict[str, Any] | None:
    """Convert a model to a directory or a file, as `bertzoo convert`; return a file's description or None.

    to: huggingface, bertzoo or pytorch for a directory; litert, torch-export, torchscript, onnx or executorch for a
    file, which is verified against the model before it appears. options: fields of
    `bertzoo.export.options.ExportOptions`, such as `lengths=(64, 128)`, `precision="int8-dynamic"`, `head="none"`.
    """
    from bertzoo.benchmarking.interleave import memory_of_file
    from bertzoo.export.convert import convert
    from bertzoo.export.options import ExportOptions

    _known("convert", ExportOptions, options)
    for name in ("calibration", "python"):
        if options.get(name) is not None:
            options[name] = Path(options[name])
    paths = _on_disk(source, "source"), _on_disk(destination, "destination")
    return convert(*paths, ExportOptions(to=to, **options), tell or _silent, memory_of_file).description


def plan(
    config: Config,
    *,
    topology: str,
    overrides: Mapping[str, Any] | None = None,
    compile_steps: bool = True,
    cache_dir: Path | str | None = None,
    price: float | None = None,
    tell: Say | None = print,
) -> "RunPlan":
    """Plan a pretraining or a transfer on an absent TPU slice such as "v5e:16x16", as `bertzoo plan`.

    compile_steps: compile every stage's step if libtpu is installed (minutes each), or read results from `cache_dir`.
    price: dollars per chip-hour. The result holds memory in bytes, time and cost by stage.
    """
    from bertzoo.planning import electra_flops, estimate
    from bertzoo.runs.kind import recipe_class

    if isinstance(config, str | Path):
        recipe, name = _resolved(recipe_class(config), config, overrides), Path(config).stem
    else:
        cls = recipe_class(*config) if isinstance(config, Sequence) else type(config)
        recipe, name = _resolved(cls, config, overrides), ""
    return estimate.plan(
        recipe,
        topology,
        compile_steps=compile_steps,
        cache_dir=cache_dir,
        price=price,
        # A paper's figure holds for its config without changes.
        published=None if overrides else electra_flops.PUBLISHED_FLOPS.get(name),
        tell=tell or _silent,
    )


def benchmark(
    models: Sequence[Path | str],
    *,
    overrides: Mapping[str, Any] | None = None,
    parts: bool = False,
    tell: Say | None = print,
    **settings: Any,
) -> "BenchmarkResult":
    """Measure speed, size and memory of models in their runtimes, in turns, as `bertzoo benchmark`.

    models: names of shipped configs, runs, model directories or exported files. overrides: keys of the configs' model.
    parts: also count the FLOPs of each part. settings: fields of `bertzoo.benchmarking.benchmark.BenchmarkSettings`,
    such as `backends=("litert",)`, `lengths=(128,)`, `threads=(1, 4)`.
    """
    from bertzoo.benchmarking.benchmark import BenchmarkSettings, benchmark

    _known("benchmark", BenchmarkSettings, settings)
    if settings.get("python") is not None:
        settings["python"] = Path(settings["python"])
    names = [str(model) for model in models]
    pairs = list(_as_options(overrides or {}))
    return benchmark(names, overrides=pairs, settings=BenchmarkSettings(**settings), parts=parts, tell=tell or _silent)


def _known(function: str, cls: type, options: Mapping[str, Any]) -> None:
    """Raise UserError for an option that is not a field of `cls`."""
    from dataclasses import fields

    from bertzoo.core.errors import UserError

    names = {field.name for field in fields(cls)}
    if unknown := sorted(options.keys() - names):
        raise UserError(f"{function} has no option {unknown[0]}. Its options are {', '.join(sorted(names))}.")


def _resolved(cls: type[T], config: Config, overrides: Mapping[str, Any] | None) -> T:
    """Return the config object that the arguments describe."""
    from bertzoo.core import config as loader

    pairs = list(_as_options(overrides or {}))
    if isinstance(config, cls):
        return loader.changed(config, pairs)
    files = [config] if isinstance(config, str | Path) else list(config)
    return loader.load(cls, files, pairs)


def _as_options(overrides: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield keys and values as the command line has them."""
    for key, value in overrides.items():
        if isinstance(value, str | Path):
            yield key, str(value)
        else:
            yield key, "none" if value is None else json.dumps(value)


def _options(workers: int, tell: Say | None) -> Any:
    from bertzoo.runs.open_run import Options

    return Options(workers=workers, tell=tell or _silent, console=tell is not None)


def _reject(path: Path | str, what: str, **arguments: Any) -> None:
    """Raise UserError for an argument that does not apply to what the path holds."""
    from bertzoo.core.errors import UserError

    for name, value in arguments.items():
        if value is not None:
            raise UserError(f"{name}={value!r} does not apply to {what}, which {path} holds. Leave it out.")


@overload
def _on_disk(name: None, argument: str) -> None: ...
@overload
def _on_disk(name: Path | str, argument: str) -> Path: ...
@overload
def _on_disk(name: Path | str | None, argument: str) -> Path | None: ...
def _on_disk(name: Path | str | None, argument: str) -> Path | None:
    """Return a path on this machine; raises UserError for a URL."""
    from bertzoo.core.paths import on_disk

    return None if name is None else on_disk(name, f"{argument} =", "copy it to this machine and name the copy")


def _silent(line: str) -> None:
    pass
