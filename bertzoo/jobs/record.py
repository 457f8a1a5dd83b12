"""The directory of a list of jobs: pipeline.json or sweep.json with the finished jobs, the lock, and logs."""

import glob
import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertzoo.core import atomic, config
from bertzoo.core.documents import fitting, parse_toml, read_json
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.core.kinds import KINDS, METRICS
from bertzoo.core.paths import check_vacant, is_url, on_disk, run_directory, to_path
from bertzoo.data.corpus import manifest
from bertzoo.export.companions import companions
from bertzoo.finetuning import results
from bertzoo.jobs import job as forms
from bertzoo.jobs.job import CommandJob, JobList, OutputPaths
from bertzoo.runs import report
from bertzoo.train.experiment import total_steps

LOGS, FOLDERS = "logs", {"pipeline": "stages", "sweep": "points"}
VERSION = 1  # format of pipeline.json and sweep.json
SHORT = 12  # digits of a hash to show
_TABLES = tuple(f"*{suffix}" for suffix in (".tsv", ".csv", ".json", ".jsonl", ".parquet"))
LOSS = "loss"  # of a held-out line, in nats
_ENTRY = {
    **{"words": [str], "config": str, "inputs": {str: str}, "reads": {str: str}},
    **{"output": str, "seconds": float, "finished": str},
}
_RECORD = {"steps?": {str: _ENTRY}, "hashes?": {str: (str, str)}}


def content_hash(kind: str, name: str) -> str:
    """Return the SHA-256 of an output or input: of a model's parameters, a corpus's text, or the bytes of files.

    kind: a kind of output in `job`, such as MODEL, or "" for an input. name: path or URL; of an input also globs. If it
    names no file on this machine (such as embedded:python), the hash of an input is that of `name`. Raises UserError if
    an output is missing or damaged.
    """
    if kind in forms.ANY_MODEL:
        return _of_model(name)
    if kind:
        return manifest.read_manifest(Path(name)).hash if kind == forms.CORPUS else _of_path(Path(name))
    paths = _matches(name)
    if len(paths) == 1 and paths[0].is_dir():
        with suppress(UserError):  # a directory of text or tables
            return _of_model(str(paths[0]))
        return _of_path(paths[0])
    return _digest([_of_path(path) for path in paths] or [name])


def files_stamp(text: str) -> str | None:
    """Return a hash of the names, sizes and modification times of the files that `text` names; None without files."""
    files = [file for path in _matches(text) for file in files_in(path)]
    facts = [f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files]
    return _digest(facts) if facts else None


def files_in(path: Path) -> list[Path]:
    """Return the files in a directory at any depth, or the file itself."""
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _of_model(name: str) -> str:
    from bertzoo.conversion import tensors
    from bertzoo.runs import load_model

    return tensors.digest(load_model.read_model(name).params)


def _of_path(path: Path) -> str:
    if not path.exists():
        raise UserError(f"{path} is missing. Run the same command again to make this output.")
    return _digest([json.dumps(atomic.hashes(path), sort_keys=True)]) if path.is_dir() else atomic.file_hash(path)


def _matches(text: str) -> list[Path]:
    """Return the existing paths that `text` names: one path, or paths and globs between commas; [] for a URL."""
    if is_url(text) or not text:
        return []
    if Path(text).exists():
        return [Path(text)]
    if "," in text:
        return [path for name in text.split(",") for path in _matches(name.strip())]
    return [Path(name) for name in sorted(glob.glob(text, recursive=True))]


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _is_single(job: CommandJob) -> bool:
    """Return whether a job is one training run, which more steps continue."""
    return job.is_training and KINDS[job.verb].model is None


