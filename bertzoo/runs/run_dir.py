"""The directory of a run: its config, where it came from, its corpus and its checkpoints."""

import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from bertzoo.core import atomic, config
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.core.paths import place, run_directory
from bertzoo.data.corpus.corpus import Corpus
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.runs import facts, provenance
from bertzoo.runs.bucket import Mirror
from bertzoo.runs.kind import recipe_class
from bertzoo.runs.software import software
from bertzoo.runs.transfer_config import Recipe
from bertzoo.train import hosts, restore
from bertzoo.train.stages import locate, stage_of

# What a run cannot change half-way: the parameters' shapes, and what the batch at step k is.
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
_LOCK = ".lock"
_PATIENCE = 90  # seconds that a network file system may take to show a new file, or to let go of a lost host's lock
ORIGINS = ("from", "teacher")  # in run.json, of models that the run is made of: path and hash of the parameters
FIXED_IN_BEGUN_STAGES = ("batch_size", "max_length", "max_predictions")


class RunDirectory:
    """Names of what a run keeps, on disk or behind gs://; what `name` says need not exist yet.

    Of a run in a bucket `path` has a copy of the small files (`mirror.py`).
    """

    def __init__(self, path: Path | str):
        if not str(path):
            raise UserError("--run_dir is empty; name a directory for the run")
        self.name, self.mirror = str(path), None
        if self.name.startswith("gs://"):
            self.mirror = Mirror(self.name)
            self.checkpoints = place(f"{self.mirror.folder.url}/checkpoints")
            self.corpus, self.plans = f"{self.mirror.folder.url}/corpus", self.mirror.kept / "plans"
            return
        self._path = run_directory(path)
        self.checkpoints, self.corpus, self.plans = (self._path / name for name in ("checkpoints", "corpus", "plans"))

    @property
    def path(self) -> Path:
        """The directory of the small files."""
        return self._path if self.mirror is None else self.mirror.directory

    @property
    def config(self) -> Path:
        """The resolved config."""
        return self.path / "config.toml"

    @property
    def metrics(self) -> Path:
        """Every figure of the run."""
        return self.path / "metrics.jsonl"

    @property
    def tensorboard(self) -> Path:
        """The same for TensorBoard."""
        return self.path / "tensorboard"

    def fetch(self) -> None:
        """Get the small files of a run that is not on disk, to read them."""
        if self.mirror is not None:
            self.mirror.fetch()

    def send(self) -> None:
        """Write the small files of a run that is not on disk where it is."""
        if self.mirror is not None:
            self.mirror.send()

    def load(self) -> Recipe:
        """The config of an existing run; raises UserError when there is none."""
        if not self.config.is_file():
            raise UserError(f"{self.name} is not a run: it has no {self.config.name}")
        return config.load(recipe_class(self.config), [self.config])

    def compare(self, recipe: Recipe, origin: Path | None = None) -> list[str]:
        """What has changed since the run began; anything may while there is no checkpoint.

        origin: the path of what the run is to start from. Raises ConfigError when something differs that a run cannot
        change half-way.
        """
        if not self.config.exists():
            return []
        old, done = self.load(), self.latest()
        began = {"from": recorded["path"]} if (recorded := self.origin()) else {}
        asked = {"from": str(origin.resolve())} if origin else {}
        changed = config.difference(began, asked) + config.difference(old, recipe)
        if done is None:
            return changed
        refused = [line for line in changed if line.startswith(FIXED)] + _stage_changes(old, recipe, done)
        if refused:
            raise ConfigError(
                f"{self.name} holds a run with another config: {'; '.join(refused)}; "
                "give back these values, or choose another --run_dir"
            )
        return changed

    def latest(self) -> int | None:
        """The step of the newest checkpoint, damaged or not."""
        return max(restore.steps_in(self.checkpoints), default=None)

    def begin(self, recipe: Recipe) -> None:
        """Write the resolved config, from now on the run's."""
        atomic.write_bytes(self.config, config.dump(recipe).encode())
        self.send()

    def facts(self) -> dict[str, Any]:
        """What run.json says; nothing where nothing has begun."""
        return facts.read(self.path, self.name)

    def origin(self, of: str = "from") -> dict[str, Any] | None:
        """What run.json says of the model that the run started `from`, or of its `teacher`; None where there is none,
        or where nothing has begun.
        """
        return self.facts().get(of)

    def describe(
        self, devices: list[str], processes: int, corpus: Corpus, origins: dict[str, dict[str, Any]] | None = None
    ) -> None:
        """Write run.json: which software, which devices and how many processes train this run, on which tokenised
        corpus, and the models that it is made of (`ORIGINS`); and beside it the corpus's tokenizer.
        """
        said: dict[str, Any] = {
            **software(),
            "devices": devices,
            "processes": processes,
            **provenance.keep(corpus, self.path),
            **(origins or {}),
        }
        facts.write(self.path, said)
        self.send()

    def tokenizer(self) -> Tokenizer:
        """What the run's text was tokenised with: the run's own copy or, of a run without one, the corpus's."""
        return provenance.kept_tokenizer(self.path, self.facts(), self.name) or self.open_corpus().tokenizer

    def open_corpus(self, where: str | None = None) -> Corpus:
        """The tokenised corpus that the run was trained on; where: the path or URL at which it is by now.

        Raises CorpusError where it is not there, or is another.
        """
        return provenance.find_corpus(self.corpus, self.facts(), self.name, where)

    def corpus_is_elsewhere(self) -> bool:
        """Whether run.json names a corpus that is not the run's own at this place, which its text makes again."""
        own = str(self.corpus.resolve()) if isinstance(self.corpus, Path) else self.corpus
        said = self.facts()
        return "corpus_sha256" in said and said["corpus"] != own

    def check_corpus(self, corpus: Corpus) -> None:
        """Raise CorpusError where a corpus is not the one that run.json names."""
        provenance.check(corpus.address, corpus.hash, self.facts(), self.name)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory: two runs writing one would ruin it. The lock ends with the process, however that ends.

        Where what is done meanwhile fails before anything is written, the directory is as it was before.
        """
        home = self.path if self.mirror is None else self.mirror.kept  # in a bucket there are no locks
        if home.exists() and not home.is_dir():
            raise UserError(f"--run_dir={home} is a file; name a directory")
        absent = [path for path in (home, *home.parents) if not path.exists()]
        lock = home / _LOCK
        with self._hold(lock):
            try:
                yield
            except BaseException:
                if [path.name for path in home.iterdir()] == [lock.name]:
                    lock.unlink()  # while it is held: who has opened it meanwhile finds that it is gone
                    with suppress(OSError):  # another process may have begun here
                        for path in absent:
                            path.rmdir()
                raise

    def _hold(self, lock: Path) -> TextIO:
        """The lock file, locked and made where there is none; raises UserError where another process has it."""
        # The process of a run of several that was lost may yet have to learn of it.
        patience, tries = 1 if hosts.alone() else _PATIENCE, 10
        while True:
            lock.parent.mkdir(parents=True, exist_ok=True)
            with ExitStack() as stack, suppress(FileNotFoundError):
                file = stack.enter_context(lock.open("w"))
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    patience -= 1
                    if not patience:
                        raise UserError(
                            f"{self.name} is in use by another bertzoo process; wait for it or stop it"
                        ) from error
                    time.sleep(1)
                    continue
                except OSError as error:
                    raise UserError(
                        f"--run_dir={lock.parent} is on a file system that locks no files ({error.strerror}): mount it "
                        "with locks, or choose another"
                    ) from error
                # Its last holder may have removed it, and another process have made it anew. A file system
                # that calls one file by two numbers is taken at its word in the end.
                tries -= 1
                if not tries or os.path.samestat(os.fstat(file.fileno()), lock.stat()):
                    stack.pop_all()
                    return file

    @contextmanager
    def shared(self) -> Iterator[None]:
        """As `locked`, by the first of several processes for all; raises UserError where one sees another directory."""
        with ExitStack() as stack:

            def hold() -> str:
                stack.enter_context(self.locked())
                if self.mirror is not None:
                    return self.mirror.hold()
                if hosts.alone():
                    return ""
                mark = f".processes-{uuid.uuid4().hex}"  # a new name, which no cache of the file system's can hold
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
                    f"--run_dir={self.name} is not the directory that process 0 has under that name: it must be on a "
                    "file system that all processes share"
                )
            yield

    def _shows(self, mark: str) -> bool:
        return (self.path / mark).exists() if self.mirror is None else self.mirror.owner().get("id") == mark


def _stage_changes(old: Recipe, new: Recipe, done: int) -> list[str]:
    """One line for every field of a stage that has begun and would shift the rows it has read, and for the length of
    one that others have followed, which would shift those.
    """
    index, inside = locate(old.stages, done)
    begun, newest = index + bool(inside), stage_of(old.stages, done)
    if len(new.stages) < begun:
        return [f"{begun} stages have begun, but the config has {len(new.stages)}"]
    found = [
        f"{old.where(i)}.{name}: {getattr(old.stages[i], name)} -> {getattr(new.stages[i], name)}"
        for i in range(begun)
        for name in (*FIXED_IN_BEGUN_STAGES, *["steps"] * (i < newest))
        if getattr(old.stages[i], name) != getattr(new.stages[i], name)
    ]
    return list(dict.fromkeys(found))  # the stages of a transfer have one place
