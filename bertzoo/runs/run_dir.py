"""The directory of a run: its config, its provenance, its corpus and its checkpoints (docs/formats.md)."""

import hashlib
import logging
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import jax

from bertzoo.core import atomic, config
from bertzoo.core.errors import CorpusError, UserError
from bertzoo.core.kinds import CONFIG, METRICS, config_class
from bertzoo.core.paths import Location, check_vacant, is_url, on_disk, resolve_name, run_directory, to_path
from bertzoo.core.remote import RemoteFolder
from bertzoo.data.corpus import manifest, remote
from bertzoo.data.corpus.reader import Corpus
from bertzoo.data.tokenizers import tokenizer as tokenizers
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.runs import provenance
from bertzoo.runs.bucket import OWNER, TRACKERS, Bucket
from bertzoo.runs.configs import Recipe
from bertzoo.runs.kinds import CHECKPOINTS
from bertzoo.runs.provenance import RUN_JSON, TOKENIZER
from bertzoo.train import checkpoint, hosts
from bertzoo.train.experiment import locate, stage_of, total_steps
from bertzoo.train.progress import JsonLines

_LOG = logging.getLogger(__name__)
# Config keys that a run with a checkpoint cannot change: they set state shapes, objectives or the batch at step k.
FIXED = (
    "from",
    "seed",
    "model",
    "objective",
    "data",
    "optimizer.kind",
    "optimizer.variant",
    "teacher",
    "teacher_objective",
    "knowledge",
    "transfer.kind",
)
ORIGINS = ("from", "teacher")  # keys of run.json for the models a run is made from: path and parameter hash
_MARK = ".processes-"  # prefix of files that prove to all processes that they share a directory
# Files and folders of a run that ended before it wrote its config.
_LEFTOVERS = (atomic.NAME, "corpus", "plans", "programs", TRACKERS, "wandb")
_PATIENCE = 90  # seconds until a network file system shows a new file or releases a lost host's lock


