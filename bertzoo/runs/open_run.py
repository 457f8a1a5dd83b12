"""How every training run opens: its config and devices are checked, then its corpus is opened and its batches are made.

`pretrain` and `transfer` here are one run each, from a recipe to the last step; of several processes each calls them.
"""

import contextlib
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from bertzoo.core.errors import UserError
from bertzoo.data import pipeline
from bertzoo.data.corpus.corpus import Corpus
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.runs import any_model, job, teacher, warm_start
from bertzoo.runs.batches import Feed
from bertzoo.runs.pretrain_config import Checked, Pretrain
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.runs.transfer_config import Recipe, Transfer
from bertzoo.train import hosts
from bertzoo.train.stages import locate, start_of

_HOURS = 24 * 3600.0  # seconds that other processes wait for the first to tokenise


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a run is carried out; nothing here changes what it learns.

    corpus: where the corpus of a resumed run is now. workers: processes that tokenise, 0 for one per core.
    batch_workers: processes that make batches, 0 for a thread. tell: receives each line for a person. progress: a
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
        """Tell a line from the first process alone."""
        if hosts.is_first():
            self.tell(line)


def pretrain(recipe: Pretrain, run_dir: str | Path, origin: Path | None, options: Options) -> int:
    """Pretrain to the end, or resume, and return the number of steps.

    origin: the model that a new run starts from. Raises UserError where something does not fit, Stopped after a signal.
    """
    run, tell = RunDirectory(run_dir), options.tell_once
    if origin is not None:
        check_apart(origin, run, "--from", "a run resumes by itself, without --from")
        # Checked before there is a directory; a run with a checkpoint does not read its source again.
        if hosts.share("the newest checkpoint", run.latest) is None:
            any_model.check(origin)
    with run.shared():
        mesh = _checked_devices(recipe, run, tell, origin)
        start, vocabulary = _warm_start(run, recipe, origin, tell)
        feed = _batches(recipe, run, vocabulary, options)
        return job.train(recipe, feed, run, mesh, start, console=options.console)


def transfer(
    recipe: Transfer, run_dir: str | Path, teacher_path: Path | None, stages: tuple[int, int] | None, options: Options
) -> int:
    """Teach a student to the end, or to the end of stage `stages[1]`, counted from 1; return the number of steps.

    teacher_path: may be None for a resumed run, which knows where its teacher was. Raises UserError where something
    does not fit, Stopped after a signal.
    """
    run, tell = RunDirectory(run_dir), options.tell_once
    path, record = hosts.share("the teacher", lambda: _teacher(teacher_path, run))
    check_apart(Path(path), run, "--teacher", "give the student a directory of its own")
    any_model.check(Path(path))
    until = hosts.share("the stages", lambda: _until(stages, recipe, run))
    with run.shared():
        mesh = _checked_devices(recipe, run, tell)
        taught = teacher.read(Path(path), recipe, mesh)
        if record and record["parameters_sha256"] != taught.record["parameters_sha256"]:
            raise UserError(
                f"the parameters in {path} differ from those that this run's teacher had in {record['path']}; give "
                "that teacher again, or choose another --run_dir"
            )
        _same_everywhere(taught.record, "the teacher's parameters", Path(path))
        if not record:
            for line in taught.said:
                tell(line)
        feed = _batches(recipe, run, taught.tokenizer, options)
        return job.train(recipe, feed, run, mesh, taught, until, console=options.console)


def check_apart(path: Path, run: RunDirectory, flag: str, instead: str) -> None:
    """Raise UserError where a flag names the run itself; it says what to do `instead`."""
    if path.resolve() == run.path.resolve():
        raise UserError(f"{flag} and --run_dir are both {run.name}; {instead}")


