"""Steps that the training methods share: check the inputs, complete the config, open the corpus, train."""

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TypeVar

import jax

from bertzoo.core.errors import UserError
from bertzoo.core.logs import LOGGER
from bertzoo.core.paths import Location, is_url, resolve_name
from bertzoo.data import pipeline
from bertzoo.data.corpus.reader import Corpus
from bertzoo.data.corpus.tokenize import Progress
from bertzoo.data.tokenizers.vocabulary import UNKNOWN_ERROR, Tokenizer, check_unknown, describe_unknown
from bertzoo.models import Compute
from bertzoo.runs import load_model
from bertzoo.runs.bucket import Sender
from bertzoo.runs.configs import NoLayerTransfer, Pretrain, Recipe, TrainingConfig, Transfer
from bertzoo.runs.experiments import RunBatches
from bertzoo.runs.run_dir import ORIGINS, RunDirectory
from bertzoo.runs.trackers import Tracker, check_installed
from bertzoo.runs.warm_start import WarmStart
from bertzoo.train import checkpoint, hosts, loop, memory, sharding, step
from bertzoo.train.checkpoint import Checkpoints
from bertzoo.train.experiment import Experiment, Stage, locate, stage_of
from bertzoo.train.progress import Console, Reporter, file_reporters

_LOG = logging.getLogger(__name__)
AnyRecipe = TypeVar("AnyRecipe", Pretrain, Transfer)
DAY = 24 * 3600.0  # seconds that the other processes wait while process 0 tokenises or copies a model
# On CPUs, steps of many tokens are faster in microbatches of about 1,024, but not those of models narrower than 256
# (docs/performance.md).
_TOKENS, _WIDTH = 1024, 256


@dataclass(frozen=True, kw_only=True)
class Options:
    """Execution options, which do not change a run's result.

    corpus: path or URL of a resumed run's corpus, if it has moved. workers: processes that tokenise; 0: one per core.
    progress: called before the run tokenises. If it returns a function, that is called with the progress so far:
    (finished groups of documents, characters of text read).
    """

    corpus: str | None = None
    workers: int = 0
    progress: Callable[[], Progress | None] = lambda: None


def check_apart(path: Location, run: RunDirectory, flag: str, advice: str) -> None:
    """Raise UserError, with the advice, if `path`, the value of the option `flag`, is the run's directory."""
    if resolve_name(path) == resolve_name(run.name):
        raise UserError(f"{flag} and --run_dir are both {run.name}. {advice}")


def check_model(path: Location) -> None:
    """Raise UserError in every process if process 0 finds no model at `path`; every machine copies that of a URL."""
    hosts.in_turn("the model", lambda: load_model.check_model(path), timeout=DAY)
    hosts.barrier("the model", timeout=DAY)


def check_same_everywhere(digest: str, label: str, source: str) -> None:
    """Raise UserError if `digest`, the hash of what this process read from `source`, differs from that of process 0.

    label: the name of what was read, also in the error for a lost process.
    """
    first = hosts.share(label, lambda: digest)
    if digest != first:
        raise UserError(
            f"{label} in {source} have hash {digest} here and {first} in process 0. Give every process the same files."
        )


def prepare(settings: loop.RunSettings, run: RunDirectory) -> None:
    """Choose the folder of compiled programs; raises UserError if the package of a tracker is missing."""
    hosts.share("the trackers", lambda: check_installed(settings.trackers))
    keep = jax.default_backend() != "cpu" if settings.keep_programs is None else settings.keep_programs
    step.keep_programs(run.programs if keep else None)


def start_trackers(recipe: Recipe, run: RunDirectory, stack: contextlib.ExitStack) -> list[Tracker]:
    """Start the run's trackers in process 0, which `stack` closes; raises UserError in every process if one fails."""
    trackers: list[Tracker] = []

    def start() -> None:
        for kind in recipe.run.trackers:
            trackers.append(Tracker(kind, run, recipe))
            stack.callback(trackers[-1].close)

    hosts.share("the trackers", start)
    return trackers