class JobRecord:
    """The directory of a list of jobs, which need not exist yet, and the state of every job.

    training_dir: as `OutputPaths.training`; None puts training runs beside the other outputs.
    recipes: {job name: configs of the job's runs}; only a job that is a sweep has several.
    states: {name of a job that did not finish: ("failed", "stopped", "waiting" or "over budget", why)}.
    milliseconds: {output of a point (`CommandJob.path`): time of a sequence in its model}, under a budget.
    """

    def __init__(self, run_dir: str, jobs: JobList, training_dir: str | None = None):
        advice = "Name a local or mounted directory"
        advice += ", and the URL with --training_dir." if jobs.kind == "pipeline" else "."
        self.path = on_disk(run_dir, "the run directory", advice)
        self.list, self.file = jobs, self.path / f"{jobs.kind}.json"
        folder = self.path / FOLDERS[jobs.kind]
        training = (training_dir or str(folder)).rstrip("/")
        if not training.startswith("gs://"):
            run_directory(training)
        self.paths = OutputPaths(folder=folder, training=training)
        self.recipes: dict[str, Sequence[Any]] = {}
        self.states: dict[str, tuple[str, str]] = {}
        self.milliseconds: dict[str, float] = {}
        self._finished: dict[str, dict[str, Any]] = {}
        self._scores: dict[str, dict[str, Any]] = {}
        self._stamps: dict[str, list[str]] = {}
        self._current: dict[str, str | None] = {}  # stamps of files since a job last finished; points share them
        self._remote: dict[str, str] = {}  # hashes of the contents of URLs, which only these jobs change

    def log(self, job: CommandJob) -> Path:
        """Return the path of the log of a job's last run, outside of the outputs, so that a glob matches no log."""
        return self.path / LOGS / f"{job.name}.log"

    def words(self, job: CommandJob) -> list[str]:
        return self.list.words(job, self.paths)

    def entry(self, job: CommandJob) -> dict[str, Any] | None:
        """Return the record of a finished job whose output still exists, or None."""
        entry = self._finished.get(job.name)
        return entry if entry and all(to_path(name).exists() for name in self.files(job)) else None

    def waiting(self, jobs: Sequence[CommandJob]) -> list[CommandJob]:  # not finished
        return [job for job in jobs if self.entry(job) is None]

    def files(self, job: CommandJob) -> list[str]:
        """Return the path of a job's output and, if the output is a file, the paths of its companion files."""
        output = self.paths.readable(job)
        beside = companions(Path(output)) if job.makes == forms.FILE else ()
        return [output, *(str(Path(output).with_name(name)) for name in beside)]

    def scores(self, job: CommandJob) -> dict[str, Any]:
        """Return the results of a point by column of the table; raises UserError if it is unfinished or damaged.

        The score of a training is its held-out loss after the last step, in a pruning after the last cut (nats; lower
        is better).
        """
        if job.name not in self._scores:
            path = Path(self.paths.output(job))
            if job.is_training:
                if not _is_single(job):
                    KINDS[job.verb].model_directory(path)
                file, unit = Path(self._hashed(job)), "cut"
                lines = [line for line in report.read_history(file).heldout if LOSS in line] if file.is_file() else []
                if _is_single(job):  # later rungs of a halving add lines
                    steps, unit = total_steps(self.recipes[job.name][0].stages), "step"
                    lines = [line for line in lines if line["step"] == steps]
                if not lines:
                    raise UserError(
                        f"{path} has no held-out loss after its last {unit}. Use a positive run.evaluate_every."
                    )
                scores = {name: value for name, value in lines[-1].items() if isinstance(value, float)}
                head = {"score": scores[LOSS], **({"step": lines[-1]["step"]} if _is_single(job) else {})}
            else:
                run = results.read_run(path, self.path)
                head = {"score": run.score, "low": min(run.chosen_scores), "high": max(run.chosen_scores)}
                head |= {
                    "seeds": len(run.seeds),
                    "collapsed": run.collapsed,
                    "chosen_epochs": " ".join(map(str, run.epochs)),
                }
                scores = {f"{split}/{name}": x for split, metrics in run.median.items() for name, x in metrics.items()}
            self._scores[job.name] = {**head, **(job.settings or {}), **scores}
        return self._scores[job.name]

    def sources(self, job: CommandJob) -> list[CommandJob]:
        """Return the jobs whose outputs a job reads, itself or through other jobs."""
        needs = map(self.list.job, self.list.needs(job))
        jobs = [source for other in needs for source in (*self.sources(other), other)]
        return list({source.name: source for source in jobs}.values())

    def unfinished(self, job: CommandJob) -> list[str]:
        """Return the names of unfinished jobs whose outputs a job reads, itself or through other jobs."""
        return [source.name for source in self.waiting(self.sources(job))]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory's lock and read its record.

        Raises UserError if another process holds the lock, or if the directory has files that belong to no such list.
        """
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"--run_dir={self.path} is a file. Name a directory.")
        if self.path.exists():
            names = [path.name for path in self.path.iterdir()]
            check_vacant(str(self.path), names, [self.file.name], [atomic.NAME, LOGS])
        self.path.mkdir(parents=True, exist_ok=True)
        with atomic.hold(self.path / atomic.NAME, str(self.path)):
            self.read()
            yield

    def read(self) -> None:
        """Read the record, if there is one; raises UserError if it is damaged, of another version or of another list.

        Set `recipes` before. Points without a record are finished if they have scores, because an earlier version
        recorded none, and a process may be killed before it does. Points with damaged scores are not finished.
        """
        self._current.clear()
        if self.file.is_file():
            try:
                document = read_json(self.file, {"version": int})
                if (version := document.pop("version")) != VERSION:
                    raise UserError(
                        f"{self.file} has version {version}, but bertzoo reads {VERSION}. Use another --run_dir."
                    )
                fitting(document, _RECORD)
            except (OSError, ValueError) as error:
                raise UserError(
                    f"{self.file} is damaged: {error}. Restore a copy, or use another --run_dir."
                ) from error
            self._finished = document.pop("steps", {})
            self._stamps = document.pop("hashes", {}) | self._stamps
            config.reject(str(self.path), config.difference(document, self.list.identity))
        for job in filter(lambda job: job.is_point, self.list.jobs):
            try:
                self.scores(job)
            except UserError:
                self._finished.pop(job.name, None)
                continue
            if job.name not in self._finished and not _is_single(job):  # which may lack its last checkpoint
                self._enter(job, self.facts(job), 0.0)

    def write(self) -> None:
        """Write the record, without jobs whose output no longer exists."""
        for job in self.waiting(self.list.jobs):  # with --tasks, more jobs than these are recorded
            self._finished.pop(job.name, None)
        rest = {"steps": self._finished, "hashes": self._stamps}
        atomic.write_json(self.file, {"version": VERSION, **self.list.identity, **rest})

    def begin(self, job: CommandJob) -> dict[str, Any]:
        """Prepare a run of a job: drop the record of its earlier output, and return its `facts`."""
        self._remote.pop(self.paths.readable(job), None)
        self._finished.pop(job.name, None)
        self._scores.pop(job.name, None)
        return self.facts(job)

    def finish(self, job: CommandJob, facts: Mapping[str, Any], seconds: float) -> None:
        """Record that a job has just finished.

        Raises UserError if its facts have changed since `begin` returned them, or its output is missing or damaged.
        """
        self._current.clear()
        if job.is_point:
            self.scores(job)
        if changed := [key for key, value in self.facts(job).items() if value != facts[key]]:
            raise UserError(
                f"the {' and '.join(changed)} of {job.name} changed while it ran. Remove its output and run it again."
            )
        self._enter(job, facts, seconds)
        if missing := [name for name in self.files(job) if not to_path(name).exists()]:
            raise UserError(f"{missing[0]} is missing beside the output of {job.name}. Run the same command again.")
        self.states.pop(job.name, None)
        self.write()

    def _enter(self, job: CommandJob, facts: Mapping[str, Any], seconds: float) -> None:
        output = self._output(job)
        times = {"seconds": round(seconds, 1), "finished": time.strftime("%Y-%m-%d %H:%M:%S")}
        self._finished[job.name] = {**facts, "output": output, **times}

    def _hashed(self, job: CommandJob) -> str:
        """Return the path or URL whose contents are a job's output: for a point, the file with its scores."""
        if not job.is_point:
            return self.paths.readable(job)
        path = Path(self.paths.output(job))
        return str(KINDS[job.verb].training_runs(path)[-1] / METRICS if job.is_training else path / results.RESULTS)

    def _output(self, job: CommandJob) -> str:
        """Return the hash of a job's output; of a pretraining's or transfer's point, of its scores."""
        if job.is_point and _is_single(job):
            return _digest([json.dumps(self.scores(job), sort_keys=True)])
        return self._hash(job.makes, self._hashed(job))

    def changes(self, job: CommandJob) -> list[str]:
        """Return a line for each difference between a finished job's record and the job as it would run now."""
        old = self._finished[job.name]
        try:
            new = self.facts(job)
            output = self._output(job)
        except UserError as error:
            return [f"one of its inputs or outputs is damaged: {error}"]
        lines = [f"its command no longer has {word}" for word in old["words"] if word not in new["words"]]
        lines += [f"its command has a new {word}" for word in new["words"] if word not in old["words"]]
        before = parse_toml(old["config"])
        if len(recipes := self.recipes.get(job.name, ())) == 1:  # this version may have more keys
            with suppress(ConfigError):
                before = config.plain(config.from_dict(type(recipes[0]), before))
        lines += config.difference(before, parse_toml(new["config"]))
        for kind, names in (("the input", "inputs"), ("the output of", "reads")):
            for name in old[names].keys() & new[names].keys():
                if (was := old[names][name]) != (now := new[names][name]):
                    lines.append(f"{kind} {name} had the hash {was[:SHORT]}, now {now[:SHORT]}")
        if output != old["output"]:
            lines.append(f"its output had the hash {old['output'][:SHORT]}, now {output[:SHORT]}")
        return lines

    def facts(self, job: CommandJob) -> dict[str, Any]:
        """Return the facts on which a job's output depends: its command, its config and the hashes of its inputs.

        In command and config, names replace the paths of inputs and outputs, so that directories may move.
        """
        inputs = self.list.inputs_of(job)
        texts = [config.dump(recipe) for recipe in self.recipes.get(job.name, ())]
        placeholders = {str(self.paths.folder): "{stages}", self.paths.training: "{training}"}
        placeholders |= {value: f"{{{name}}}" for name, value in inputs.items()}
        for value in sorted(placeholders, key=len, reverse=True):
            texts = [text.replace(f'"{value}', f'"{placeholders[value]}') for text in texts]
        text = texts[0] if texts else ""
        if len(texts) > 1:
            text = f'points = {len(texts)}\npoints_sha256 = "{_digest(texts)}"\n{text}'
        if job.is_point:
            inputs = self._data(job) | inputs
        others = map(self.list.job, self.list.needs(job))
        template = replace(self.list, inputs={name: f"{{{name}}}" for name in self.list.inputs})
        return {
            "words": template.words(job, OutputPaths(folder=Path("{stages}"), training="{training}")),
            "config": text,
            "inputs": {name: self._hash("", value) for name, value in inputs.items()},
            "reads": {other.name: self._output(other) for other in others},
        }

    def _data(self, job: CommandJob) -> dict[str, str]:
        """Return the files that a point's config, or the base config of its sweep, names, by key.

        In data_dir, only tables count, because runs write their teacher's vectors beside them.
        """
        paths: dict[str, str] = {}
        for recipe in self.recipes.get(job.name, ())[:1]:
            if custom := getattr(recipe, "own", None):
                custom = custom.with_usual_files(recipe.data_dir)
                files = (custom.train, custom.dev, custom.test, custom.unlabelled)
                names = files if recipe.task == "own" else _TABLES
                paths |= {f"data_dir/{name}": str(Path(recipe.data_dir, name)) for name in names if name}
            elif data := getattr(recipe, "data", None):
                sources = {f"data.mixture.{i}": source.source for i, source in enumerate(data.sources)}
                paths |= sources if data.mixture else {"data.source": data.source}
        return {key: path for key, path in paths.items() if path and not is_url(path)}

    def _hash(self, kind: str, name: str) -> str:
        """Return `content_hash`, from a cache until a file's size or time changes or the job that writes to a URL runs.

        An input that was removed counts as unchanged.
        """
        if is_url(name) and name in self._remote:
            return self._remote[name]
        if name not in self._current:
            self._current[name] = None if is_url(name) else files_stamp(name)
        stamp, cached = self._current[name], self._stamps.get(name)
        if cached is not None and (stamp == cached[0] or (stamp is None and not kind)):
            return cached[1]
        digest = content_hash(kind, name)
        if stamp is not None:
            self._stamps[name] = [stamp, digest]
        elif is_url(name):
            self._remote[name] = digest
        return digest
