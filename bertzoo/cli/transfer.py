"""Train a student to match a teacher's layers, then its predictions.

Run the same command again to resume. The config describes the teacher in [teacher] and the student in [model].
[transfer] sets the strategy that matches layers (progressive, joint, auxiliary or nothing), and [knowledge] sets the
losses of the matching. [[distillation]] lists the stages after the matching. A resumed run reads the teacher again,
because checkpoints do not hold the teacher.

examples:
  bertzoo transfer demo_transfer --teacher=runs/demo_teacher --run_dir=runs/demo_student
  bertzoo transfer mobilebert_transfer --teacher=runs/ib_bert_large --data.source='text/*.txt.xz' --run_dir=runs/student
  bertzoo transfer demo_transfer --transfer.kind=nothing --teacher=runs/demo_teacher --run_dir=runs/distilled
"""

from dataclasses import dataclass
from typing import Any

from bertzoo.api.options import TransferOptions
from bertzoo.cli.support import ProcessFlags, finished, train_to_end
from bertzoo.runs.kinds import TRANSFER

config = TRANSFER.config


@dataclass(frozen=True)
class TransferFlags(ProcessFlags, TransferOptions):
    """The command's flags."""


def main(options: TransferFlags) -> int:
    def train(recipe: Any, execution: Any) -> str:
        from bertzoo.runs.pretrain import transfer

        step = transfer(recipe, options.run_dir, options.teacher, execution)
        return finished(step, options.run_dir)

    return train_to_end(options, train)