def complete(
    recipe: AnyRecipe, run: RunDirectory, mesh: jax.sharding.Mesh, origin: Location | None = None
) -> AnyRecipe:
    """Return the config of a run with the numbers of microbatches that it leaves open; logs these and the changes.

    origin: the model that a new run starts from. Raises ConfigError if the run cannot resume with a change.
    """
    numbers = hosts.share("the microbatches", lambda: microbatches(recipe, run, mesh))
    for index, (stage, number) in enumerate(zip(recipe.stages, numbers, strict=True)):
        if stage.accumulate is None and number > 1:
            where = recipe.where(index)
            _LOG.info(
                f"{where}: {number} microbatches a step, which CPUs compute faster. --{where}.accumulate=1 turns this "
                "off."
            )
    recipe = with_microbatches(recipe, numbers)
    for line in hosts.share("the run's config", lambda: run.changes(recipe, origin)):
        _LOG.info(f"changed since the run started: {line}")
    return recipe


def microbatches(recipe: Recipe, run: RunDirectory, mesh: jax.sharding.Mesh) -> list[int]:
    """Return the number of microbatches of each training stage.

    A stage that leaves it open keeps the recorded number, so that a resumed run draws the same dropout. In a new run,
    wide models on CPUs get microbatches of 1,024 tokens on each device, or the next larger ones that divide the rows.
    """
    shards = sharding.row_shards(mesh)
    wide = jax.default_backend() == "cpu" and recipe.model.hidden_size >= _WIDTH
    recorded = run.load().stages[: len(recipe.stages)] if run.config.exists() else ()

    def number(stage: Stage, before: Stage | None) -> int:
        if stage.accumulate is not None:
            return stage.accumulate
        rows = stage.batch_size // shards
        if before is not None and rows % before.microbatches == 0:
            return before.microbatches
        fitting = (n for n in range(1, rows + 1) if rows % n == 0 and rows // n * stage.max_length >= _TOKENS)
        return max(fitting, default=1) if wide else 1

    return [number(*pair) for pair in zip_longest(recipe.stages, recorded)]


def with_microbatches(recipe: AnyRecipe, numbers: Sequence[int]) -> AnyRecipe:
    """Return `recipe` with a number of microbatches for each training stage."""
    if isinstance(recipe, Pretrain):
        return replace(recipe, stages=_cut(recipe.stages, numbers))
    groups, strategy = len(recipe.layer_groups), recipe.transfer
    if not isinstance(strategy, NoLayerTransfer):
        strategy = replace(strategy, accumulate=numbers[0])
    return replace(recipe, transfer=strategy, distillation=_cut(recipe.distillation, numbers[groups:]))


def _cut(stages: Sequence[Stage], numbers: Sequence[int]) -> tuple[Stage, ...]:
    return tuple(replace(stage, accumulate=number) for stage, number in zip(stages, numbers, strict=True))


def check_experiment(built: Experiment, compute: Compute, run: RunDirectory | None = None) -> None:
    """Check a built run before it reads data: memory, number format, and the model of the newest checkpoint of `run`.

    Raises CheckpointError if the checkpoint does not fit, and ConfigError if the devices' memory is too small.
    """

    def check_checkpoint() -> None:
        if run is not None and (step := run.latest()) is not None:
            checkpoint.check_compatible(run.checkpoints, built.state(stage_of(built.stages, step)))

    hosts.share("the newest checkpoint's model", check_checkpoint)
    memory.check_memory(built)
    compute.log_format()


def open_corpus(recipe: TrainingConfig, run: RunDirectory, vocabulary: Tokenizer | None, options: Options) -> Corpus:
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

    def open_or_build() -> Corpus:
        if begun and (options.corpus or run.corpus_is_elsewhere()):
            source = recipe.data.source.rstrip("/")
            unchanged = is_url(source) and source == run.provenance().get("corpus")  # the command names the URL itself
            corpus = run.open_corpus(options.corpus or (source if unchanged else None))
            if vocabulary is not None:
                pipeline.check_tokenizer(corpus, vocabulary)
            return corpus
        corpus = pipeline.open_corpus(
            recipe.data, run.corpus, workers=options.workers, progress=options.progress(), vocabulary=vocabulary
        )
        if begun:
            run.check_corpus(corpus.address, corpus.hash)
        return corpus

    corpus = hosts.in_turn("the corpus", open_or_build, timeout=DAY)
    hosts.barrier("the corpus", timeout=DAY)  # each host downloads a corpus behind a URL
    check_same_everywhere(corpus.hash, "the corpus's tokens", corpus.address)
    for split, summary in corpus.manifest.splits.items():
        _LOG.info(f"corpus, {split}: {summary}")
    share = corpus.manifest.unknown_share
    if begun and share > UNKNOWN_ERROR:  # a run with a checkpoint resumes: its text cannot change
        _LOG.warning(describe_unknown(share, corpus.address))
    else:
        check_unknown(share, corpus.address, inherited=vocabulary is not None)
    for line in _unused_rows(recipe.model.vocab_size, corpus, advise=vocabulary is None):
        _LOG.info(line)
    return corpus


def _unused_rows(rows: int, corpus: Corpus, advise: bool) -> Iterator[str]:
    """Yield warnings if the tokenizer has under half of `rows` tokens, or the text uses under a fifth of its tokens.

    rows: model.vocab_size. advise: whether to name options that avoid the problem.
    """
    vocab_size, occurring = corpus.tokenizer.vocab_size, corpus.manifest.splits["train"].entries
    if vocab_size < 0.5 * rows:
        options = f"--model.vocab_size={vocab_size} --data.tokenizer.vocab_size={vocab_size}"
        yield (
            f"model.vocab_size = {rows:,}, but the tokenizer has {vocab_size:,} tokens: the other rows of the word "
            "embeddings are never trained" + (f". A new run with {options} avoids this." if advise else "")
        )
    if occurring < 0.2 * vocab_size:
        yield (
            f"only {occurring:,} of the tokenizer's {vocab_size:,} tokens occur in the training text. Use more text, "
            "or train a smaller vocabulary on it."
        )


def train(
    recipe: Recipe,
    built: Experiment,
    batches: RunBatches,
    run: RunDirectory,
    trackers: Sequence[Tracker],
    start: WarmStart | None = None,
    followed: bool = False,
) -> int:
    """Train the run `built` from `recipe` from its newest checkpoint to the end; return the number of steps done.

    trackers: those of process 0, which are closed at the end. start: the frozen parameters and, for a run without a
    checkpoint, the initial ones. followed: whether another run follows in this program, so that a signal at the last
    step still stops the program. Only process 0 writes files other than checkpoints. Raises the errors of `loop.run`.
    """

    def begin() -> None:
        if latest := run.latest():
            locate(recipe.stages, latest)
            run.record_changes(recipe, latest)
        run.write_config(recipe)
        origins = {name: record for name in ORIGINS if (record := run.origin(name))}
        if not latest:
            origins = {} if start is None else {start.key: start.record}
        run.write_provenance(batches.corpus, origins)

    hosts.in_turn("the plans of the rows", batches.check_rows)
    hosts.share("the run directory", begin)
    local, shards = functools.partial(sharding.local_rows, mesh=built.mesh), sharding.row_shards(built.mesh)
    reporters: list[Reporter] = []
    if hosts.is_first():
        reporters = file_reporters(run.metrics, run.path / "tensorboard")
        reporters += [Console(recipe.stages)] if LOGGER.isEnabledFor(logging.INFO) else []
        reporters += trackers
        reporters += [Sender(run.bucket)] if run.bucket else []  # last, as it uploads what the others write
    try:
        with Checkpoints(
            run.checkpoints,
            keep_last=recipe.run.keep_last,
            keep_best=recipe.run.keep_best,
            before_save=run.bucket and run.bucket.before_a_save,
        ) as checkpoints:
            final = loop.run(
                loop.Job(
                    experiment=built,
                    config=recipe.run,
                    seed=recipe.seed,
                    batches=functools.partial(batches.train, local=local),
                    heldout=functools.partial(
                        batches.heldout, rows=recipe.run.evaluate_rows, shards=shards, local=local
                    ),
                    checkpoints=checkpoints,
                    reporters=reporters,
                    flops_per_example=built.flops,
                    frozen=None if start is None else start.frozen,
                    initial=None if start is None else start.params,
                    followed=followed,
                    profile=run.path / "profile" if hosts.is_first() and recipe.run.profile_start else None,
                    memory_advice=functools.partial(memory.advice, built),
                )
            )
    finally:
        for reporter in reporters:
            reporter.close()
    return int(final.step)
