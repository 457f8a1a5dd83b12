"""Run a pretraining or a transfer from its config to its last step.

Checks the config and the devices, then opens the corpus, makes the batches and starts the loop. With several processes
each of them calls the same function.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from bertzoo.core.errors import UserError
from bertzoo.data import pipeline
from bertzoo.data.corpus.reader import Corpus
from bertzoo.data.tokenizers.vocabulary import UNKNOWN_ERROR, Tokenizer, check_unknown, describe_unknown
from bertzoo.runs import any_model, job, step_memory, teacher, warm_start
from bertzoo.runs.batches import RunBatches
from bertzoo.runs.pretrain_config import Checked, Pretrain
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.runs.transfer_config import Recipe, Transfer
from bertzoo.runs.warm_start import WarmStart
from bertzoo.train import compilation, hosts
from bertzoo.train.stages import locate, start_of

_FEW_ENTRIES, _FEW_OCCURRING = 0.5, 0.2  # shares of model.vocab_size, and of the entries, below which a run says so
_DAY = 24 * 3600.0  # seconds that the other processes wait while the first tokenises


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of execution, which do not change the result of a run.

    corpus: where the corpus of a resumed run is now. workers: processes that tokenise, 0 for one per core.
    batch_workers: processes that make batches, 0 for a thread. tell: receives each line for the user. progress: a
    context whose value `pipeline.open_corpus` calls with the pieces tokenised and the bytes read. console: print the
    steps to standard error.
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


def pretrain(recipe: Pretrain, run_dir: str | Path, origin: Path | None, options: Options) -> int:
    """Pretrain to the end, or resume, and return the number of steps.

    origin: the model that a new run starts from. Raises UserError if something does not fit, Stopped after a signal.
    """
    run, tell = RunDirectory(run_dir), options.tell_once
    if origin is not None:
        check_apart(origin, run, "--from", "A run resumes by itself; leave --from out.")
        # Before the directory exists; a run with a checkpoint does not read its source again.
        if hosts.share("the newest checkpoint", run.latest) is None:
            any_model.check_model(origin)
    with run.shared():
        mesh = _checked_devices(recipe, run, tell, origin)
        start, vocabulary = _warm_start(run, recipe, origin, tell)
        batches = _batches(recipe, run, vocabulary, options)
        return job.train(recipe, batches, run, mesh, start, console=options.console)


def transfer(
    recipe: Transfer, run_dir: str | Path, teacher_path: Path | None, stages: tuple[int, int] | None, options: Options
) -> int:
    """Teach a student to the end, or to the end of stage `stages[1]`, counted from 1; return the number of steps.

    teacher_path: may be None for a resumed run, whose run.json has it. Raises UserError if something does not fit,
    Stopped after a signal.
    """
    run, tell = RunDirectory(run_dir), options.tell_once
    path, record = hosts.share("the teacher", lambda: _teacher(teacher_path, run))
    check_apart(Path(path), run, "--teacher", "Give the student a directory of its own.")
    any_model.check_model(Path(path))
    until = hosts.share("the stages", lambda: _until(stages, recipe, run))
    with run.shared():
        mesh = _checked_devices(recipe, run, tell)
        start = teacher.read_teacher(Path(path), recipe, mesh)
        if record and record["parameters_sha256"] != start.record["parameters_sha256"]:
            raise UserError(
                f"the parameters in {path} differ from those of this run's teacher in {record['path']}. Restore that "
                "teacher or use a different --run_dir."
            )
        _check_same_everywhere(start.record, "the teacher's parameters", Path(path))
        if not record:
            for line in start.report:
                tell(line)
        batches = _batches(recipe, run, start.tokenizer, options)
        return job.train(recipe, batches, run, mesh, start, until, console=options.console)


def check_apart(path: Path, run: RunDirectory, flag: str, instead: str) -> None:
    """Raise UserError if the path given with a flag is the run itself; instead: what to do."""
    if path.resolve() == run.path.resolve():
        raise UserError(f"{flag} and --run_dir are both {run.name}. {instead}")


def open_corpus(recipe: Checked, run: RunDirectory, vocabulary: Tokenizer | None, options: Options) -> Corpus:
    """Open the corpus of a run; process 0 tokenises it if need be.

    A run with a checkpoint reads the corpus that it began with. Raises UserError if another process finds another
    corpus.
    """
    begun = run.latest() is not None
    if options.corpus and not begun:
        raise UserError(
            f"--corpus={options.corpus} applies only to a run that is resumed, but {run.name} has no checkpoint. Name "
            "its text with --data.source."
        )

    @functools.cache
    def opened() -> Corpus:
        if begun and (options.corpus or run.corpus_is_elsewhere()):
            corpus = run.open_corpus(options.corpus)
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
            f"the corpus {corpus.address} has hash {corpus.hash}, but that of process 0 has {expected}. Use one corpus."
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
    """Yield lines if most rows of the model's word table stay untrained. rows: model.vocab_size;
    advise: name the options that avoid it, which apply only if the run trains its own tokenizer.
    """
    entries, occurring = corpus.tokenizer.vocab_size, corpus.manifest.splits["train"].entries
    if entries < _FEW_ENTRIES * rows:
        options = f"--model.vocab_size={entries} --data.tokenizer.vocab_size={entries}"
        yield (
            f"model.vocab_size = {rows:,}, but the tokenizer has {entries:,} entries: the other rows of the word table "
            "are never trained" + (f". A new run with {options} has none of them." if advise else "")
        )
    if occurring is not None and occurring < _FEW_OCCURRING * entries:
        yield (
            f"only {occurring:,} of the tokenizer's {entries:,} entries occur in the training text. Use more text, or "
            "train a smaller vocabulary on it."
        )


def _checked_devices(
    recipe: Recipe, run: RunDirectory, tell: Callable[[str], None], origin: Path | None = None
) -> jax.sharding.Mesh:
    """Return the mesh once the config is checked against the run, before the corpus, which may take hours."""
    for line in hosts.share("the run's config", lambda: run.changes(recipe, origin)):
        tell(f"changed since the run started: {line}")
    mesh = job.make_mesh(recipe)
    hosts.share("the newest checkpoint's model", lambda: job.check_checkpoint(recipe, run, mesh))
    step_memory.check_memory(recipe, mesh, tell)
    compilation.keep_programs()
    return mesh


def _warm_start(
    run: RunDirectory, recipe: Pretrain, origin: Path | None, tell: Callable[[str], None]
) -> tuple[WarmStart | None, Tokenizer | None]:
    """Return the warm start of a run without a checkpoint, and the tokenizer of a run with an origin."""
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


def _check_same_everywhere(record: dict[str, Any], label: str, path: Path) -> None:
    """Raise UserError if this process finds other parameters in a model's directory than process 0."""
    digest = record["parameters_sha256"]
    first = hosts.share(label, lambda: digest)
    if digest != first:
        raise UserError(
            f"the parameters in {path} have hash {digest} here and {first} in process 0. Give every process the same."
        )


