"""The directory of a run: its config, its provenance, its corpus and its checkpoints (docs/formats.md)."""

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from bertzoo.core import atomic, config, lock
from bertzoo.core.errors import UserError
from bertzoo.core.paths import check_vacant, place, run_directory
from bertzoo.data.corpus.reader import Corpus
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.runs import provenance
from bertzoo.runs.bucket import Bucket
from bertzoo.runs.kind import recipe_class
from bertzoo.runs.transfer_config import Recipe
from bertzoo.train import hosts, restore
from bertzoo.train.progress import JsonLines
from bertzoo.train.stages import locate, stage_of

# What a run with a checkpoint cannot change: the parameters' shapes, and the contents of the batch at step k.
FIXED = (
    "from",
    "seed",
    "model",
    "objective",
    "data",
    "optimizer.kind",
    "optimizer.variant",
    "compute.vocab_multiple",
    "teacher",
    "teacher_objective",
    "knowledge",
    "transfer.kind",
)
FIXED_IN_BEGUN_STAGES = ("batch_size", "max_length", "max_predictions", "masking_share")
ORIGINS = ("from", "teacher")  # keys of run.json: path and hash of the parameters of the models a run is made from
CONFIG = "config.toml"
_MARK = ".processes-"  # begins the names of files by which processes find out that they share a directory
_LEFTOVERS = (lock.NAME, "corpus", "plans")  # of a run that ended before it wrote its config
_PATIENCE = 90  # seconds in which a network file system shows a new file, or releases a lost host's lock


