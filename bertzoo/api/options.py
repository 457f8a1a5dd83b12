"""The options of the commands that are also functions, and the values that functions derive from them.

Their fields are flags and arguments (`core/options.py`).
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, MISSING, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from bertzoo.benchmarking.options import BenchmarkSettings
from bertzoo.core import config as loader
from bertzoo.core import paths
from bertzoo.core.atomic import check_folder
from bertzoo.core.config import Overrides
from bertzoo.core.errors import UserError
from bertzoo.core.options import option
from bertzoo.core.paths import Location
from bertzoo.export.options import ExportOptions

Config = Any  # a name, a path, a sequence of these, or a config object
Checkpoint = int | Literal["latest", "best"]
PRETRAINED = "for a pretraining run"
finetuned = partial(option, group="for a fine-tuned model or an exported file")
_planning = partial(option, group="planning")
_MODEL = (
    "a run, one of its checkpoints, a model or Hugging Face directory, a TensorFlow 1 checkpoint, or a URL of one of "
    "these"
)


def _checkpoint(text: str) -> Checkpoint:
    if text == "latest" or text == "best":
        return text
    if text.isdecimal():
        return int(text)
    raise UserError(f"--checkpoint={text} is unknown. Use latest, best or the number of a step.")


def _corpus(text: str) -> str:
    if text:
        return text
    raise UserError("--corpus is empty. Name the tokenised corpus.")


def config_field(default: Any = MISSING) -> Any:
    """Declare the positional argument CONFIG."""
    text = "a TOML file or a shipped config's name; later files override earlier ones"
    return option(text, default, metavar="CONFIG", repeat=True)


def checkpoint_field(group: str, text: str = "latest, best or a step (default: latest)") -> Any:
    """Declare --checkpoint, None by default."""
    return option(text, None, group=group, metavar="STEP", parse=_checkpoint)


def corpus_field(group: str, name: str) -> Any:
    """Declare --corpus, the new path of a moved corpus. name: the corpus's name in the help."""
    text = f"new path or URL of {name}, which may have moved but not changed (default: the recorded path)"
    return option(text, None, group=group, metavar="DIR|URL", parse=_corpus)


def _check_model(label: str, name: Location) -> Location:
    if name == "":
        raise UserError(f"{label} is empty. Name a model.")
    advice = "Pass a URL as text, not as a Path." if isinstance(name, Path) else "Write :// after the protocol."
    return paths.location(name, f"{label} =", advice)


def model_field(flag: str, text: str) -> Any:
    """Declare a flag for the path or URL of a model, None by default."""
    return option(text, None, metavar="MODEL", flag=flag, check=_check_model)


def check_python(label: str, name: Location) -> Path:
    """Return the path of a Python interpreter; raises UserError, which begins with `label`, for a URL."""
    return paths.on_disk(name, f"{label} =", "Copy it to this machine and pass the path of the copy.")


@dataclass(frozen=True, kw_only=True)
class RunnableOptions:
    """The model of a run to use, and settings to run it."""

    seed: int | None = finetuned(
        "for a run of several seeds: the seed whose model to use (default: the best seed)", None, metavar="N", least=0
    )
    batch_size: int | None = finetuned(
        "rows per batch; does not change results (default: as in training)", None, metavar="B", least=0
    )
    python: Path | None = finetuned(
        "for a .pte file: a Python that has executorch (default: this Python)", None, metavar="FILE", check=check_python
    )


@dataclass(frozen=True)
class EvaluateOptions(RunnableOptions):
    path: Location = option("a run, a model directory or an exported file", metavar="MODEL")
    _: KW_ONLY
    checkpoint: Checkpoint | None = checkpoint_field(PRETRAINED)
    corpus: str | None = corpus_field(PRETRAINED, "the run's corpus")
    stage: int | None = option(
        "the stage whose sequence length applies (default: the last)", None, group=PRETRAINED, metavar="N"
    )
    task: str | None = finetuned("the task (default: the task that the model records)", None, metavar="NAME")
    data_dir: Location | None = finetuned(
        "the directory of the task's files (default: as in training)", None, metavar="DIR"
    )
    split: Literal["train", "dev", "test"] | None = finetuned("the examples to score (default: dev)", None)
    input: Location | None = finetuned(
        "a file of examples to score, for a model of the task `own` (default: the examples of --split)",
        None,
        metavar="FILE",
    )
    output: Location | None = finetuned(
        "for question answering: a folder for the answers, as JSON that SQuAD's scripts read (default: none)",
        None,
        metavar="DIR",
    )


