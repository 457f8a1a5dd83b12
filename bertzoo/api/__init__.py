"""The commands of bertzoo as functions, which take the commands' settings and return results instead of printing them.

config: the name of a shipped config, a file, several of them (later ones win), or a config object. overrides: the
command line's options by key, such as `{"stages.0.steps": 100, "optimizer.learning_rate": 2e-3}`. tell: receives each
line for the user; None silences a function. Every function raises UserError on wrong input. A signal saves a
checkpoint and raises Stopped; the same call resumes.
"""

from bertzoo.api.models import Loaded, benchmark, convert, evaluate, load, plan, predict
from bertzoo.api.training import FineTuned, Run, finetune, pretrain, prune, tokenize, transfer
