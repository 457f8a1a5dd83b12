"""bertzoo: pretrain the phone-sized BERTs from config files and take them to the phone.

Every command is a function here too; `bertzoo.api` documents them. Rooms are nouns (`bertzoo.pruning`), functions are
verbs (`bertzoo.prune`).
"""

from bertzoo.api import (
    FineTuned,
    Loaded,
    Run,
    benchmark,
    convert,
    evaluate,
    finetune,
    load,
    plan,
    predict,
    pretrain,
    prune,
    tokenize,
    transfer,
)
from bertzoo.core.version import __version__

__all__ = [
    "FineTuned",
    "Loaded",
    "Run",
    "__version__",
    "benchmark",
    "convert",
    "evaluate",
    "finetune",
    "load",
    "plan",
    "predict",
    "pretrain",
    "prune",
    "tokenize",
    "transfer",
]
