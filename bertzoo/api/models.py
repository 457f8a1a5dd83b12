"""Functions that use a model: load, evaluate, predict, convert, plan, benchmark."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bertzoo.api.options import (
    BenchmarkOptions,
    ConvertOptions,
    EvaluateOptions,
    PlanOptions,
    PredictOptions,
    check_python,
    config_files,
    output_folder,
)
from bertzoo.core import config as loader
from bertzoo.core.errors import UserError
from bertzoo.core.kinds import config_class, kind_of_files
from bertzoo.core.options import reject, takes
from bertzoo.core.tables import Record, Records, table
from bertzoo.export.options import ExportOptions

if TYPE_CHECKING:
    import numpy as np

    from bertzoo.benchmarking.benchmark import BenchmarkResult
    from bertzoo.export.convert import Converted
    from bertzoo.planning.estimate import RunPlan


class Loaded(NamedTuple):
    """A loaded model.

    model: a Linen module.
    params: the parameters of `model`.
    tokenizer: the model's tokenizer; None if the directory or checkpoint has no tokenizer.
    """

    model: Any
    params: Any
    tokenizer: Any

    def _repr_html_(self) -> str:
        import jax

        parameters = sum(array.size for array in jax.tree.leaves(self.params))
        tokens = self.tokenizer and f"{self.tokenizer.vocab_size:,} tokens"
        return table({"model": type(self.model).__name__, "parameters": f"{parameters:,}", "tokenizer": tokens})


def load(path: Path | str) -> Loaded:
    """Load the model at a path or URL: a run or one of its checkpoints, a model directory, a Hugging Face directory, or
    an original TensorFlow 1 checkpoint of BERT, MobileBERT, ELECTRA or ConvBERT.

    The model takes ids, token types and the mask, each (B,L). A masked language model takes the positions to predict as
    a fourth array (B,P) and returns `masked_logits` (B,P,V); any other head returns `logits`. The tokenizer reads
    "[MASK]" as plain text, unless you pass `specials=True`.

    >>> import jax, numpy as np
    >>> model, params, tokenizer = bertzoo.load("tiny")
    >>> ids = np.array(tokenizer.encode_batch(["[CLS] a [MASK] [SEP]"], specials=True))
    >>> output = jax.jit(model.apply)({"params": params}, ids, 0 * ids, ids >= 0)
    >>> output.hidden_states[-1].shape
    (1, 4, 24)
    >>> output.pooled.shape
    (1, 24)
    """
    from bertzoo.runs.load_model import read_model

    pretrained = read_model(path)
    return Loaded(*pretrained.module(), pretrained.tokenizer)


_FINETUNED_ONLY = ("task", "data_dir", "seed", "batch_size", "python", "split", "input", "output")


@takes(EvaluateOptions, prints=True)
def evaluate(options: EvaluateOptions) -> dict[str, Any]:
    """Measure a model, as `bertzoo evaluate` does.

    For a pretraining run, returns held-out losses (nats), metrics and the unigram entropy.

    For a fine-tuned model or its exported file, returns the task, the number of examples by split, and `scores`
    in points by split and metric.
    """
    return Record(measure(options)[0])


def measure(options: EvaluateOptions) -> tuple[dict[str, Any], str]:
    """Return what `evaluate` returns, and a noun for a fine-tuned model's examples, empty for a pretraining run."""
    from bertzoo.export.file_model import is_pretraining, open_task_model
    from bertzoo.finetuning.evaluate import evaluate_split
    from bertzoo.runs.load_model import evaluate_run, load_run

    path = options.path
    if is_pretraining(path):
        reject(options, _FINETUNED_ONLY, f"{path}, which is a pretraining run")
        checkpoint: Any = "latest" if options.checkpoint is None else options.checkpoint
        return evaluate_run(load_run(path, checkpoint), options.corpus, options.stage), ""
    reject(options, ("checkpoint", "corpus", "stage"), f"{path}, which is a fine-tuned model")
    model = open_task_model(path, options.seed, options.batch_size, options.python)
    questions = model.kind == "span"
    if not questions:
        reject(options, ("output",), f"{path}, which is a model that predicts labels")
    results = evaluate_split(
        model,
        split=options.split or "",
        task=options.task or "",
        data_dir=str(options.data_dir or ""),
        batch_size=options.batch_size or 0,
        input=str(options.input or ""),
        output=None if options.output is None else output_folder(options.output),
    )
    return results, "question" if questions else "example"