class RunDirectory:
    """Paths of a run, on disk or behind gs://; the directory need not exist yet.

    For a run in a bucket `path` is a local copy of the small files (runs/bucket.py).
    """

    def __init__(self, path: Path | str):
        if not str(path):
            raise UserError("--run_dir is empty. Name a directory for the run.")
        self.name, self.bucket = str(path), None
        if self.name.startswith("gs://"):
            self.bucket = Bucket(self.name)
            self.checkpoints = place(f"{self.bucket.folder.url}/checkpoints")
            self.corpus, self.plans = f"{self.bucket.folder.url}/corpus", self.bucket.local / "plans"
            return
        self._path = run_directory(path)
        self.checkpoints, self.corpus, self.plans = (self._path / name for name in ("checkpoints", "corpus", "plans"))

    @property
    def path(self) -> Path:
        """The directory of the small files."""
        return self._path if self.bucket is None else self.bucket.directory

    @property
    def config(self) -> Path:
        """The resolved config, as TOML."""
        return self.path / CONFIG

    @property
    def metrics(self) -> Path:
        """Every metric and event of the run, a JSON object a line."""
        return self.path / "metrics.jsonl"

    @property
    def tensorboard(self) -> Path:
        """The metrics as TensorBoard event files."""
        return self.path / "tensorboard"

    def fetch(self) -> None:
        """Download the small files of a run in a bucket."""
        if self.bucket is not None:
            self.bucket.fetch()

    def load(self) -> Recipe:
        """Return the config of an existing run; raises UserError if there is none."""
        if not self.config.is_file():
            raise UserError(
                f"{self.name} is not a run: it has no {self.config.name}. Name a run that `bertzoo pretrain`, "
                "transfer or prune wrote."
            )
        return config.load(recipe_class(self.config), [self.config])

    def changes(self, recipe: Recipe, origin: Path | None = None) -> list[str]:
        """Return a line for each difference from the config that the run began with.

        origin: the model that the run is to start from. Raises ConfigError if a run with a checkpoint differs in what
        it cannot change.
        """
        if not self.config.exists():
            return []
        old, done = self.load(), self.latest()
        before = {"from": recorded["path"]} if (recorded := self.origin("from")) else {}
        now = {"from": str(origin.resolve())} if origin else {}
        changed = config.difference(before, now) + config.difference(old, recipe)
        if done is not None:
            fixed = [line for line in changed if line.startswith(FIXED)]
            config.reject(self.name, fixed + _stage_changes(old, recipe, done))
        return changed

    def record_changes(self, recipe: Recipe, step: int) -> None:
        """Append an event to metrics.jsonl if a run that resumes at `step` has another config than before."""
        changes = config.difference(self.load(), recipe) if self.config.exists() else []
        if changes:
            log = JsonLines(self.metrics)
            log({"event": "changed", "step": step, "stage": stage_of(recipe.stages, step), "changes": changes})
            log.close()

    def latest(self) -> int | None:
        """The step of the newest checkpoint, damaged or not."""
        return max(restore.steps_in(self.checkpoints), default=None)

    def write_config(self, recipe: Any) -> None:
        """Write the resolved config."""
        atomic.write_bytes(self.config, config.dump(recipe).encode())
        if self.bucket is not None:
            self.bucket.send()

    def provenance(self) -> dict[str, Any]:
        """The contents of run.json, or {} before the run has begun."""
        return provenance.read_run_json(self.path, self.name)

    def origin(self, key: str) -> dict[str, Any] | None:
        """The record in run.json of the model that the run starts "from" or of its "teacher", or None."""
        return self.provenance().get(key)

    def write_provenance(
        self, devices: list[str], processes: int, corpus: Corpus, origins: dict[str, dict[str, Any]] | None = None
    ) -> None:
        """Write run.json (software, devices, number of processes, corpus, `origins`) and copy the tokenizer."""
        record: dict[str, Any] = {
            **provenance.software(),
            "devices": devices,
            "processes": processes,
            **provenance.copy_tokenizer(corpus, self.path),
            **(origins or {}),
        }
        provenance.write_run_json(self.path, record)
        if self.bucket is not None:
            self.bucket.send()

    def tokenizer(self) -> Tokenizer:
        """The run's copy of its tokenizer or, without a copy, the corpus's."""
        return provenance.read_tokenizer(self.path, self.provenance(), self.name) or self.open_corpus().tokenizer

    def open_corpus(self, where: str | None = None) -> Corpus:
        """Open the corpus that the run was trained on; where: its path or URL, if it has moved.

        Raises CorpusError if it is missing or another one.
        """
        return provenance.find_corpus(self.corpus, self.provenance(), self.name, where)

    def corpus_is_elsewhere(self) -> bool:
        """Return whether run.json names a corpus other than the run's own, which is opened and never rebuilt."""
        own = str(self.corpus.resolve()) if isinstance(self.corpus, Path) else self.corpus
        record = self.provenance()
        return "corpus_sha256" in record and record["corpus"] != own

    def check_corpus(self, corpus: Corpus) -> None:
        """Raise CorpusError unless a corpus is the one that run.json names."""
        provenance.check_corpus(corpus.address, corpus.hash, self.provenance(), self.name)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory against other processes; the lock ends with this one.

        If the body raises before it writes anything, the directory is as it was before.
        """
        home = self.path if self.bucket is None else self.bucket.local  # a bucket has no locks
        if home.exists() and not home.is_dir():
            raise UserError(f"--run_dir={home} is a file. Name a directory.")
        if self.bucket is None:
            here = [path.name for path in home.iterdir()] if home.exists() else []
            check_vacant(
                self.name, here, [CONFIG, "checkpoints"], [*_LEFTOVERS, *(n for n in here if n.startswith(_MARK))]
            )
        else:
            self.bucket.check_vacant(_LEFTOVERS)
        absent = [path for path in (home, *home.parents) if not path.exists()]
        file = home / lock.NAME
        # A process of a run of several that was lost may still be ending.
        with lock.hold(file, self.name, patience=1 if hosts.alone() else _PATIENCE):
            try:
                yield
            except BaseException:
                if [path.name for path in home.iterdir()] == [file.name]:
                    file.unlink()  # while it is locked: whoever has opened it meanwhile finds that it is gone
                    with suppress(OSError):  # another process may have begun here
                        for path in absent:
                            path.rmdir()
                raise

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold the directory through process 0; raises UserError if another process sees another directory."""
        with ExitStack() as stack:

            def hold() -> str:
                stack.enter_context(self.locked())
                if self.bucket is not None:
                    return self.bucket.take()
                if hosts.alone():
                    return ""
                mark = f"{_MARK}{uuid.uuid4().hex}"  # a new name, which no file system has cached
                (self.path / mark).touch()
                stack.callback((self.path / mark).unlink, missing_ok=True)
                return mark

            mark = hosts.share("the run directory", hold)
            if not hosts.is_first():
                self.fetch()
            for _ in range(_PATIENCE):
                if self._shows(mark):
                    break
                time.sleep(1)
            else:
                raise UserError(
                    f"--run_dir={self.name} is not the directory that process 0 has under that name. Use a file system "
                    "that all processes share."
                )
            yield

    def _shows(self, mark: str) -> bool:
        return (self.path / mark).exists() if self.bucket is None else self.bucket.owner().get("id") == mark


def _stage_changes(old: Recipe, new: Recipe, done: int) -> list[str]:
    """Changes that would shift rows already read: of the batches of stages that have begun, and of the lengths of
    stages before the current one.
    """
    index, inside = locate(old.stages, done)
    begun, newest = index + bool(inside), stage_of(old.stages, done)
    if len(new.stages) < begun:
        return [f"{begun} stages have begun, but the config has {len(new.stages)}"]

    def fixed(recipe: Recipe) -> dict[str, Any]:  # all stages of a transfer strategy have one place in the config
        return {
            f"{recipe.where(i)}.{name}": value
            for i in range(begun)
            for name in (*FIXED_IN_BEGUN_STAGES, *["steps"] * (i < newest))
            if (value := getattr(recipe.stages[i], name)) is not None
        }

    return config.difference(fixed(old), fixed(new))
