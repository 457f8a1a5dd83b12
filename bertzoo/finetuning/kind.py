"""The kind "finetune": a run of several seeds, which holds the model of the best one."""

from collections.abc import Callable

from bertzoo.core.documents import parse_json
from bertzoo.core.kinds import Kind, register

RESULTS, MODEL = "results.json", "model"  # the run's results, written last; the folder of a seed's model
BASELINES = "baselines.json"  # scores of simple models on the same data


def _model(read: Callable[[str], bytes]) -> str:
    best = parse_json(read(RESULTS), {"best": int})["best"]
    return f"seed-{best}/{MODEL}"


FINETUNE = register(
    Kind(
        name="finetune",
        config_at="bertzoo.finetuning.settings:Finetune",
        report_at="bertzoo.finetuning.report:write_report",
        key="epochs",
        model=_model,
        folders=(r"seed-\d+",),
    )
)
