"""Keep the directory of a pipeline: pipeline.json with the finished steps, the lock, logs and pipeline.md."""

import glob
import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertzoo.core import atomic, config, lock
from bertzoo.core.documents import parse_toml, read_json
from bertzoo.core.errors import UserError
from bertzoo.core.paths import check_vacant, is_url, on_disk, run_directory
from bertzoo.data.corpus import manifest
from bertzoo.export.companions import companions
from bertzoo.pipeline import verbs
from bertzoo.pipeline.recipe import Pipeline, Places, Step

NAME, STAGES, LOGS, PAGE = "pipeline.json", "stages", "logs", "pipeline.md"
VERSION = 1  # format of pipeline.json
_SHORT = 12  # digits of a hash that an error shows
_FACTS = {  # keys of `facts`, in words
    "words": "the command",
    "config": "the config",
    "inputs": "an input",
    "reads": "an earlier step's output",
}


def output_hash(kind: str, place: str) -> str:
    """Return the SHA-256 of an output: of a model's parameters, a corpus's text or a file's bytes.

    kind: a kind of output in `verbs`, such as MODEL. place: the output's path or URL. Raises UserError if it is
    missing or damaged.
    """
    if kind in verbs.ANY_MODEL:
        return _of_model(place)
    if kind == verbs.CORPUS:
        return manifest.read_manifest(Path(place)).hash
    return _of_path(Path(place))


def input_hash(text: str) -> str:
    """Return the SHA-256 of an input: of a model's parameters, or of all bytes of the files that `text` names.

    If `text` names no file on this machine (such as embedded:python or gs://bucket/text), the hash is that of `text`.
    """
    paths = _matches(text)
    if len(paths) == 1 and paths[0].is_dir():
        try:
            return _of_model(str(paths[0]))
        except UserError:  # a directory of text or tables
            return _of_path(paths[0])
    return _digest([text] if not paths else [_of_path(path) for path in paths])


def files_stamp(text: str) -> str | None:
    """Return a hash of the names, sizes and modification times of the files that `text` names; None without files."""
    files = [file for path in _matches(text) for file in files_in(path)]
    facts = [f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files]
    return _digest(facts) if facts else None


def exists(place: str) -> bool:
    """Return whether a path or URL exists."""
    from bertzoo.core.paths import place as located

    return located(place).exists()


def _of_model(place: str) -> str:
    from bertzoo.conversion import tensors
    from bertzoo.runs import load_model

    return tensors.digest(load_model.read_model(place).params)


def _of_path(path: Path) -> str:
    if not path.exists():
        raise UserError(f"{path} is missing. Run the same pipeline again to make this output.")
    if path.is_dir():
        return _digest([json.dumps(atomic.hashes(path), sort_keys=True)])
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _matches(text: str) -> list[Path]:
    """Return the existing paths that `text` names: one path, or paths and globs between commas; [] for a URL."""
    if is_url(text) or not text:
        return []
    if Path(text).exists():
        return [Path(text)]
    if "," in text:
        return [path for name in text.split(",") for path in _matches(name.strip())]
    return [Path(found) for found in sorted(glob.glob(text, recursive=True))]


