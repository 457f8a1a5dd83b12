"""The commands that a stage can run: the words of their command lines, what they read, and what they make."""

from collections.abc import Mapping
from dataclasses import dataclass, field

CORPUS, MODEL, TUNED, FILE = "a tokenised corpus", "a model", "a fine-tuned model", "a file for phones"
REPORT, PACKED, ZIP = "a report", "packed inputs", "a submission"
OUTPUT = "output"  # among the words of a command line: the place of what the command makes


@dataclass(frozen=True, kw_only=True)
class Verb:
    """A command of bertzoo as a stage runs it.

    words: its positional arguments in order: keys of a stage, OUTPUT, or other words as they are. flags: keys of a
    stage that are flags of that name. reads: by key, what a stage that it names may have made. makes: what it makes.
    suffix: of the output's name. prints: whether the output is what it prints. resumes: whether the same command goes
    on after a kill; otherwise its output is removed first. by_task: whether it needs tasks. fixed: words that a stage
    always has.
    """

    words: tuple[str, ...] = ("config",)
    flags: tuple[str, ...] = ()
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    makes: str = MODEL
    suffix: str = ""
    prints: bool = False
    resumes: bool = True
    by_task: bool = False
    fixed: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of a stage that the command takes, besides its options."""
        return tuple(dict.fromkeys([*(word for word in self.words if word in KEYS), *self.flags]))

    @property
    def run_dir(self) -> bool:
        """Whether --run_dir names the output."""
        return OUTPUT not in self.words and not self.prints


KEYS = ("config", "source", "from", "teacher", "models")  # of a stage: a command's arguments
REQUIRED = ("config", "source", "models")  # others are required by the commands themselves
ANY_MODEL = (MODEL, TUNED)
TRAINING = ("pretrain", "transfer", "prune")  # commands that run on several machines

VERBS = {
    "tokenize": Verb(words=("source", OUTPUT), flags=("config",), makes=CORPUS),
    "pretrain": Verb(flags=("from",), reads={"from": (MODEL,)}),
    "transfer": Verb(flags=("teacher",), reads={"teacher": (MODEL,)}),
    "prune": Verb(flags=("from",), reads={"from": (MODEL,)}),
    "finetune": Verb(
        flags=("from", "teacher"), reads={"from": ANY_MODEL, "teacher": (TUNED,)}, makes=TUNED, by_task=True
    ),
    "sweep": Verb(flags=("from", "teacher"), reads={"from": ANY_MODEL, "teacher": (TUNED,)}, makes=TUNED, by_task=True),
    "evaluate": Verb(
        words=("from",),
        reads={"from": (*ANY_MODEL, FILE)},
        makes=REPORT,
        suffix=".json",
        prints=True,
        fixed=("--json",),
    ),
    "convert": Verb(words=("from", OUTPUT), reads={"from": ANY_MODEL}, makes=FILE),
    "benchmark": Verb(
        words=("models",),
        reads={"models": (*ANY_MODEL, FILE)},
        makes=REPORT,
        suffix=".json",
        prints=True,
        fixed=("--json",),
    ),
    "phone": Verb(words=("pack", "from", OUTPUT), reads={"from": (FILE,)}, makes=PACKED, resumes=False),
    "results": Verb(words=("models",), reads={"models": (TUNED,)}, makes=REPORT, suffix=".md", prints=True),
    "submission": Verb(words=(OUTPUT, "models"), reads={"models": (TUNED,)}, makes=ZIP, suffix=".zip", resumes=False),
}
