"""Start the `bertzoo` command: print the overview at once, or import the rest of the program."""

import os
import sys

TYPE_CHECKING = False  # importing `typing` takes 10 ms
if TYPE_CHECKING:
    from typing import NoReturn

VERBS = {  # with the heading that `bertzoo --help` lists them under
    **dict.fromkeys(("tokenize", "pretrain", "transfer", "prune", "finetune", "resume", "sweep", "pipeline"), "train"),
    **dict.fromkeys(("evaluate", "predict", "embed", "search", "results", "submission", "models", "plan"), "measure"),
    **dict.fromkeys(("convert", "prune_vocabulary", "benchmark", "phone"), "phone"),
    **dict.fromkeys(("runs", "report", "inspect", "checkpoints", "config"), "look"),
}
EPILOG = """\
`bertzoo COMMAND --help` explains a command. --TABLE.KEY=VALUE, as in --model.layers=6, sets a key of a config.

examples:
  bertzoo pretrain demo --run_dir=runs/demo
  bertzoo predict runs/demo 'This function returns the [MASK] of the array.'
  bertzoo convert runs/demo demo.tflite --to=litert"""


def entry() -> "NoReturn":
    """Run the `bertzoo` command."""
    if sys.argv[1:] in (["-h"], ["--help"]):
        try:
            print(overview(), flush=True)
            sys.exit(0)
        except BrokenPipeError:
            pass  # handled below
    from bertzoo.cli import main

    main.entry()


def overview() -> str:
    """Return the program's help: every verb with the first line of its docstring, grouped by purpose as in VERBS."""
    width = max(map(len, VERBS))
    lines = ["Pretrain small BERTs and convert them for phones.", "", "usage: bertzoo COMMAND … [--help] [--debug]"]
    for job in dict.fromkeys(VERBS.values()):
        lines += ["", f"{job}:"]
        for name in (name for name in VERBS if VERBS[name] == job):
            # Importing every verb's module would take ten times as long.
            with open(os.path.join(os.path.dirname(__file__), f"{name}.py"), encoding="utf-8") as file:
                summary = file.readline().strip().strip('"')
            lines.append(f"  {name.replace('_', ' '):<{width}}  {summary}")
    return "\n".join([*lines, "", EPILOG])
