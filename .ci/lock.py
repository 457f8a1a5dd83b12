"""Print constraints for `.[EXTRAS]` and all it needs: `python .ci/lock.py EXTRAS PIN…`, as `make lock` calls it.

pip resolves, and downloads what it must to do so, but installs nothing.
"""

import json
import subprocess
import sys

extras, *pins = sys.argv[1:]
command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
report = subprocess.run([*command, f".[{extras}]", *pins], check=True, stdout=subprocess.PIPE, text=True).stdout
versions = {entry["metadata"]["name"]: entry["metadata"]["version"] for entry in json.loads(report)["install"]}
del versions["bertzoo-jax"]
for name, version in sorted(versions.items(), key=lambda item: item[0].lower()):
    # A local build such as 2.13.0+cpu satisfies 2.13.0, which every index has.
    print(f"{name}=={version.split('+')[0]}")
