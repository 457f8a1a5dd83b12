"""Run a benchmark, or write the tables of the docs.

python -m benchmarks SCRIPT [OPTIONS]       such as speed.train_step --rounds=9, or render
python -m benchmarks SCRIPT --help
"""

import importlib
import sys
from pathlib import Path


def main() -> None:
    """Import the script that the first argument names and call its `main`."""
    root = Path(__file__).parent
    files = [path for path in root.rglob("*.py") if "def main(" in path.read_text(encoding="utf-8")]
    scripts = {".".join(path.relative_to(root).with_suffix("").parts) for path in files} - {"__main__"}
    if len(sys.argv) < 2 or sys.argv[1] not in scripts:
        sys.exit(f"{__doc__}\n{' '.join(sys.argv[1:2])} is not a script; these are:\n  " + "\n  ".join(sorted(scripts)))
    sys.argv = sys.argv[1:]
    importlib.import_module(f"benchmarks.{sys.argv[0]}").main()


if __name__ == "__main__":
    main()
