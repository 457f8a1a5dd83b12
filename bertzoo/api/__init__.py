"""The commands of bertzoo as functions. They return their results instead of printing them.

Arguments that several functions take:

config: a config object, a shipped config's name, a file, or a list of names and files. Later configs in the list
override earlier ones.
overrides: config keys and values, such as `{"stages.0.steps": 100, "optimizer.learning_rate": 2e-3}`.

The functions that train, evaluate, convert, plan and benchmark print messages and progress, unless the program has
handlers of its own for Python's `logging`. `logging.getLogger("bertzoo").setLevel(logging.WARNING)` silences them.

Every function raises UserError on wrong input. If a signal (SIGTERM or Ctrl-C) arrives during training, the function
saves a checkpoint and raises Stopped; the same call resumes the run.
"""

from bertzoo.api.models import Loaded, TextEncoder, benchmark, convert, embed, evaluate, load, plan, predict
from bertzoo.api.training import FineTuned, Run, finetune, pretrain, prune, tokenize, transfer