@dataclass(frozen=True)
class PredictOptions(RunnableOptions):
    path: Location = option("a run, a model directory or an exported file", metavar="MODEL")
    texts: Sequence[str] | Sequence[tuple[str, str]] = option(
        "the texts, or pairs of texts for a task on pairs; for question answering, a pair is (question, context)",
        metavar="TEXT",
        repeat=True,
    )
    _: KW_ONLY
    top: int | None = option(
        "tokens to show for a blank (default: 5)", None, group="for a masked language model", metavar="N"
    )
    checkpoint: Checkpoint | None = checkpoint_field("for a masked language model")
    aggregation: Literal["first", "max", "average", "simple"] | None = finetuned(
        "how to find entities: a word has the tag of its first token, of the surest one (max), of their average, or "
        "every token is a word (simple) (default: as in training)",
        None,
        metavar="HOW",
    )


@dataclass(frozen=True)
class ConvertOptions(ExportOptions):
    source: Location = option("the model; its format is detected", metavar="SRC", check=_check_model)
    destination: Location = option(
        "the new directory or file",
        group="output",
        metavar="DST",
        check=lambda label, name: paths.on_disk(name, f"{label} =", "Name a local path and copy the result."),
    )


@dataclass(frozen=True)
class BenchmarkOptions(BenchmarkSettings):
    models: Sequence[Location] = option("the models to measure", metavar="MODEL", repeat=True)
    _: KW_ONLY
    overrides: Overrides | None = None
    parts: bool = option(
        "print the share of each component, such as attention, in a model's FLOPs",
        False,
        group="measurement",
        flag="--profile",
    )


@dataclass(frozen=True)
class PlanOptions:
    config: Config = config_field()
    _: KW_ONLY
    topology: str = _planning("the TPU slice, such as v5e:16x16 or v6e-8; two: 2xv5e:16x16", metavar="SLICE")
    overrides: Overrides | None = None
    compile_steps: bool = _planning(
        "estimate without the TPU compiler",
        True,
        flag="--no-compile",
        python="whether to compile every stage's step if libtpu is installed; this takes minutes per stage",
    )
    cache_dir: Location | None = _planning(
        "folder for the compiler's results, which later plans reuse (default: ~/.cache/bertzoo/plans)",
        None,
        metavar="DIR",
        flag="--cache",
        parse=lambda text: str(paths.on_disk(text, "--cache =", "Name a directory.")) if text else text,
    )
    price: float | None = _planning("price of a chip-hour (default: print no cost)", None, metavar="DOLLARS", least=0)


def _check_corpus(label: str, name: Location) -> Location:
    """Return the directory or URL of a corpus; raises UserError for a mistyped URL."""
    text = str(name)
    if text.startswith(("file:", "local:")):
        return paths.on_disk(text, f"{label} =", "Name the directory itself.")
    return text if paths.is_url(text) else paths.on_disk(name, f"{label} =", "Write :// after the protocol.")


@dataclass(frozen=True)
class TokenizeOptions:
    source: Location = option("the text to tokenise", metavar="SRC")
    destination: Location = option(
        "the directory or URL of the corpus, new or unfinished", group="output", metavar="DST", check=_check_corpus
    )
    _: KW_ONLY
    config: Config = option(
        "a pretraining config whose [data] applies; repeatable (default: none)", (), metavar="CONFIG", repeat=True
    )
    overrides: Overrides | None = None
    workers: int = option("processes that tokenise; 0: one per core", 0, group="speed", metavar="N", least=0)


