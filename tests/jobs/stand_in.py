"""A fake of the command `bertzoo`: it makes the outputs of commands without computing anything.

What a command does, the file `behaviour.json` of the working directory says, by a part of its command line: `exit`, the
code it ends with after saying `say`; `wait`, until it is told to stop; `silent`: it leaves no output; `append`: it adds
a line to a file. Every command is
a line of `calls`.
"""

import json
import shutil
import signal
import sys
import time
from pathlib import Path


def main() -> int:
    words = sys.argv[1:]
    line = " ".join(words)
    does = {}
    for part, behaviour in json.loads(Path("behaviour.json").read_text()).items():
        does |= behaviour if part in line else {}
    with open("calls", "a") as calls:
        calls.write(line + "\n")
    if "wait" in does:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    while "wait" in does:
        time.sleep(0.02)
    if "append" in does:
        with open(does["append"], "a") as file:
            file.write("one more line.\n")
    if "exit" in does:
        print(does["say"], file=sys.stderr)
        return does["exit"]
    if not does.get("silent"):
        make(words)
    return 0


def make(words: list[str]) -> None:
    options = dict(word[2:].split("=", 1) for word in words if word.startswith("--") and "=" in word)
    if words[0] == "sweep":
        shutil.copytree("model", f"{options['run_dir']}/best/{options['tasks']}", dirs_exist_ok=True)
    elif "run_dir" in options:
        shutil.copytree("model", options["run_dir"], dirs_exist_ok=True)
    elif words[0] == "convert":
        Path(words[2]).parent.mkdir(parents=True, exist_ok=True)
        Path(words[2]).write_text(f"file of {words[1]}")
        Path(f"{words[2]}.files").mkdir()
        Path(f"{words[2]}.json").write_text(json.dumps({"precision": "fp32", "bytes": 2_500_000, "scores": None}))
    elif words[0] == "phone":
        Path(words[3]).mkdir(parents=True)  # fails if it is there
        Path(words[3], "rows.bin").write_text("rows")
    elif words[0] == "evaluate":
        print(json.dumps({"scores": {"dev": {"accuracy": 81.5}}}))
    else:
        print(json.dumps({"rows": [{"model": words[1], "median_ms": 1.25}]}))


if __name__ == "__main__":
    sys.exit(main())