def open_corpus(recipe: Checked, run: RunDirectory, vocabulary: Tokenizer | None, options: Options) -> Corpus:
    """Open the corpus of a run; the first process tokenises it if need be.

    A run that has a checkpoint reads the corpus that it began with. Raises UserError where another process finds
    another corpus.
    """
    begun = run.latest() is not None
    if options.corpus and not begun:
        raise UserError(
            f"--corpus={options.corpus} is for a run that is resumed, but {run.name} has no checkpoint; name its "
            "corpus with --data.source"
        )

    @functools.cache
    def opened() -> Corpus:
        if begun and (options.corpus or run.corpus_is_elsewhere()):
            corpus = run.open_corpus(options.corpus)
            if vocabulary is not None:
                pipeline.check_words(corpus, vocabulary)
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

    expected = hosts.share("the corpus", lambda: opened().hash, timeout=_HOURS)
    corpus = opened()
    hosts.barrier("the corpus", timeout=_HOURS)  # each host copies one that is behind a URL
    if corpus.hash != expected:
        raise UserError(f"the corpus {corpus.address} is not the one that process 0 reads; give all the same")
    for split, part in corpus.manifest.splits.items():
        options.tell_once(
            f"corpus, {split}: {part.documents:,} documents, {part.sentences:,} sentences, {part.tokens:,} tokens"
        )
    return corpus


def _checked_devices(
    recipe: Recipe, run: RunDirectory, tell: Callable[[str], None], origin: Path | None = None
) -> jax.sharding.Mesh:
    """Check that the run may go on with this recipe, before the corpus, which may take hours; return its mesh."""
    for line in hosts.share("the run's config", lambda: run.compare(recipe, origin)):
        tell(f"changed since the run began: {line}")
    mesh = job.devices(recipe)
    hosts.share("the newest checkpoint's model", lambda: job.check(recipe, run, mesh))
    return mesh


def _warm_start(
    run: RunDirectory, recipe: Pretrain, origin: Path | None, tell: Callable[[str], None]
) -> tuple[warm_start.Start | None, Tokenizer | None]:
    """What a run without a checkpoint starts from, and the tokenizer of a run that starts or started from a model."""
    if hosts.share("the newest checkpoint", run.latest) is not None:
        return None, None if origin is None else run.tokenizer()
    if origin is None:
        return None, None
    start, before = warm_start.read(origin, recipe), run.origin()
    _same_everywhere(start.record, "what the run starts from", origin)
    if before and before["path"] == start.record["path"] and before != start.record:
        tell(f"changed since the run began: the parameters in {origin}")
    for line in start.said:
        tell(line)
    return start, start.tokenizer


def _same_everywhere(record: dict[str, Any], what: str, path: Path) -> None:
    """Raise UserError where another process finds other parameters in a model's directory than the first."""
    digest = record["parameters_sha256"]
    if digest != hosts.share(what, lambda: digest):
        raise UserError(f"the parameters in {path} are not those that process 0 finds there; give all the same")


def _batches(recipe: Recipe, run: RunDirectory, vocabulary: Tokenizer | None, options: Options) -> Feed:
    corpus = open_corpus(recipe, run, vocabulary, options)
    return Feed(recipe, corpus, run.plans, options.tell_once, workers=options.batch_workers)


def _teacher(given: Path | None, run: RunDirectory) -> tuple[str, dict | None]:
    """The teacher's path and its record in the run; without a checkpoint there is no record."""
    record = None
    if run.latest() is not None:
        run.fetch()
        record = run.origin("teacher")
    if given is not None:
        return str(given), record
    if record is None:
        raise UserError("--teacher is missing; name the model that teaches")
    return record["path"], record


def _until(stages: tuple[int, int] | None, recipe: Transfer, run: RunDirectory) -> int | None:
    """The step to stop after; raises UserError where the run is not at one of the stages."""
    if stages is None:
        return None
    first, last = stages
    if last > len(recipe.stages):
        raise UserError(f"--stages={first}-{last}: there are only {len(recipe.stages)} stages")
    stands = locate(recipe.stages, run.latest() or 0)[0] + 1
    if not first <= stands <= last:
        where = f"stage {stands} is next" if stands <= len(recipe.stages) else "all are done"
        raise UserError(f"--stages={first}-{last}: of the run in {run.name} {where}; give a range with it")
    return start_of(recipe.stages, last)