@dataclass(frozen=True)
class RunOptions:
    """The config of a training run, its directory, and how it executes."""

    config: Config = config_field()
    _: KW_ONLY
    run_dir: Location = option("the run's directory or gs:// URL", group="output", metavar="RUN")
    overrides: Overrides | None = None
    corpus: str | None = corpus_field("input", "the corpus of a resumed run")
    workers: int = option("processes that tokenise; 0: one per core", 0, group="speed", metavar="N", least=0)


@dataclass(frozen=True, kw_only=True)
class PretrainOptions(RunOptions):
    from_model: Location | None = model_field(
        "--from", f"start from {_MODEL}; a resumed run does not read MODEL again (default: random parameters)"
    )


@dataclass(frozen=True, kw_only=True)
class PruneOptions(RunOptions):
    from_model: Location | None = model_field(
        "--from",
        f"the model that [model] describes, with the heads of [objective]: {_MODEL} (default: the recorded model of a "
        "resumed run)",
    )


@dataclass(frozen=True, kw_only=True)
class TransferOptions(RunOptions):
    teacher: Location | None = model_field(
        "--teacher", f"the teacher: {_MODEL} (default: the recorded teacher of a resumed run, unless it is a URL)"
    )


@dataclass(frozen=True)
class FinetuneOptions:
    config: Config = config_field("finetune")
    _: KW_ONLY
    run_dir: Location = option("the run's directory", group="output", metavar="RUN")
    from_model: Location | None = model_field(
        "--from",
        "the model to fine-tune, whose head is replaced unless keep_head is set: a run, a model or Hugging Face "
        "directory, another fine-tuning run, or a URL of one of these (default: the recorded model of a resumed run)",
    )
    teacher: Location | None = model_field(
        "--teacher",
        "a fine-tuning run on the same task, or its URL; the loss is the config's alpha times the loss on the "
        "labels plus (1 - alpha) times the loss on the teacher's predictions (default: none)",
    )
    overrides: Overrides | None = None


def recipe_of(options: RunOptions | FinetuneOptions) -> Any:
    """Return the config of a training command, complete and with the overrides; raises ConfigError."""
    from bertzoo.core.kinds import KINDS

    names: dict[type, str] = {
        PretrainOptions: "pretrain",
        TransferOptions: "transfer",
        PruneOptions: "prune",
        FinetuneOptions: "finetune",
    }
    cls = next(KINDS[name].config() for declared, name in names.items() if isinstance(options, declared))
    overrides = loader.as_options(options.overrides)
    if isinstance(options.config, cls):
        return loader.changed(options.config, overrides)
    if not isinstance(options, PretrainOptions):
        return loader.load(cls, config_files(options.config), overrides)
    from bertzoo.runs.pretrain import load_recipe

    return load_recipe(config_files(options.config), overrides, options.from_model, options.run_dir)


def config_files(config: Config) -> list[str | Path]:
    """Return `config` as a list; raises UserError unless it is a name, a file or a list of these."""
    files = [config] if isinstance(config, str | Path) else config if isinstance(config, Sequence) else None
    if files is None or not all(isinstance(file, str | Path) for file in files):
        raise UserError(
            f"config has the type {type(config).__name__}. Give a name, a file, a list of these, or a config object."
        )
    return list(files)


def execution(options: RunOptions) -> Any:
    """Return the `runs.training.Options` of a run; process 0 alone logs from now on."""
    from bertzoo.runs.training import Options
    from bertzoo.train import hosts

    hosts.log_in_first()
    return Options(corpus=options.corpus, workers=options.workers)


def output_folder(name: Path | str) -> Path:
    """Return the folder of --output; raises UserError if it cannot be written."""
    folder = paths.on_disk(name, "--output", "Name a directory on this machine.")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--output={folder} is a file. Name a directory.")
    check_folder(next(path for path in (folder, *folder.parents) if path.exists()), f"--output={folder}")
    return folder
