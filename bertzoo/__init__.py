"""bertzoo: pretrain phone-sized BERTs from config files and convert them for phones.

The main commands are functions here too; `bertzoo.api` documents them. Subpackages have nouns as names
(`bertzoo.pruning`), functions have verbs (`bertzoo.prune`).
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
