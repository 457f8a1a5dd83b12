"""Find the versions of packages in the Python that runs this module; as a program, print them as JSON."""

import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Iterable


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of importable packages, or "" for a folder that no installed distribution contains."""
    return {name: _version(name) for name in packages if importlib.util.find_spec(name) is not None}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # of another name: read the files of all distributions
        distributions = sorted(set(importlib.metadata.packages_distributions().get(package, ())))
        return ", ".join(importlib.metadata.version(name) for name in distributions)


if __name__ == "__main__":
    print(json.dumps(versions(sys.argv[1:])))
