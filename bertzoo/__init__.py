"""bertzoo: pretrain phone-sized BERTs from config files and convert them for phones.

The main commands are functions here too; `bertzoo.api` documents them. Subpackages have nouns as names
(`bertzoo.pruning`), functions have verbs (`bertzoo.prune`).
"""

import os

# onnxruntime and huggingface_hub report their use to their makers, unless these variables are set before their import.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from bertzoo.api import (
    FineTuned,
    Loaded,
    Run,
    TextEncoder,
    benchmark,
    convert,
    embed,
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
from bertzoo.finetuning import kind as _finetuning  # noqa: F401 - the rooms register their kinds of runs
from bertzoo.pruning import layout as _pruning  # noqa: F401
from bertzoo.runs import kinds as _runs  # noqa: F401

__all__ = [
    "FineTuned",
    "Loaded",
    "Run",
    "TextEncoder",
    "__version__",
    "benchmark",
    "convert",
    "embed",
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
