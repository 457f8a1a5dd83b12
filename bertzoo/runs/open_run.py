"""Run pretraining or knowledge transfer from the config to the last step.

Checks the config and the devices, then opens the corpus, builds the batches and starts the loop. In a run of several
processes, every process calls `pretrain` or `transfer`.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertzoo.core.errors import UserError
from bertzoo.core.paths import Location, is_url, resolve_name
from bertzoo.data import pipeline
from bertzoo.data.corpus.reader import Corpus
from bertzoo.data.tokenizers.vocabulary import UNKNOWN_ERROR, Tokenizer, check_unknown, describe_unknown
from bertzoo.runs import any_model, job, teacher, warm_start
from bertzoo.runs.batches import RunBatches
from bertzoo.runs.configs import Checked, Pretrain, Recipe, Transfer
from bertzoo.runs.provenance import check_local
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.runs.stage_setups import build_experiment
from bertzoo.runs.warm_start import WarmStart
from bertzoo.train import compilation, hosts, memory, sharding
from bertzoo.train.experiment import Experiment
from bertzoo.train.stages import locate, start_of

# Warn if the tokenizer has under half of model.vocab_size entries, or if the text uses under a fifth of its entries.
_FEW_ENTRIES, _FEW_OCCURRING = 0.5, 0.2
_DAY = 24 * 3600.0  # seconds that the other processes wait while process 0 tokenises


@dataclass(frozen=True, kw_only=True)
class Options:
    """Execution options, which do not change a run's result.

    corpus: path or URL of a resumed run's corpus, if it has moved.
    workers: processes that tokenise; 0 uses one per core.
    batch_workers: processes that build batches; 0 uses a thread.
    tell: receives each line for the user.
    progress: returns the context manager in which the run tokenises. If the manager yields a function, it is called
    with the progress so far: (finished groups of documents, characters of text read).
    console: whether to print progress to standard error.
    """

    corpus: str | None = None
    workers: int = 0
    batch_workers: int = 0
    tell: Callable[[str], None] = lambda line: None
    progress: Callable[[], AbstractContextManager[Callable[[int, int], None] | None]] = contextlib.nullcontext
    console: bool = True

    def tell_once(self, line: str) -> None:
        """Pass a line to `tell` in process 0 only."""
        if hosts.is_first():
            self.tell(line)


def pretrain(recipe: Pretrain, run_dir: str | Path, origin: Location | None, options: Options) -> int:
    """Start or resume a pretraining run, train to the end, and return the number of steps done.

    origin: path or URL of the model that a new run starts from. Raises UserError if the config does not fit the run,
    origin, corpus or devices, and Stopped after a signal.
    """
    run, tell = RunDirectory(run_dir), options.tell_once
    if origin is not None:
        check_apart(origin, run, "--from", "A run resumes by itself; leave --from out.")
        # Check before creating the directory; a run with a checkpoint does not read its origin again.
        if hosts.share("the newest checkpoint", run.latest) is None:
            check_model(origin, options)
    with run.shared():
        recipe, built = _build(recipe, run, tell, origin)
        start, vocabulary = _warm_start(run, recipe, origin, tell)
        batches = _batches(recipe, run, vocabulary, options)
        return job.train(recipe, built, batches, run, start, console=options.console)


def transfer(
    recipe: Transfer,
    run_dir: str | Path,
    teacher_path: Location | None,
    stages: tuple[int, int] | None,
    options: Options,
) -> int:
    """Train a student on its teacher and return the number of steps done.

    teacher_path: path or URL of the teacher. None stands for the teacher in the run.json of a resumed run.
    stages: first and last stage to train, counted from 1; None trains all.
    Raises UserError if the config or `stages` does not fit the run, teacher, corpus or devices, and Stopped after a
    signal.
    """
    run, tell = RunDirectory(run_dir), options.tell_once
    path, record = hosts.share("the teacher", lambda: _teacher(teacher_path, run))
    check_apart(path, run, "--teacher", "Give the student a directory of its own.")
    check_model(path, options)
    until = hosts.share("the stages", lambda: _until(stages, recipe, run))
    with run.shared():
        recipe, built = _build(recipe, run, tell)
        start = teacher.read_teacher(path, recipe, built)
        if record and record["parameters_sha256"] != start.record["parameters_sha256"]:
            raise UserError(
                f"the parameters in {path} differ from those of this run's teacher in {record['path']}. Restore that "
                "teacher or use a different --run_dir."
            )
        _check_same_everywhere(start.record, "the teacher's parameters", path)
        if not record:
            for line in start.report:
                tell(line)
        batches = _batches(recipe, run, start.tokenizer, options)
        return job.train(recipe, built, batches, run, start, until, console=options.console)


def check_apart(path: Location, run: RunDirectory, flag: str, instead: str) -> None:
    """Raise UserError if `path` is the run's own directory.

    flag: the option with the value `path`, for the error.
    instead: advice, a sentence at the end of the error.
    """
    if resolve_name(path) == resolve_name(run.name):
        raise UserError(f"{flag} and --run_dir are both {run.name}. {instead}")


def check_model(path: Location, options: Options) -> None:
    """Raise UserError in every process if process 0 finds no model at `path`.

    If `path` is a URL, every machine copies the model to its cache.
    """
    hosts.share("the model", lambda: any_model.check_model(path, options.tell), timeout=_DAY)
    if not hosts.is_first():
        any_model.check_model(path, options.tell)
    hosts.barrier("the model", timeout=_DAY)


def open_corpus(recipe: Checked, run: RunDirectory, vocabulary: Tokenizer | None, options: Options) -> Corpus:
    """Open the corpus of a run; process 0 first tokenises the text if necessary.

    A run with a checkpoint reads the corpus that it began with. vocabulary: the tokenizer that the corpus must have, or
    None. Raises UserError if processes find different corpora.
    """
    begun = run.latest() is not None
    if options.corpus and not begun:
        raise UserError(
            f"--corpus={options.corpus} applies only to a run that is resumed, but {run.name} has no checkpoint yet. "
            "Leave --corpus out; --data.source names the text of a new run."
        )

    @functools.cache
    def opened() -> Corpus:
        if begun and (options.corpus or run.corpus_is_elsewhere()):
            source = recipe.data.source.rstrip("/")
            again = is_url(source) and source == run.provenance().get("corpus")  # the command names the URL itself
            corpus = run.open_corpus(options.corpus or (source if again else None))
            if vocabulary is not None:
                pipeline.check_tokenizer(corpus, vocabulary)
            return corpus
        with options.progress() as progress:
            corpus = pipeline.open_corpus(
                recipe.data,
                run.corpus,
                workers=options.workers,
                progress=progress,
                vocabulary=vocabulary,
                tell=options.tell,
            )
        if begun:
            run.check_corpus(corpus)
        return corpus

    expected = hosts.share("the corpus", lambda: opened().hash, timeout=_DAY)
    corpus = opened()
    hosts.barrier("the corpus", timeout=_DAY)  # each host downloads a corpus behind a URL
    if corpus.hash != expected:
        raise UserError(
            f"the corpus {corpus.address} has hash {corpus.hash}, but the corpus of process 0 has {expected}. Give "
            "every process the same corpus."
        )
    for split, part in corpus.manifest.splits.items():
        options.tell_once(f"corpus, {split}: {part}")
    share = corpus.unknown_share()
    if begun and share > UNKNOWN_ERROR:  # a run with a checkpoint resumes: its text cannot change
        options.tell_once(f"warning: {describe_unknown(share, corpus.address)}")
    else:
        check_unknown(share, corpus.address, options.tell_once, inherited=vocabulary is not None)
    for line in _unused_rows(recipe.model.vocab_size, corpus, advise=vocabulary is None):
        options.tell_once(line)
    return corpus


def _unused_rows(rows: int, corpus: Corpus, advise: bool) -> Iterator[str]:
    """Yield warnings if many rows of the word embedding would stay untrained.

    rows: model.vocab_size. advise: whether to name options that avoid the problem.
    """
    entries, occurring = corpus.tokenizer.vocab_size, corpus.manifest.splits["train"].entries
    if entries < _FEW_ENTRIES * rows:
        options = f"--model.vocab_size={entries} --data.tokenizer.vocab_size={entries}"
        yield (
            f"model.vocab_size = {rows:,}, but the tokenizer has {entries:,} entries: the other rows of the word table "
            "are never trained" + (f". A new run with {options} avoids this." if advise else "")
        )
    if occurring is not None and occurring < _FEW_OCCURRING * entries:
        yield (
            f"only {occurring:,} of the tokenizer's {entries:,} entries occur in the training text. Use more text, or "
            "train a smaller vocabulary on it."
        )


def _build(
    recipe: job.AnyRecipe, run: RunDirectory, tell: Callable[[str], None], origin: Location | None = None
) -> tuple[job.AnyRecipe, Experiment]:
    """Return the config with its numbers of microbatches, and the run built on this machine's devices.

    Raises an error if the config does not fit the run's directory or the devices. Passes config changes since the run's
    start to `tell`, and the numbers of microbatches that the config leaves open.
    """
    numbers = hosts.share("the microbatches", lambda: job.microbatches(recipe, run))
    pieces = {
        recipe.where(index): number
        for index, (stage, number) in enumerate(zip(recipe.stages, numbers, strict=True))
        if stage.accumulate is None and number > 1
    }
    for where, number in pieces.items():
        tell(
            f"{where}: {number} microbatches a step, which CPUs compute faster. --{where}.accumulate=1 turns this off."
        )
    recipe = job.with_microbatches(recipe, numbers)
    for line in hosts.share("the run's config", lambda: run.changes(recipe, origin)):
        tell(f"changed since the run started: {line}")
    built = build_experiment(recipe, sharding.make_mesh(recipe.mesh))
    hosts.share("the newest checkpoint's model", lambda: job.check_checkpoint(built, run))
    memory.check_memory(built, tell)
    recipe.compute.tell_format(tell)
    compilation.keep_programs()
    return recipe, built


def _warm_start(
    run: RunDirectory, recipe: Pretrain, origin: Location | None, tell: Callable[[str], None]
) -> tuple[WarmStart | None, Tokenizer | None]:
    """Return the initial parameters and the tokenizer that the run takes from the model `origin`.

    If `origin` is None, both are None. If the run has a checkpoint, the parameters are None.
    """
    if hosts.share("the newest checkpoint", run.latest) is not None:
        return None, None if origin is None else run.tokenizer()
    if origin is None:
        return None, None
    start, before = warm_start.read_warm_start(origin, recipe), run.origin("from")
    _check_same_everywhere(start.record, "what the run starts from", origin)
    old, new = (record or {} for record in (before, start.record))
    if before and old["path"] == new["path"] and old["parameters_sha256"] != new["parameters_sha256"]:
        tell(f"changed since the run started: the parameters in {origin}")
    for line in start.report:
        tell(line)
    return start, start.tokenizer


def _check_same_everywhere(record: dict[str, Any], label: str, path: Location) -> None:
    """Raise UserError if the parameters read from `path` differ between this process and process 0.

    record: run.json's entry about the model, with the hash of its parameters.
    label: the name of this check in the error for a lost process.
    """
    digest = record["parameters_sha256"]
    first = hosts.share(label, lambda: digest)
    if digest != first:
        raise UserError(
            f"the parameters in {path} have hash {digest} here and {first} in process 0. Give every process the same "
            "parameters."
        )


def _batches(recipe: Recipe, run: RunDirectory, vocabulary: Tokenizer | None, options: Options) -> RunBatches:
    corpus = open_corpus(recipe, run, vocabulary, options)
    return RunBatches(recipe, corpus, run.plans, options.tell_once, workers=options.batch_workers)


def _teacher(teacher_path: Location | None, run: RunDirectory) -> tuple[str, dict | None]:
    """Return the teacher's path and its entry in run.json; the entry is None if the run has no checkpoint."""
    record = None
    if run.latest() is not None:
        run.fetch()
        record = run.origin("teacher")
    if teacher_path is not None:
        return str(teacher_path), record
    if record is None:
        raise UserError("--teacher is missing. Name the model that the student learns from.")
    return check_local(record["path"], "teacher", run.name, f"If you trust it, add --teacher={record['path']}."), record


def _until(stages: tuple[int, int] | None, recipe: Transfer, run: RunDirectory) -> int | None:
    """Return the step to stop after, or None without `stages`.

    Raises UserError if the run's next training stage is not in the range `stages` (first, last).
    """
    if stages is None:
        return None
    first, last = stages
    if last > len(recipe.stages):
        raise UserError(f"--stages={first}-{last} is out of range. Use stages from 1 to {len(recipe.stages)}.")
    current = locate(recipe.stages, run.latest() or 0)[0] + 1
    if current > len(recipe.stages):
        raise UserError(f"--stages={first}-{last}: {run.name} has finished all its stages. Leave --stages out.")
    if not first <= current <= last:
        raise UserError(
            f"--stages={first}-{last}: the next stage of {run.name} is {current}. Give a range that contains {current}."
        )
    return start_of(recipe.stages, last)
