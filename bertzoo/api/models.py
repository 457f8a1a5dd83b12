"""Functions that use a model: load, evaluate, predict, convert, plan, benchmark."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bertzoo.api.arguments import (
    Config,
    config_files,
    location,
    on_disk,
    reject,
    resolve,
    speaking,
)

if TYPE_CHECKING:
    import numpy as np

    from bertzoo.benchmarking.benchmark import BenchmarkResult
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


def load(path: Path | str) -> Loaded:
    """Load the model at a path or URL: a run or one of its checkpoints, a model directory, a Hugging Face directory, or
    an original TensorFlow 1 checkpoint of BERT, MobileBERT, ELECTRA or ConvBERT.

    The model takes ids, token types and the mask, each (B,L). A masked language model takes the positions to predict as
    a fourth array (B,P) and returns `masked_logits` (B,P,V); any other head returns `logits`. `model.apply` raises
    UserError if an array is missing. The tokenizer reads "[MASK]" as plain text, unless you pass `specials=True`.

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


@speaking
def evaluate(
    path: Path | str,
    *,
    checkpoint: str | int | None = None,
    stage: int | None = None,
    corpus: str | None = None,
    split: str | None = None,
    task: str | None = None,
    data_dir: Path | str | None = None,
    seed: int | None = None,
    batch_size: int | None = None,
    input: Path | str | None = None,
    output: Path | str | None = None,
    python: Path | str | None = None,
) -> dict[str, Any]:
    """Measure a model, as `bertzoo evaluate` does.

    For a pretraining run, returns held-out losses (nats), metrics and the unigram entropy, and takes:
    checkpoint: latest, best or a step (default: latest).
    stage: the stage whose row length applies (default: the last).
    corpus: the present path or URL of the run's corpus, if it has moved.

    For a fine-tuned model or its exported file, returns the task, the number of examples by split, and `scores`
    in points by split and metric, and takes:
    split: train, dev or test (default: dev).
    task, data_dir: the task and its data (default: as in training).
    seed: for a run of several seeds, the seed whose model to evaluate (default: the best seed).
    batch_size: rows per batch (default: as in training).
    input: a file of rows to score instead of a split.
    output: a folder for the answers of a question-answering model.
    python: for a .pte file, a Python that has executorch.

    """
    from bertzoo.export.file_model import is_pretraining, open_task_model
    from bertzoo.finetuning import evaluate
    from bertzoo.runs.load_model import evaluate_run, load_run

    if not is_pretraining(path):
        reject(path, "not a pretraining run", checkpoint=checkpoint, stage=stage, corpus=corpus)
        return evaluate.evaluate_split(
            open_task_model(path, seed, batch_size, on_disk(python, "python")),
            split=split or "",
            task=task or "",
            data_dir=str(data_dir or ""),
            batch_size=batch_size or 0,
            input=str(input or ""),
            output=on_disk(output, "output"),
        )
    only = {
        "split": split,
        "task": task,
        "data_dir": data_dir,
        "seed": seed,
        "batch_size": batch_size,
        "input": input,
        "output": output,
        "python": python,
    }
    reject(path, "a pretraining run", **only)
    which: Any = "latest" if checkpoint is None else checkpoint
    return evaluate_run(load_run(path, which), corpus, stage)


def predict(
    path: Path | str,
    texts: Sequence[str] | Sequence[tuple[str, str]],
    *,
    top: int | None = None,
    checkpoint: str | int | None = None,
    seed: int | None = None,
    batch_size: int | None = None,
    python: Path | str | None = None,
) -> list[dict[str, Any]]:
    """Return a model's predictions, in the order of the texts, as `bertzoo predict` does.

    texts: texts, or pairs of texts for a task on pairs. For question answering, a pair is (question, context).
    top: how many tokens a masked language model returns for each `[MASK]` (default: 5).
    checkpoint: for a pretraining run; as in `evaluate`.
    seed, batch_size, python: as in `evaluate`.

    Each prediction is a dict. Its keys depend on the model:

    - classification: `label` and `probability`
    - classification with several labels per text: `labels`, the labels whose probability is above 0.5, and
      `probabilities`, a dict {label: probability} of all labels
    - regression: `number`
    - token classification: `words` and `tags`
    - question answering: `answer`, `start` and `end`
    - masked language model: `blanks`, a list with a dict {token: probability} for each `[MASK]`
    """
    from bertzoo.core.errors import UserError
    from bertzoo.export.file_model import is_pretraining, open_model
    from bertzoo.finetuning import evaluate
    from bertzoo.runs.blanks import BlankFiller, run_filler

    if isinstance(texts, str):
        raise UserError(f"texts is one text, {texts[:40]!r}. Give a list of texts.")
    if is_pretraining(path):
        reject(path, "a pretraining run", seed=seed, batch_size=batch_size, python=python)
        which: Any = "latest" if checkpoint is None else checkpoint
        model = run_filler(path, which)
    else:
        reject(path, "not a pretraining run", checkpoint=checkpoint)
        model = open_model(path, seed, batch_size, on_disk(python, "python"))
    if not isinstance(model, BlankFiller):
        reject(path, "a fine-tuned model", top=top)
        return evaluate.predict_texts(model, texts, batch_size or 0)
    reject(path, "a masked language model", batch_size=batch_size)
    if pairs := [text for text in texts if not isinstance(text, str)]:
        raise UserError(f"{path} fills blanks in single texts, but a text is {pairs[0]!r}. Pass texts, not pairs.")
    return model.records([str(text) for text in texts], top)


