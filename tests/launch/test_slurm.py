"""launch/slurm.sh: submitted once, requeued as long as running again helps."""

import pytest
from clouds import Cloud
from messages import mentions

RUN = ("--", "demo", "--run_dir=runs/x")
TASKS = ("srun", "--kill-on-bad-exit=0", "--wait=180", "--label", "bash", "-c")


def test_the_job_is_submitted_with_the_whole_command(cloud: Cloud, hostile: list[str]) -> None:
    options = ("--nodes=4", "--tasks-per-node=2", "--name=big", "--sbatch=--partition=tpu", "--sbatch=--time=2-0")
    cloud.run("slurm.sh", *options, "--", *hostile)
    (call,) = cloud.calls("sbatch")
    expected = "--nodes=4 --ntasks-per-node=2 --requeue --open-mode=append --signal=TERM@120 --partition=tpu --time=2-0"
    assert call[:9] == ["--job-name=big", call[1], *expected.split()]
    ((_, *task),) = cloud.calls(*TASKS)  # after the script that says how its program ended
    assert task == ["task", "bertzoo", "pretrain", *hostile] and cloud.calls("bertzoo", "pretrain") == [hostile]
    assert call[1].startswith("--comment=bertzoo-")
    assert not cloud.calls("scontrol") and not list(cloud.folder.rglob("broken"))


@pytest.mark.slow
@pytest.mark.parametrize(("codes", "result"), [([3, 4, 137, 0], 0), ([2], 2), ([1], 1), ([3, 2], 2), ([4, 1], 1)])
def test_only_recoverable_failures_are_retried(cloud: Cloud, codes: list[int], result: int) -> None:
    cloud.set(codes0=codes)
    cloud.run("slurm.sh", "--nodes=1", *RUN, code=result)
    assert len(cloud.calls("bertzoo")) == len(codes)
    assert cloud.calls("scontrol") == [["requeue", "7"]] * (len(codes) - 1)


@pytest.mark.parametrize(
    ("first", "second", "result"),
    [([4], [2], 2), ([2], [4], 2), ([137], [1], 1), ([1], [3], 1), ([3, 0], [4, 0], 0), ([0, 0], [134, 0], 0)],
)
def test_an_error_of_one_task_outranks_lost_hosts(cloud: Cloud, first, second, result: int) -> None:
    cloud.set(codes0=first, codes1=second)
    cloud.run("slurm.sh", "--nodes=2", *RUN, code=result)
    assert len(cloud.calls("scontrol")) == len(first) - 1


def test_requeues_are_limited(cloud: Cloud) -> None:
    cloud.set(codes0=[4] * 9)
    out = cloud.run("slurm.sh", "--nodes=1", "--restarts=2", *RUN, code=1)
    assert len(cloud.calls("bertzoo")) == 3 and mentions(out.splitlines()[-1], 4, 2)


def test_a_queued_job_is_not_submitted_again(cloud: Cloud) -> None:
    cloud.run("slurm.sh", "--nodes=1", *RUN)
    (call,) = cloud.calls("sbatch")
    comment = call[1].removeprefix("--comment=")
    cloud.forget()
    cloud.set(queue=[{"%i": number, "%k": comment} for number in ("41", "42")])
    assert mentions(cloud.run("slurm.sh", "--nodes=1", *RUN), "job 41,42", "bertzoo")
    assert cloud.calls("squeue") == [["--me", "--noheader", "--name=bertzoo", "--format=%i %k"]]
    # The output does not report another run under the same name.
    for other in (("--", "demo", "--run_dir=runs/y"), ("--", "transfer", *RUN[1:])):
        out = cloud.run("slurm.sh", "--nodes=1", *other, code=2)
        assert mentions(out, "job 41 ", "bertzoo", "--name", "--stop --name=bertzoo")
    cloud.set(queue=[{"%i": "43", "%k": "(null)"}])
    assert mentions(cloud.run("slurm.sh", "--nodes=1", *RUN, code=2), "job 43 ", "bertzoo", "--stop --name=bertzoo")
    assert not cloud.calls("sbatch")


def test_a_transfer_is_run_as_one(cloud: Cloud) -> None:
    cloud.run("slurm.sh", "--nodes=1", "--", "transfer", "demo_transfer", "--run_dir=runs/x")
    assert cloud.calls("bertzoo") == [["transfer", "demo_transfer", "--run_dir=runs/x"]]


def test_a_stopped_job_saves_and_is_not_requeued(cloud: Cloud) -> None:
    cloud.set(seconds0=600)
    job = cloud.start("slurm.sh", "--nodes=1", *RUN)
    cloud.wait_for((cloud.folder / "pid0").exists)
    cloud.set(queue=[{"%i": "7", "%T": "RUNNING"}, {"%i": "8", "%T": "PENDING"}])
    cloud.run("slurm.sh", "--stop")
    assert cloud.calls("scancel") == [["--batch", "--signal=USR1", "7"], ["--signal=TERM", "7"], ["8"]]
    out, errors = job.communicate(timeout=120)
    assert job.returncode == 3 and "saved" in out and "the same submission resumes it" in out, out + errors
    assert not cloud.calls("scontrol") and len(cloud.calls("bertzoo")) == 1
    cloud.set(queue=[])
    assert mentions(cloud.run("slurm.sh", "--stop", "--name=other"), "other")
    assert len(cloud.calls("scancel")) == 3


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETING"])
def test_a_job_that_slurm_ends_is_not_requeued(cloud: Cloud, state: str) -> None:
    cloud.set(codes0=[3], job_state=state)
    assert mentions(cloud.run("slurm.sh", "--nodes=1", *RUN, code=3), 3, "job 7", state) and not cloud.calls("scontrol")
    assert cloud.calls("squeue")[1:] == [["--noheader", "--jobs=7", "--format=%T"]]


@pytest.mark.parametrize(("step", "code"), [("squeue --me", 1), ("sbatch", 7), ("srun", 9), ("scontrol", 5)])
def test_a_step_that_fails_ends_it(cloud: Cloud, step: str, code: int) -> None:
    cloud.set(failures=[[step, code, 1]], codes0=[3])
    assert f"{step.split()[0]} fails as planned" in cloud.run("slurm.sh", "--nodes=1", *RUN, code=code)


def test_a_dry_run_submits_nothing(cloud: Cloud) -> None:
    out = cloud.run("slurm.sh", "--dry-run", "--nodes=2", *RUN, "--x=a b")
    assert out.startswith("+ sbatch --job-name=bertzoo --comment=bertzoo-") and out.endswith(
        "pretrain demo --run_dir=runs/x --x=a\\ b\n"
    )
    stop = cloud.run("slurm.sh", "--dry-run", "--stop", "--name=big")
    assert "+ scancel --batch --signal=USR1 JOB\n+ scancel --signal=TERM JOB\n" in stop
    assert not cloud.calls()
