"""bertzoo: pretrain phone-sized BERTs from config files and convert them for phones.

The main commands are functions here too; `bertzoo.api` documents them. Subpackages have nouns as names
(`bertzoo.pruning`), functions have verbs (`bertzoo.prune`).
"""

import os

from bertzoo.core.version import __version__

TYPE_CHECKING = False  # importing `typing` would take longer than all else here
if TYPE_CHECKING:
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

# onnxruntime and huggingface_hub report their use to their makers, unless these variables are set before their import.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

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


def __getattr__(name: str) -> object:
    """Import a function when it is first used, because `import bertzoo` in a launcher should take no time."""
    if name not in __all__:
        raise AttributeError(f"module 'bertzoo' has no attribute {name!r}")
    from bertzoo import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return __all__


def register_kinds() -> None:
    """Import the modules that declare the kinds of runs; `core.kinds` calls this, as it knows no room."""
    import bertzoo.finetuning.kind
    import bertzoo.pruning.layout
    import bertzoo.runs.kinds  # noqa: F401