@takes(PredictOptions)
def predict(options: PredictOptions) -> list[dict[str, Any]]:
    """Return a model's predictions, in the order of the texts, as `bertzoo predict` does.

    Each prediction is a dict. Its keys depend on the model:

    - classification: `label` and `probability`
    - classification with several labels per text: `labels`, the labels whose probability is above 0.5, and
      `probabilities`, a dict {label: probability} of all labels
    - regression: `number`
    - token classification: `words` and `tags`
    - entities, also of token classification with `aggregation`: `entities`, a list with a dict `start`, `end`, `label`,
      `score` and `text` for each; `start` and `end` index the text's characters
    - several heads: `heads`, a dict {name of a head: its prediction}
    - question answering: `answer`, `start` and `end`
    - masked language model: `blanks`, a list with a dict {token: probability} for each `[MASK]`
    """
    from bertzoo.finetuning import evaluate
    from bertzoo.runs.blanks import BlankFiller

    if isinstance(texts := options.texts, str):
        raise UserError(f"texts is one text, {texts[:40]!r}. Give a list of texts.")
    path, model = options.path, open_predictor(options)
    if not isinstance(model, BlankFiller):
        return Records(evaluate.predict_texts(model, texts, options.batch_size or 0))
    if pairs := [text for text in texts if not isinstance(text, str)]:
        raise UserError(f"{path} fills blanks in single texts, but a text is {pairs[0]!r}. Pass texts, not pairs.")
    return Records(model.records([str(text) for text in texts], options.top))


def open_predictor(options: PredictOptions, more: Sequence[str] = ()) -> Any:
    """Open the model that predicts: a `BlankFiller` for masked language models, else a `TaskModel`.

    more: further options that apply only to fine-tuned models.
    """
    from bertzoo.export.file_model import is_pretraining, open_model
    from bertzoo.runs.blanks import BlankFiller, run_filler

    path = options.path
    if is_pretraining(path):
        reject(options, ("seed", "batch_size", "python", "aggregation", *more), f"{path}, which is a pretraining run")
        checkpoint: Any = "latest" if options.checkpoint is None else options.checkpoint
        return run_filler(path, checkpoint)
    reject(options, ("checkpoint",), f"{path}, which is not a pretraining run")
    model = open_model(path, options.seed, options.batch_size, options.python)
    if isinstance(model, BlankFiller):
        reject(options, ("batch_size", "aggregation", *more), f"{path}, which is a masked language model")
        return model
    reject(options, ("top",), f"{path}, which is a fine-tuned model")
    return model.with_aggregation(options.aggregation) if options.aggregation else model