class RunDirectory:
    """The directory of a run, on disk or in a bucket (gs://), and the paths in it. The directory need not exist yet.

    For a run in a bucket, `path` is a local directory with copies of the small files (runs/bucket.py).
    """

    def __init__(self, path: Path | str):
        if not str(path):
            raise UserError("The name of the run's directory is empty. Use --run_dir=DIRECTORY, or name a run.")
        self.name, self.bucket = str(path), None
        if self.name.startswith("gs://"):
            self.bucket = Bucket(self.name)
            self.checkpoints, self.programs = (
                to_path(f"{self.bucket.folder.url}/{name}") for name in (CHECKPOINTS, "programs")
            )
            self.corpus, self.plans = f"{self.bucket.folder.url}/corpus", self.bucket.local / "plans"
            return
        self._path = run_directory(path)
        self.checkpoints, self.corpus, self.plans, self.programs = (
            self._path / name for name in (CHECKPOINTS, "corpus", "plans", "programs")
        )

    @property
    def path(self) -> Path:
        """Local directory of the small files, such as config and metrics."""
        return self._path if self.bucket is None else self.bucket.directory

    @property
    def config(self) -> Path:
        return self.path / CONFIG

    @property
    def metrics(self) -> Path:
        return self.path / METRICS

    def fetch(self) -> None:
        """Download the small files of a run in a bucket; does nothing for a run on disk."""
        if self.bucket is not None:
            self.bucket.fetch()

    def load(self) -> Recipe:
        """Return the config of an existing run; raises UserError if there is none."""
        if not self.config.is_file():
            raise UserError(
                f"{self.name} is not a run: it has no {self.config.name}. Name one of pretrain, transfer or prune."
            )
        return config.load(config_class(self.config), [self.config])

    def changes(self, recipe: Recipe, origin: Location | None = None) -> list[str]:
        """Return a line for each difference between `recipe` and the run's saved config.

        origin: the model that the run is to start from. Raises ConfigError if the run has a checkpoint and a difference
        concerns a key in FIXED or the rows that the run has read.
        """
        if not self.config.exists():
            return []
        old, step = self.load(), self.latest()
        before = {"from": recorded["path"]} if (recorded := self.origin("from")) else {}
        now = {"from": resolve_name(origin)} if origin else {}
        changed = config.difference(before, now) + config.difference(old, recipe)
        if step is not None:
            fixed = [line for line in changed if line.startswith(FIXED)]
            config.reject(self.name, fixed + _stage_changes(old, recipe, step))
        return changed

    def record_changes(self, recipe: Recipe, step: int) -> None:
        """Append a "changed" event to metrics.jsonl if a run that resumes at `step` has a new config."""
        if self.config.exists() and (changes := config.difference(self.load(), recipe)):
            log = JsonLines(self.metrics)
            log({"event": "changed", "step": step, "stage": stage_of(recipe.stages, step), "changes": changes})
            log.close()

    def latest(self) -> int | None:
        """Return the step of the newest checkpoint, damaged or not; None without checkpoints."""
        return max(checkpoint.steps_in(self.checkpoints), default=None)

    def write_config(self, recipe: Any) -> None:
        """Write the config `recipe`, with all defaults, into the directory; uploads it if the run is in a bucket."""
        atomic.write_bytes(self.config, config.dump(recipe).encode())
        if self.bucket is not None:
            self.bucket.send()

    def provenance(self) -> dict[str, Any]:
        """Return the contents of run.json, or {} before the run has begun."""
        return provenance.read_run_json(self.path, self.name)

    def origin(self, key: str) -> dict[str, Any] | None:
        """Return run.json's record of another model, or None; key: "from" for the initial model, or "teacher"."""
        return self.provenance().get(key)

    def model_path(self, key: str, path: Location | None, begun: bool = True) -> tuple[str, dict[str, Any] | None]:
        """Return the path of a model that the run reads, and the record `key` in run.json, None if not `begun`.

        path: None stands for the recorded path. Raises UserError if there is neither, or if the latter is a URL.
        """
        record = self.origin(key) if begun else None
        if path is not None:
            return str(path), record
        if record is None:
            raise UserError(f"--{key} is missing. Name the {'model to start from' if key == 'from' else key}.")
        advice = f"If you trust it, add --{key}={record['path']}."
        return provenance.check_local(record["path"], "model", self.name, advice), record

    def check_same_model(self, key: str, before: dict[str, Any] | None, now: dict[str, Any]) -> None:
        """Raise UserError if the records of the model `key`, in run.json and now, are of other parameters."""
        if before and before["parameters_sha256"] != now["parameters_sha256"]:
            raise UserError(
                f"the parameters of --{key}={now['path']} differ from those that {self.name} started with in "
                f"{before['path']}. Restore them, or use a different --run_dir."
            )

    def write_provenance(self, corpus: Corpus, origins: dict[str, dict[str, Any]] | None = None) -> None:
        """Write run.json (software, devices, number of processes, corpus, `origins`) and copy the tokenizer."""
        copy, original = self.path / TOKENIZER, corpus.directory / "tokenizer"
        contents = {name: (original / name).read_bytes() for name in tokenizers.files(corpus.tokenizer.config.kind)}
        shutil.rmtree(copy, ignore_errors=True)  # a run without a checkpoint may have had another corpus
        copy.mkdir()
        for name, data in contents.items():
            atomic.write_bytes(copy / name, data)
        record: dict[str, Any] = {
            **provenance.software(),
            "devices": [f"{device.platform} {device.device_kind}" for device in jax.devices()],
            "processes": jax.process_count(),
            "corpus": corpus.address,
            "corpus_sha256": corpus.hash,
            TOKENIZER: {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()},
            **(origins or {}),
        }
        provenance.write_run_json(self.path, record)
        if self.bucket is not None:
            self.bucket.send()

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer from the run's copy or, without a copy, from the corpus.

        Raises CorpusError if the copy is damaged.
        """
        copy, hashes = self.path / TOKENIZER, self.provenance().get(TOKENIZER, {})
        if not hashes or not all((copy / name).is_file() for name in hashes):
            return self.open_corpus().tokenizer
        for name, digest in hashes.items():
            if atomic.file_hash(copy / name) != digest:
                raise CorpusError(
                    f"{self.name}/{TOKENIZER}/{name} is damaged: its hash differs from the one in {RUN_JSON}. Restore "
                    "a copy, or remove the file to read the corpus's tokenizer instead."
                )
        return tokenizers.load(copy)

    def open_corpus(self, source: str | None = None) -> Corpus:
        """Open the corpus that the run was trained on; a corpus behind a URL is first copied to this machine.

        It is at `source`, a path or URL, if set, else in the run's folder, else at the address in run.json, unless
        that is a URL outside the run's bucket. Raises UserError if it is missing or is not the one in run.json.
        """
        run, record = self.name, self.provenance()
        if not {"corpus", "corpus_sha256"} <= record.keys():
            raise CorpusError(
                f"{run} records no corpus in {RUN_JSON}. Start or resume its training, which writes {RUN_JSON}."
            )
        if source is not None:
            return self._open_recorded(source)
        inside = self.corpus if isinstance(self.corpus, Path) and (self.corpus / manifest.NAME).is_file() else None
        if inside is not None and manifest.read_manifest(inside).hash == record["corpus_sha256"]:
            return Corpus.open(inside)
        address = record["corpus"]
        if is_url(address):
            if address.split("/")[:3] != str(self.corpus).split("/")[:3]:
                advice = (
                    f"If you trust it, add --corpus={address}. To use the run without --corpus, copy the corpus's "
                    f"folder tokenizer/ into {run}."
                )
                provenance.check_local(address, "corpus", run, advice)
        elif not (Path(address) / manifest.NAME).is_file():
            raise CorpusError(f"the corpus of {run} is no longer at {address}. Name its new path with --corpus.")
        return self._open_recorded(address)

    def _open_recorded(self, source: str) -> Corpus:
        path = None if is_url(source) else on_disk(source, "the corpus", "Write :// after the protocol.")
        stored = remote.read_remote_manifest(RemoteFolder.at(source)) if path is None else manifest.read_manifest(path)
        self.check_corpus(source, stored.hash)  # before copying it
        return remote.open_remote_corpus(source) if path is None else Corpus.open(path)

    def corpus_is_elsewhere(self) -> bool:
        """Return whether run.json names a corpus outside the run's directory; such a corpus is never rebuilt."""
        inside = str(self.corpus.resolve()) if isinstance(self.corpus, Path) else self.corpus
        record = self.provenance()
        return "corpus_sha256" in record and record.get("corpus") != inside

    def check_corpus(self, source: str, digest: str) -> None:
        """Raise CorpusError if the hash in run.json differs from `digest`, the hash of the corpus at `source`."""
        if digest != (expected := self.provenance().get("corpus_sha256", digest)):
            raise CorpusError(
                f"{source} is not the corpus of {self.name}: its hash is {digest}, the run recorded {expected}. Name "
                "the corpus that the run was trained on."
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the directory against other processes until the with block or this process ends.

        If the block raises before it writes a file, the lock file and new directories are removed.
        """
        home = self.path if self.bucket is None else self.bucket.local  # a bucket has no locks
        if home.exists() and not home.is_dir():
            raise UserError(f"--run_dir={home} is a file. Name a directory.")
        if self.bucket is None:
            names = [path.name for path in home.iterdir()] if home.exists() else []
            leftovers = [*_LEFTOVERS, *(name for name in names if name.startswith(_MARK))]
            check_vacant(self.name, names, [CONFIG, CHECKPOINTS], leftovers)
        else:
            folder = self.bucket.folder
            check_vacant(folder.url, folder.file_sizes(), [CONFIG, OWNER], _LEFTOVERS)
        absent = [path for path in (home, *home.parents) if not path.exists()]
        file = home / atomic.NAME
        # In a run of several processes, a lost one may still be ending.
        with atomic.hold(file, self.name, patience=1 if hosts.alone() else _PATIENCE):
            try:
                yield
            except BaseException:
                if [path.name for path in home.iterdir()] == [file.name]:
                    file.unlink()  # while it is locked: a process that has opened it meanwhile sees that it is gone
                    with suppress(OSError):  # another process may have begun here
                        for path in absent:
                            path.rmdir()
                raise

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Lock the directory in process 0; raises UserError in a process whose path names another directory."""
        with ExitStack() as stack:

            def hold() -> str:
                stack.enter_context(self.locked())
                for leftover in self.path.glob(f"{_MARK}*"):  # by processes that were killed
                    leftover.unlink(missing_ok=True)
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
                bucket = self.bucket
                if (self.path / mark).exists() if bucket is None else bucket.owner().get("id") == mark:
                    break
                time.sleep(1)
            else:
                raise UserError(
                    f"--run_dir={self.name} is not the directory that process 0 has under that name. Use a file system "
                    "that all processes share."
                )
            yield


def _stage_changes(old: Recipe, new: Recipe, step: int) -> list[str]:
    """Return a line for each config change that does not fit the rows read up to `step`.

    A training stage that has begun keeps its batches. It also keeps its number of steps once a later stage has begun.
    """
    index, offset = locate(old.stages, step)
    begun, newest = index + bool(offset), stage_of(old.stages, step)
    if len(new.stages) < begun:
        return [f"{begun} stages have begun, but the config has {len(new.stages)}"]

    def fixed(recipe: Recipe) -> dict[str, Any]:  # all stages of a transfer strategy share one table of the config
        return {
            f"{recipe.where(i)}.{name}": value
            for i in range(begun)
            for name in ("batch_size", "max_length", "max_predictions", "masking_share", *["steps"] * (i < newest))
            if (value := getattr(recipe.stages[i], name)) is not None
        }

    if changed := config.difference(fixed(old), fixed(new)):
        return changed
    if step > (total := total_steps(new.stages)):
        return [f"step {step} was saved, but the stages have {total} steps"]
    if (now := stage_of(new.stages, step)) != newest:
        return [f"step {step} was saved in stage {newest}, but the config has it in stage {now}"]
    return []
