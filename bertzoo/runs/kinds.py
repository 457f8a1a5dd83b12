"""The kinds "pretrain" and "transfer": a single training run, whose newest checkpoint is the model."""

from bertzoo.core.kinds import Kind, register

CHECKPOINTS = "checkpoints"
_REPORT = "bertzoo.runs.report:write_report"
PRETRAIN = register(
    Kind(name="pretrain", config_at="bertzoo.runs.configs:Pretrain", report_at=_REPORT, folders=(CHECKPOINTS,))
)
TRANSFER = register(
    Kind(
        name="transfer",
        config_at="bertzoo.runs.configs:Transfer",
        report_at=_REPORT,
        key="teacher",
        folders=(CHECKPOINTS,),
    )
)