def files_in(path: Path) -> list[Path]:
    """Return the files in a directory at any depth, or the file itself."""
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class PipelineRecord:
    """The directory of a pipeline, which need not exist yet.

    training_dir: directory or URL of training runs, as `Places.training`; None puts them beside the other outputs.
    configs: {step name: resolved configs of the step's runs, as TOML}; only a sweep has several runs.
    """

    def __init__(self, run_dir: str, pipeline: Pipeline, training_dir: str | None = None):
        self.path = on_disk(
            run_dir, "the run directory", "Name a local or mounted directory, and the URL with --training_dir."
        )
        self.pipeline = pipeline
        training = (training_dir or str(self.path / STAGES)).rstrip("/")
        if not training.startswith("gs://"):
            run_directory(training)
        self.places = Places(stages=self.path / STAGES, training=training)
        self.configs: dict[str, list[str]] = {}
        self.errors: dict[str, str] = {}  # by step: how its last run failed, or what it waits for
        self._stamps: dict[str, list[str]] = {}
        self._finished: dict[str, dict[str, Any]] = {}
        self._remote: dict[str, str] = {}  # hashes of what is behind URLs, which only this pipeline changes

    def log(self, step: Step) -> Path:
        """Return the path of the log of a step's last run."""
        return self.path / LOGS / f"{step.name}.log"

    def words(self, step: Step) -> list[str]:
        """Return a step's command line, after `bertzoo`."""
        return self.pipeline.words(step, self.places)

    def entry(self, step: Step) -> dict[str, Any] | None:
        """Return the record of a finished step whose output still exists, or None."""
        entry = self._finished.get(step.name)
        return entry if entry and all(map(exists, self.files(step))) else None

    def files(self, step: Step) -> list[str]:
        """Return the path of a step's output and, if the output is a file, the paths of its companion files."""
        output = self.places.readable(step)
        beside = companions(Path(output)) if step.makes == verbs.FILE else ()
        return [output, *(str(Path(output).with_name(name)) for name in beside)]

    def unfinished(self, step: Step) -> list[str]:
        """Return the names of unfinished steps whose outputs a step reads."""
        return [name for name in self.pipeline.needs(step) if self.entry(self.pipeline.step(name)) is None]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory's lock and read pipeline.json.

        Raises UserError if another process holds the lock, or if the directory has files that belong to no pipeline.
        """
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"--run_dir={self.path} is a file. Name a directory.")
        if self.path.exists():
            check_vacant(str(self.path), [path.name for path in self.path.iterdir()], [NAME], [lock.NAME, LOGS])
        self.path.mkdir(parents=True, exist_ok=True)
        with lock.hold(self.path / lock.NAME, str(self.path)):
            self.read()
            yield

    def changes(self, step: Step) -> list[str]:
        """Return a line for each difference between a finished step's record and the step as it would run now."""
        old = self._finished[step.name]
        try:
            new = self.facts(step)
            output = self._hash(step.makes, self.places.readable(step))
        except UserError as error:
            return [f"one of its inputs or outputs is damaged: {error}"]
        lines = [f"its command no longer has {word}" for word in old["words"] if word not in new["words"]]
        lines += [f"its command has a new {word}" for word in new["words"] if word not in old["words"]]
        lines += config.difference(parse_toml(old["config"]), parse_toml(new["config"]))
        for kind, names in (("the input", "inputs"), ("the output of", "reads")):
            for name in old[names].keys() & new[names].keys():
                before, after = old[names][name], new[names][name]
                if before != after:
                    lines.append(f"{kind} {name} had the hash {before[:_SHORT]}, now {after[:_SHORT]}")
        if output != old["output"]:
            lines.append(f"its output had the hash {old['output'][:_SHORT]}, now {output[:_SHORT]}")
        return lines

    def finish(self, step: Step, facts: Mapping[str, Any], seconds: float) -> None:
        """Record that a step has just finished.

        facts: the return value of `begin`. Raises UserError if the facts have changed since `begin`, or if the step's
        output is missing or damaged.
        """
        output = self._hash(step.makes, self.places.readable(step))
        if changed := [_FACTS[key] for key, value in self.facts(step).items() if value != facts[key]]:
            raise UserError(
                f"{' and '.join(changed)} changed while {step.name} ran. Remove the step's output and run the pipeline "
                "again."
            )
        times = {"seconds": round(seconds, 1), "finished": time.strftime("%Y-%m-%d %H:%M:%S")}
        self._finished[step.name] = {**facts, "output": output, **times}
        if missing := [path for path in self.files(step) if not exists(path)]:
            raise UserError(f"{missing[0]} is missing beside the output of {step.name}. Run the pipeline again.")
        self.errors.pop(step.name, None)
        self.write()

    def write(self) -> None:
        """Write pipeline.json, without steps whose output no longer exists."""
        for step in self.pipeline.steps:  # with --tasks, more steps than these are recorded
            if self.entry(step) is None:
                self._finished.pop(step.name, None)
        document = {"version": VERSION, "pipeline": self.pipeline.path.stem, "steps": self._finished}
        document["hashes"] = self._stamps
        atomic.write_json(self.path / NAME, document)

    def read(self) -> None:
        """Read pipeline.json, if it exists; raises UserError if it is damaged or of another version."""
        file = self.path / NAME
        if not file.is_file():
            return
        try:
            document = read_json(file)
            version, name, self._finished, self._stamps = (
                document[key] for key in ("version", "pipeline", "steps", "hashes")
            )
            known = {"words", "config", "inputs", "reads", "output", "seconds", "finished"}
            whole = all(entry.keys() == known for entry in self._finished.values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{file} is damaged: {error}. Restore a copy, or use a different --run_dir.") from error
        if version != VERSION or not whole:
            raise UserError(
                f"{file} has version {version}, but this bertzoo reads version {VERSION}. Use a different --run_dir."
            )
        if name != self.pipeline.path.stem:
            raise UserError(
                f"{self.path} is the directory of the pipeline {name}, not of {self.pipeline.path.stem}. Use a "
                "different --run_dir."
            )

    def begin(self, step: Step) -> dict[str, Any]:
        """Prepare a run of a step: drop the record of its earlier output, and return its `facts`."""
        self._remote.pop(self.places.readable(step), None)
        self._finished.pop(step.name, None)
        return self.facts(step)

    def outdated(self, step: Step) -> str:
        """Return the reason why a finished step is outdated, or "" if it is valid.

        A step is outdated if it has changed since it ran, or if a step that it reads is unfinished or outdated.
        """
        for name in self.pipeline.needs(step):
            other = self.pipeline.step(name)
            if self.entry(other) is None:
                return f"{step.name} reads {name}, which is not finished"
            if why := self.outdated(other):
                return why
        return next((f"{step.name} is finished, but {change}" for change in self.changes(step)), "")

    def facts(self, step: Step) -> dict[str, Any]:
        """Return what a step's output depends on: its command, its config and the hashes of what it reads.

        In command and config, names replace the paths of inputs and outputs, so that directories may move.
        """
        inputs = self.pipeline.inputs_of(step)
        texts = self.configs.get(step.name, [])
        named = {str(self.places.stages): "{stages}", self.places.training: "{training}"}
        named |= {value: f"{{{name}}}" for name, value in inputs.items()}
        for value in sorted(named, key=len, reverse=True):
            texts = [text.replace(f'"{value}', f'"{named[value]}') for text in texts]
        text = texts[0] if texts else ""
        if len(texts) > 1:
            digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()
            text = f'points = {len(texts)}\npoints_sha256 = "{digest}"\n{text}'
        template = replace(self.pipeline, inputs={name: f"{{{name}}}" for name in self.pipeline.inputs})
        return {
            "words": template.words(step, Places(stages=Path("{stages}"), training="{training}")),
            "config": text,
            "inputs": {name: self._hash("", value) for name, value in inputs.items()},
            "reads": {
                name: self._hash(other.makes, self.places.readable(other))
                for name in self.pipeline.needs(step)
                for other in [self.pipeline.step(name)]
            },
        }

    def _hash(self, kind: str, place: str) -> str:
        """Return the hash of an output or input at `place`, a path or URL.

        kind: a kind of output in `verbs`, or "" for an input.

        Hashes are cached. A file's hash is valid until the file's size or modification time changes, a URL's hash
        until the step that writes to the URL runs again.
        """
        if is_url(place) and place in self._remote:
            return self._remote[place]
        stamp = None if is_url(place) else files_stamp(place)
        known = self._stamps.get(place)
        if known is not None and stamp is not None and known[0] == stamp:
            return known[1]
        digest = output_hash(kind, place) if kind else input_hash(place)
        if stamp is not None:
            self._stamps[place] = [stamp, digest]
        elif is_url(place):
            self._remote[place] = digest
        return digest


def steps_of(pipeline: Pipeline, only: Sequence[str], since: str) -> list[Step]:
    """Return the steps of the stages that --only and --from_stage select; raises UserError for an unknown stage.

    only: names of stages in --only; if empty, --only selects all stages.
    since: the stage in --from_stage, which selects this stage and all later ones; "" selects all stages.
    """
    stages = list(dict.fromkeys(step.stage for step in pipeline.steps))
    for flag, name in (*(("--only", name) for name in only), *[("--from_stage", since)] * bool(since)):
        if name not in stages:
            raise UserError(f"{flag}={name} is not a stage. The stages are {', '.join(stages)}.")
    chosen = stages[stages.index(since) if since else 0 :]
    return [step for step in pipeline.steps if step.stage in chosen and (not only or step.stage in only)]
