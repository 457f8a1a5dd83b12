"""Pretrain a model from config files.

Run the same command again to resume. RUN receives the resolved config, the tokenised corpus, checkpoints and
metrics.jsonl. SIGTERM, Ctrl-C or a closed terminal saves a checkpoint and exits with code 3.

--from=MODEL continues the training of MODEL, on other text or with another objective. The run copies MODEL's embedding,
encoder and tokenizer, and the heads that the run's objective also has. The config's [model] must describe MODEL; if the
config has no [model], the run uses MODEL's.

examples:
  bertzoo pretrain demo --run_dir=runs/demo
  bertzoo pretrain squeezebert --data.source='text/*.txt.xz' --run_dir=runs/first --optimizer.learning_rate=2e-3
  bertzoo pretrain bert_base --from=bert-base-uncased --data.source='law/*.txt' --run_dir=runs/law
"""

from dataclasses import dataclass
from typing import Any

from bertzoo.api.options import PretrainOptions
from bertzoo.cli.support import ProcessFlags, finished, train_to_end
from bertzoo.runs.kinds import PRETRAIN

config = PRETRAIN.config


@dataclass(frozen=True)
class PretrainFlags(ProcessFlags, PretrainOptions):
    """The command's flags."""


def main(options: PretrainFlags) -> int:
    def train(recipe: Any, execution: Any) -> str:
        from bertzoo.runs.pretrain import pretrain

        step = pretrain(recipe, options.run_dir, options.from_model, execution)
        return finished(step, options.run_dir)

    return train_to_end(options, train, late=options.from_model is not None)
