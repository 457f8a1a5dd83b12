"""Describe the commands that a pipeline's stage can run: their arguments, what they read, and what they make."""

from collections.abc import Mapping
from dataclasses import dataclass, field

CORPUS, MODEL, TUNED, FILE = "a tokenised corpus", "a model", "a fine-tuned model", "a file for phones"
REPORT, PACKED, ZIP = "a report", "packed inputs", "a submission"
OUTPUT = "output"  # among `words`: stands for the path of the command's output


@dataclass(frozen=True, kw_only=True)
class Verb:
    """A command of bertzoo as a pipeline's stage runs it.

    words: the positional arguments in order: keys of the stage, OUTPUT (the output's path), or literal words.
    flags: keys of the stage that are passed as flags.
    reads: for each key that names a stage, the kinds of output that the stage may have.
    makes: kind of the command's output.
    suffix: end of the output's name.
    prints: whether the output is the text that the command prints.
    resumes: whether the same command resumes after a kill. If not, the output is removed before the command runs again.
    by_task: whether the stage needs tasks.
    requires: a key that the stage must set besides those in REQUIRED.
    fixed: flags that are always added.
    """

    words: tuple[str, ...] = ("config",)
    flags: tuple[str, ...] = ()
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    makes: str = MODEL
    suffix: str = ""
    prints: bool = False
    resumes: bool = True
    by_task: bool = False
    requires: str = ""
    fixed: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of a stage that the command takes, besides `options`."""
        return tuple(dict.fromkeys([*(word for word in self.words if word in KEYS), *self.flags]))

    @property
    def run_dir(self) -> bool:
        """Whether --run_dir names the output."""
        return OUTPUT not in self.words and not self.prints

    @property
    def is_summary(self) -> bool:
        """Whether the output only summarises other outputs; if they change, the step runs again instead of failing."""
        return self.prints or self.makes == ZIP


KEYS = ("config", "source", "from", "teacher", "models")  # keys of a stage that are arguments of its command
REQUIRED = ("config", "source", "models")  # others are required by the commands themselves
ANY_MODEL = (MODEL, TUNED)
TRAINING = ("pretrain", "transfer", "prune")  # commands that run on several machines

VERBS = {
    "tokenize": Verb(words=("source", OUTPUT), flags=("config",), makes=CORPUS),
    "pretrain": Verb(flags=("from",), reads={"from": (MODEL,)}),
    "transfer": Verb(flags=("teacher",), reads={"teacher": (MODEL,)}, requires="teacher"),
    "prune": Verb(flags=("from",), reads={"from": (MODEL,)}, requires="from"),
    "finetune": Verb(
        flags=("from", "teacher"),
        reads={"from": ANY_MODEL, "teacher": (TUNED,)},
        makes=TUNED,
        by_task=True,
        requires="from",
    ),
    "sweep": Verb(
        flags=("from", "teacher"),
        reads={"from": ANY_MODEL, "teacher": (TUNED,)},
        makes=TUNED,
        by_task=True,
        requires="from",
    ),
    "evaluate": Verb(
        words=("from",),
        reads={"from": (*ANY_MODEL, FILE)},
        makes=REPORT,
        suffix=".json",
        prints=True,
        requires="from",
        fixed=("--json",),
    ),
    "convert": Verb(words=("from", OUTPUT), reads={"from": ANY_MODEL}, makes=FILE, resumes=False, requires="from"),
    "benchmark": Verb(
        words=("models",),
        reads={"models": (*ANY_MODEL, FILE)},
        makes=REPORT,
        suffix=".json",
        prints=True,
        fixed=("--json",),
    ),
    "phone": Verb(
        words=("pack", "from", OUTPUT), reads={"from": (FILE,)}, makes=PACKED, resumes=False, requires="from"
    ),
    "results": Verb(words=("models",), reads={"models": (TUNED,)}, makes=REPORT, suffix=".md", prints=True),
    "submission": Verb(words=(OUTPUT, "models"), reads={"models": (TUNED,)}, makes=ZIP, suffix=".zip", resumes=False),
}
