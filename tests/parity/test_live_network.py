"""No library that bertzoo runs calls its maker or writes into the home directory."""

import os
import sys
from pathlib import Path
from subprocess import run

import pytest
from comparing import needs

needs("torch", "onnx", "onnxscript", "onnxruntime", "mediapipe", "litert_converter", "ai_edge_litert")
import exported

# A connect or a sendto with the address of a host, 16 or 28 bytes long, kills the process (SECCOMP_RET_KILL_PROCESS).
WATCHED = """
import sys
from bertzoo.core.child import filter_calls
filter_calls("connect", 2, (16, 28), 0x80000000)
filter_calls("sendto", 5, (16, 28), 0x80000000)
"""
COMMANDS = WATCHED + "from bertzoo.cli.main import main\nsys.exit(max(main(line.split()) for line in sys.argv[1:]))"
LOOKUP = WATCHED + "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('127.0.0.1', 9))"
# ONNX Runtime reports nothing where one of these is set, so the check would see nothing on a build server.
SERVERS = ("CI", "GITHUB_ACTIONS", "GITLAB_CI", "TRAVIS", "APPVEYOR", "TF_BUILD", "JENKINS_URL", "BUILDKITE")
SERVERS += ("CIRCLECI", "TEAMCITY_VERSION", "CODEBUILD_BUILD_ID", "BITBUCKET_BUILD_NUMBER")
CACHES = ("bertzoo", "matplotlib")  # folders that may appear in the user's cache

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux's")


def watched(home: Path, code: str, *words: str, **variables: str) -> tuple[int, str, list[str]]:
    """Run Python code that may not reach a host: its exit code, its errors and the files that it leaves at home."""
    home.mkdir()
    usual = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", *SERVERS))}
    usual |= {"PYTHONPATH": str(Path(exported.__file__).parents[2]), "HOME": str(home), **variables}
    done = run([sys.executable, "-P", "-c", code, *words], cwd=home.parent, env=usual, capture_output=True, text=True)
    left = [str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()]
    allowed = tuple(f".cache/{name}/" for name in CACHES)
    return done.returncode, done.stderr, [path for path in left if not path.startswith(allowed)]


def test_conversions_and_predictions_stay_on_this_machine(tmp_path: Path) -> None:
    exported.classifier(tmp_path / "model")
    commands = ["convert model a.onnx --to=onnx", "convert model a.tflite --to=mediapipe"]
    commands += ["benchmark a.onnx --runs=2 --rounds=2"]
    code, errors, left = watched(tmp_path / "home", COMMANDS, *commands)
    assert (code, left) == (0, []), errors
    # The same checks notice a library's files and a connection.
    loud = "from bertzoo.core.child import forbid_network; forbid_network()\n"  # its report may not be sent
    loud += "from bertzoo.export.runtimes import Onnx; from pathlib import Path; Onnx(Path('a.onnx'))"
    assert watched(tmp_path / "loud", loud, ORT_DISABLE_TELEMETRY="0")[2]
    assert watched(tmp_path / "lookup", LOOKUP)[0] == -31  # SIGSYS
