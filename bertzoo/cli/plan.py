"""Estimate memory, time and cost of a run on a TPU slice, without a TPU.

For every stage, the plan shows the memory that a device needs, whether it fits, and the collectives, FLOPs and minimum
time of a step. For the whole run, the plan shows chip-hours, dollars and the size of a checkpoint. If libtpu (the extra
tpu-plan) is installed, the TPU compiler compiles the real steps, which takes minutes for each stage the first time.
Without the compiler, the memory of the activations is an upper bound. The plan of a pruning is for the sizes of the
unpruned model and does not use the compiler.

examples:
  bertzoo plan squeezebert --topology=v5litepod-256
  bertzoo plan configs/ib_bert_large.toml --topology=v4:4x4x8 --mesh.fsdp=4 --price=3.22 --json
  bertzoo plan bert_base --topology=tpu7x:4x4x4 --no-compile
"""

import json
from dataclasses import dataclass
from pathlib import Path

from bertzoo.api.options import PlanOptions
from bertzoo.cli.support import json_field
from bertzoo.runs.kinds import PRETRAIN

config = PRETRAIN.config  # for the hint of a mistyped option


@dataclass(frozen=True, kw_only=True)
class PlanFlags(PlanOptions):
    json: bool = json_field()


def main(options: PlanFlags) -> int:
    import jax

    # A plan uses no device of this machine. The environment variable JAX_PLATFORMS would be too late, because looking
    # up an option's key in the config's class may have imported jax.
    jax.config.update("jax_platforms", "cpu")
    from bertzoo.api.models import plan_run
    from bertzoo.planning import estimate

    name, plan = Path(options.config[0]).stem, plan_run(options)
    print(json.dumps(estimate.plan_to_json(name, plan)) if options.json else estimate.plan_to_text(name, plan))
    return 0