def _batches(recipe: Recipe, run: RunDirectory, vocabulary: Tokenizer | None, options: Options) -> RunBatches:
    corpus = open_corpus(recipe, run, vocabulary, options)
    return RunBatches(recipe, corpus, run.plans, options.tell_once, workers=options.batch_workers)


def _teacher(teacher_path: Path | None, run: RunDirectory) -> tuple[str, dict | None]:
    """The teacher's path and its record in run.json, which a run without a checkpoint has not."""
    record = None
    if run.latest() is not None:
        run.fetch()
        record = run.origin("teacher")
    if teacher_path is not None:
        return str(teacher_path), record
    if record is None:
        raise UserError("--teacher is missing. Name the model that the student learns from.")
    return record["path"], record


def _until(stages: tuple[int, int] | None, recipe: Transfer, run: RunDirectory) -> int | None:
    """The step to stop after; raises UserError if the run is not at one of the stages."""
    if stages is None:
        return None
    first, last = stages
    if last > len(recipe.stages):
        raise UserError(f"--stages={first}-{last} is out of range. The run has {len(recipe.stages)} stages.")
    current = locate(recipe.stages, run.latest() or 0)[0] + 1
    if not first <= current <= last:
        where = f"stage {current} is next" if current <= len(recipe.stages) else "all are done"
        raise UserError(f"--stages={first}-{last}: in the run {run.name} {where}. Give a range that contains it.")
    return start_of(recipe.stages, last)