class TextEncoder:
    """A model that embeds texts. Its methods and their arguments have the names that sentence-transformers uses.

    >>> encoder = bertzoo.TextEncoder("embedder")
    >>> vectors = encoder.encode(["a b", "c"])
    >>> encoder.similarity(vectors, vectors).shape
    (2, 2)
    """

    def __init__(
        self,
        path: Path | str,
        *,
        seed: int | None = None,
        python: Path | str | None = None,
    ):
        """Open a run, a model directory or an exported file. seed, python: as in `evaluate`."""
        from bertzoo.export.file_model import open_embedding_model

        self._model = open_embedding_model(path, seed, None, on_disk(python, "python"))
        self.tokenizer = self._model.tokenizer

    @property
    def max_seq_length(self) -> int:
        """Greatest number of tokens of a row."""
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
        precision: as in `bertzoo embed`. normalize_embeddings: give vectors the length 1. long: what becomes of a text
        with more tokens than a row. Raises UserError for a wrong argument.
        """
        import numpy as np

        from bertzoo.core.errors import UserError
        from bertzoo.finetuning.embed import quantised
        from bertzoo.finetuning.text_split import unit_vectors

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
        found = quantised(unit_vectors(vectors) if normalize_embeddings else vectors, precision)
        return found[0] if single else found

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

        from bertzoo.core.errors import UserError
        from bertzoo.finetuning.text_split import unit_vectors

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
    path: Path | str,
    texts: Sequence[str],
    *,
    seed: int | None = None,
    python: Path | str | None = None,
    **options: Any,
) -> "np.ndarray":
    """Return the vectors of texts, (N,E), as `bertzoo embed` does.

    seed, python: as in `evaluate`. options: those of `TextEncoder.encode`.
    """
    from bertzoo.core.errors import UserError

    if isinstance(texts, str):
        raise UserError(f"texts is one text, {texts[:40]!r}. Give a list of texts.")
    return TextEncoder(path, seed=seed, python=python).encode(texts, **options)


@speaking
def convert(source: Path | str, destination: Path | str, *, to: str, **options: Any) -> dict[str, Any] | None:
    """Convert a model, as `bertzoo convert` does; return a file's metadata JSON, or None for a directory.

    to: huggingface, bertzoo and pytorch write a directory; litert, mediapipe, torch-export, torchscript, onnx,
    onnx-text and executorch write a file. A file appears only if its outputs agree with the model's.
    options: fields of `bertzoo.export.options.ExportOptions`, such as `lengths=(64, 128)`, `precision="int8-dynamic"`,
    `head="none"`.
    """
    from bertzoo.benchmarking.interleave import memory_of_file
    from bertzoo.core import config as loader
    from bertzoo.export.convert import convert
    from bertzoo.export.options import ExportOptions

    loader.check_fields("convert", ExportOptions, options)
    for name in ("calibration", "python"):
        if options.get(name) is not None:
            options[name] = Path(options[name])
    source, destination = location(source, "source"), on_disk(destination, "destination")
    return convert(source, destination, ExportOptions(to=to, **options), memory_of_file).description


@speaking
def plan(
    config: Config,
    *,
    topology: str,
    overrides: Mapping[str, Any] | None = None,
    compile_steps: bool = True,
    cache_dir: Path | str | None = None,
    price: float | None = None,
) -> "RunPlan":
    """Estimate a pretraining or transfer run on a TPU slice such as "v5e:16x16", as `bertzoo plan` does.

    Returns, for each stage, the bytes of memory and the seconds per step; for the run, the chip-hours and dollars.

    compile_steps: whether to compile every stage's step if libtpu is installed. This takes minutes per stage.
    cache_dir: folder for the compiler's results, which later calls reuse (default: ~/.cache/bertzoo/plans).
    price: dollars per chip-hour; None omits the dollars.
    """
    from bertzoo.core.kinds import config_class
    from bertzoo.planning import estimate
    from bertzoo.runs.configs import Pretrain, Transfer

    if isinstance(config, Pretrain | Transfer):
        recipe = resolve(type(config), config, overrides)
    else:
        files = config_files(config)
        recipe = resolve(config_class(*files), files, overrides)
    return estimate.plan(
        recipe,
        topology,
        compile_steps=compile_steps,
        cache_dir=cache_dir,
        price=price,
    )


@speaking
def benchmark(
    models: Sequence[Path | str],
    *,
    overrides: Mapping[str, Any] | None = None,
    parts: bool = False,
    **settings: Any,
) -> "BenchmarkResult":
    """Measure speed, size and memory of models in their runtimes, as `bertzoo benchmark` does.

    models: names of shipped configs, runs, model directories or exported files.
    overrides: keys and values for the configs among `models`, such as `{"model.layers": 6}`.
    parts: whether to count FLOPs by part, such as attention.
    settings: fields of `bertzoo.benchmarking.benchmark.BenchmarkSettings`, such as `backends=("litert",)`,
    `lengths=(128,)`, `threads=(1, 4)`.
    """
    from bertzoo.benchmarking.benchmark import BenchmarkSettings, benchmark
    from bertzoo.core import config as loader
    from bertzoo.core.errors import UserError

    loader.check_fields("benchmark", BenchmarkSettings, settings)
    if settings.get("python") is not None:
        settings["python"] = Path(settings["python"])
    if isinstance(models, str | Path):
        raise UserError(f"models is one name, {str(models)!r}. Give a list of names.")
    names = [str(model) for model in models]
    pairs = loader.as_options(overrides or {})
    return benchmark(names, overrides=pairs, settings=BenchmarkSettings(**settings), parts=parts)
