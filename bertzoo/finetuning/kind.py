"""The kind "finetune": a run of several seeds, which holds the model of the best one."""

from bertzoo.core.documents import parse_json
from bertzoo.core.kinds import Kind, register

RESULTS, MODEL = "results.json", "model"  # the run's results, written last; the folder of a seed's model
BASELINES = "baselines.json"  # scores of simple models on the same data


FINETUNE = register(
    Kind(
        name="finetune",
        config_at="bertzoo.finetuning.settings:Finetune",
        report_at="bertzoo.finetuning.report:write_report",
        key="epochs",
        model=lambda read: f"seed-{parse_json(read(RESULTS), {'best': int})['best']}/{MODEL}",
        folders=(r"seed-\d+",),
    )
)