class TextEncoder:
    """A model that embeds texts. Its methods and their arguments have the names that sentence-transformers uses.

    >>> encoder = bertzoo.TextEncoder("embedder")
    >>> vectors = encoder.encode(["a b", "c"])
    >>> encoder.similarity(vectors, vectors).shape
    (2, 2)
    """

    def __init__(self, path: Path | str, *, seed: int | None = None, python: Path | str | None = None):
        """Open a run, a model directory or an exported file. seed, python: as in `evaluate`."""
        from bertzoo.export.file_model import open_embedding_model

        program = None if python is None else check_python("python", python)
        self._model = open_embedding_model(path, seed, None, program)
        self.tokenizer = self._model.tokenizer

    @property
    def max_seq_length(self) -> int:
        """Greatest number of tokens of a text; longer texts are cut or averaged (`encode`)."""
        return self._model.max_length

    def get_sentence_embedding_dimension(self) -> int:
        """Return the number of dimensions of a vector."""
        return self._model.width

    def encode(
        self,
        sentences: str | Sequence[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 0,
        truncate_dim: int | None = None,
        precision: Literal["float32", "int8", "binary"] = "float32",
        normalize_embeddings: bool = False,
        long: Literal["cut", "average"] = "cut",
    ) -> "np.ndarray":
        """Return the vectors of texts, (N,E), or of one text, (E,).

        prompt_name: a prompt that the model records, by default its default prompt; prompt: the prompt itself, which is
        put before each text. batch_size: texts in a batch; 0: as in training. truncate_dim: first dimensions to keep.
        precision: as in `bertzoo embed`. normalize_embeddings: scale vectors to length 1. long: of a text with more
        tokens than `max_seq_length`, embed the beginning, or average its pieces. Raises UserError for a wrong argument.
        """
        import numpy as np

        from bertzoo.finetuning.embed import quantised, unit_vectors

        if prompt_name is not None and prompt is not None:
            raise UserError(f"prompt_name = {prompt_name!r} and prompt = {prompt!r} exclude each other. Keep one.")
        quantised(np.zeros((0, 8), np.float32), precision)  # raises for an unknown precision
        text = self._model.prompt(prompt_name) if prompt is None else prompt
        single = isinstance(sentences, str)
        vectors = self._model.embed(
            [sentences] if single else list(sentences),
            prompt=text,
            size=truncate_dim or 0,
            long=long,
            batch_size=batch_size,
        )
        vectors = quantised(unit_vectors(vectors) if normalize_embeddings else vectors, precision)
        return vectors[0] if single else vectors

    def encode_query(self, sentences: str | Sequence[str], **options: Any) -> "np.ndarray":
        """Return the vectors of queries: `encode` with the prompt that the model records for them, if any."""
        from bertzoo.finetuning.embed import QUERY

        return self._encode_role(sentences, QUERY, options)

    def encode_document(self, sentences: str | Sequence[str], **options: Any) -> "np.ndarray":
        """Return the vectors of documents: `encode` with the prompt that the model records for them, if any."""
        from bertzoo.finetuning.embed import DOCUMENT

        return self._encode_role(sentences, DOCUMENT, options)

    def _encode_role(
        self, sentences: str | Sequence[str], names: tuple[str, ...], options: dict[str, Any]
    ) -> "np.ndarray":
        if options.get("prompt_name") is None and options.get("prompt") is None:
            options = options | {"prompt": self._model.prompt(None, *names)}
        return self.encode(sentences, **options)

    @staticmethod
    def similarity(first: "np.ndarray", second: "np.ndarray") -> "np.ndarray":
        """Return the cosines of vectors (M,E) and (N,E), (M,N).

        Bits, which are uint8, count as 1 and -1: the cosine is 1 if all bits are equal and -1 if all differ. Raises
        UserError if only one of the arrays is uint8.
        """
        import numpy as np

        from bertzoo.finetuning.embed import unit_vectors

        first, second = np.atleast_2d(first), np.atleast_2d(second)
        if (bits := first.dtype == np.uint8) != (second.dtype == np.uint8):
            raise UserError(
                f"vectors of {first.dtype} and of {second.dtype} cannot be compared, because uint8 holds bits. Encode "
                "both with the same precision."
            )
        if bits:
            first, second = (2 * np.unpackbits(x, axis=-1).astype(np.float32) - 1 for x in (first, second))
        return unit_vectors(first) @ unit_vectors(second).T


def embed(
    path: Path | str, texts: Sequence[str], *, seed: int | None = None, python: Path | str | None = None, **options: Any
) -> "np.ndarray":
    """Return the vectors of texts, (N,E), as `bertzoo embed` does.

    seed, python: as in `evaluate`. options: those of `TextEncoder.encode`.
    """
    if isinstance(texts, str):
        raise UserError(f"texts is one text, {texts[:40]!r}. Give a list of texts.")
    return TextEncoder(path, seed=seed, python=python).encode(texts, **options)


@takes(ConvertOptions, prints=True)
def convert(options: ConvertOptions) -> dict[str, Any] | None:
    """Convert a model, as `bertzoo convert` does; return a file's metadata JSON, or None for a directory.

    huggingface, bertzoo and pytorch write a directory; litert, mediapipe, onnx, onnx-text and executorch a file. A file
    is written only if its outputs agree with the model's.
    """
    description = run_conversion(options).description
    return description and Record(description)


def run_conversion(options: ConvertOptions) -> "Converted":
    from bertzoo.benchmarking.interleave import memory_of_file
    from bertzoo.export.convert import convert

    values = {name: getattr(options, name) for name in ExportOptions.__dataclass_fields__}
    for name in ("calibration", "python"):
        values[name] = values[name] and Path(values[name])
    return convert(options.source, Path(options.destination), ExportOptions(**values), memory_of_file)


@takes(PlanOptions, prints=True)
def plan(options: PlanOptions) -> "RunPlan":
    """Estimate a run on a TPU slice such as "v5e:16x16", as `bertzoo plan` does.

    Returns, for each stage, the bytes of memory and the seconds per step; for the run, the chip-hours and dollars.
    """
    return plan_run(options)


def plan_run(options: PlanOptions) -> "RunPlan":
    from bertzoo.planning import estimate
    from bertzoo.pruning.settings import Prune
    from bertzoo.runs.configs import Pretrain, Transfer

    overrides = loader.as_options(options.overrides)
    if isinstance(config := options.config, Pretrain | Transfer | Prune):
        recipe = loader.changed(config, overrides)
    else:
        files = config_files(config)
        pruning = kind_of_files(*files).config() is Prune
        recipe = loader.load(Prune if pruning else config_class(*files), files, overrides)
    if isinstance(recipe, Prune):
        reject(options, ("cache_dir",), "a pruning, which is planned without the compiler")
        # Assume that no iteration cuts anything, and that a step of prune vectors costs as much as one of all weights.
        recipes = {"weigh": recipe.scoring_recipe(recipe.model), "tuning": recipe.tuning_recipe(recipe.model)}
        plans = {
            name: estimate.plan(training, options.topology, compile_steps=False, price=options.price)
            for name, training in recipes.items()
        }
        iterations = recipe.cut.iterations
        note = f"{iterations} iterations, estimated with the unpruned model's sizes: a cut makes steps cheaper"
        return estimate.join_plans(plans, iterations, note)
    return estimate.plan(
        recipe, options.topology, compile_steps=options.compile_steps, cache_dir=options.cache_dir, price=options.price
    )


@takes(BenchmarkOptions, prints=True)
def benchmark(options: BenchmarkOptions) -> "BenchmarkResult":
    """Measure speed, size and memory of models in their runtimes, as `bertzoo benchmark` does.

    overrides: keys and values for the configs among `models`, such as `{"model.layers": 6}`.
    """
    return run_benchmark(options)


def run_benchmark(options: BenchmarkOptions) -> "BenchmarkResult":
    from bertzoo.benchmarking.benchmark import benchmark

    if isinstance(options.models, str | Path):
        raise UserError(f"models is one name, {str(options.models)!r}. Give a list of names.")
    names = [str(model) for model in options.models]
    return benchmark(names, overrides=loader.as_options(options.overrides), settings=options, parts=options.parts)
