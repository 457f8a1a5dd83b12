"""The kinds "pretrain" and "transfer": a single training run, whose newest checkpoint is the model."""

from collections.abc import Callable

from bertzoo.core.kinds import Kind, register

CHECKPOINTS = "checkpoints"


def _pretrain() -> type:
    from bertzoo.runs.configs import Pretrain

    return Pretrain


def _transfer() -> type:
    from bertzoo.runs.configs import Transfer

    return Transfer


def _report() -> Callable:
    from bertzoo.runs.report import write_report

    return write_report


PRETRAIN = register(Kind(name="pretrain", config=_pretrain, report=_report, folders=(CHECKPOINTS,)))
TRANSFER = register(Kind(name="transfer", config=_transfer, report=_report, key="teacher", folders=(CHECKPOINTS,)))
