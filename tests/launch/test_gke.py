"""launch/gke/job.sh: the manifest holds what JobSet, Kubernetes and GKE document, and is applied once."""

import re
import subprocess

import pytest
import yaml
from clouds import LAUNCH, Cloud
from messages import mentioning, mentions

from bertzoo.core.errors import ConfigError
from bertzoo.planning import chips

IMAGE = ("--name=run", "--image=europe-docker.pkg.dev/p/r/bertzoo:1")
RUN = ("--", "demo", "--run_dir=gs://b/x")
SLICE = ("--tpu=v5e", "--topology=4x4")

# The fields of a JobSet: https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2. tests/parity/test_manifest.py
# compares the jobs inside with the models of Kubernetes' client.
JOBSET = {
    "apiVersion": ...,
    "kind": ...,
    "metadata": {"name": ..., "labels": ..., "annotations": ...},
    "spec": {
        "failurePolicy": {"maxRestarts": ..., "rules": [{"action": ..., "onJobFailureReasons": ...}]},
        "replicatedJobs": [{"name": ..., "replicas": ..., "template": ...}],
    },
}


def strangers(value, schema, path: str = "") -> list[str]:
    """The paths in a manifest that the schema does not know."""
    if schema is ...:
        return []
    if isinstance(schema, list):
        return [found for item in value for found in strangers(item, schema[0], path)]
    unknown = [f"{path}.{key}" for key in value if key not in schema]
    known = [strangers(item, schema[key], f"{path}.{key}") for key, item in value.items() if key in schema]
    return unknown + [found for inner in known for found in inner]


def shown(cloud: Cloud, *arguments: str) -> dict:
    return yaml.safe_load(cloud.run("gke/job.sh", "show", *IMAGE, *arguments))


def pod(manifest: dict) -> dict:
    return manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]


def test_every_field_is_documented(cloud: Cloud):
    manifest = shown(cloud, *SLICE, "--bucket=b", "--spot", *RUN)
    assert strangers(manifest, JOBSET) == []
    manifest["spec"]["failurePolicy"]["rules"][0]["onJobFailureReason"] = []
    assert strangers(manifest, JOBSET) == [".spec.failurePolicy.rules.onJobFailureReason"]


@pytest.mark.parametrize(
    ("tpu", "topology", "label", "hosts", "chips"),
    [
        ("v4", "4x4x8", "tpu-v4-podslice", 32, 4),
        ("v5e", "16x16", "tpu-v5-lite-podslice", 64, 4),
        ("v5p", "2x2x1", "tpu-v5p-slice", 1, 4),
        ("v6e", "1x1", "tpu-v6e-slice", 1, 1),
        ("tpu7x", "2x2x2", "tpu7x", 2, 4),
    ],
)
def test_the_manifest_selects_a_slice_by_labels(cloud, tpu, topology, label, hosts, chips):
    count = 2 if hosts > 1 else 1
    manifest = shown(cloud, f"--tpu={tpu}", f"--topology={topology}", f"--slices={count}", *RUN)
    (slices,) = manifest["spec"]["replicatedJobs"]
    job = slices["template"]["spec"]
    assert slices["replicas"] == count and job["parallelism"] == job["completions"] == hosts
    assert pod(manifest)["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": label,
        "cloud.google.com/gke-tpu-topology": topology,
    }
    assert pod(manifest)["containers"][0]["resources"] == {"limits": {"google.com/tpu": str(chips)}}
    assert manifest["metadata"]["annotations"] == {
        "alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool",
        "bertzoo/run": "pretrain demo --run_dir=gs://b/x",
    }


@pytest.mark.parametrize("tpu", ["v4", "v5e", "v5p", "v6e", "tpu7x"])
def test_an_unknown_slice_raises_with_the_known_ones(cloud: Cloud, tpu: str):
    chip = chips.CHIPS[tpu]
    flat = "2x2" in chip.slices
    for topology in ("1x8", "3x3", "4x4x4") if flat else ("4x4", "2x4x2", "8x4x4", "4x4x6", "32x32x32", "0x0x0"):
        with pytest.raises(ConfigError, match=mentioning(tpu, topology, chips.describe_slices(chip))):
            chips.parse_topology(f"{tpu}:{topology}")
        out = cloud.run("gke/job.sh", "show", *IMAGE, f"--tpu={tpu}", f"--topology={topology}", *RUN, code=2)
        known = tpu, chips.describe_slices(chip)
        assert out.startswith("job.sh: ") and out.count("\n") == 1 and mentions(out, f"--topology={topology}", *known)
    for topology in () if flat else ("4x4x12", "8x16x16"):
        assert chips.parse_topology(f"{tpu}:{topology}")
        shown(cloud, f"--tpu={tpu}", f"--topology={topology}", *RUN)


def outcome(manifest: dict, code: int, disrupted: bool = False) -> str:
    """What Kubernetes and JobSet do when a pod ends with `code`, by the rules that their pages give."""
    job = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert job["backoffLimit"] == 0 and pod(manifest)["restartPolicy"] == "Never"
    action = "Count"
    for rule in job["podFailurePolicy"]["rules"]:
        conditions, codes = rule.get("onPodConditions"), rule.get("onExitCodes")
        if conditions and disrupted and conditions == [{"type": "DisruptionTarget", "status": "True"}]:
            action = rule["action"]
            break
        if codes and codes["operator"] == "In" and code in codes["values"]:
            assert codes["containerName"] == pod(manifest)["containers"][0]["name"]
            action = rule["action"]
            break
    reason = {"FailJob": "PodFailurePolicy", "Count": "BackoffLimitExceeded"}[action]
    policy = manifest["spec"]["failurePolicy"]
    assert policy["maxRestarts"] > 0
    return next((rule["action"] for rule in policy["rules"] if reason in rule["onJobFailureReasons"]), "RestartJobSet")


def test_exit_codes_decide_whether_all_pods_restart(cloud: Cloud):
    manifest = shown(cloud, *SLICE, *RUN)
    assert {code: outcome(manifest, code) for code in (1, 2)} == {1: "FailJobSet", 2: "FailJobSet"}
    assert {outcome(manifest, code) for code in (3, 4, 134, 137, 143)} == {"RestartJobSet"}
    assert {outcome(manifest, code, disrupted=True) for code in (1, 2, 3, 137)} == {"RestartJobSet"}


def test_options_reach_the_manifest(cloud: Cloud):
    options = ("--spot", "--restarts=7", "--grace=90", "--bucket=my-bucket", "--service-account=trainer")
    manifest = shown(cloud, *SLICE, *options, "--chips-per-host=8", *RUN)
    inside = pod(manifest)
    assert inside["nodeSelector"]["cloud.google.com/gke-spot"] == "true"
    assert manifest["spec"]["failurePolicy"]["maxRestarts"] == 7 and inside["terminationGracePeriodSeconds"] == 90
    assert inside["serviceAccountName"] == "trainer"
    template = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert template["metadata"]["annotations"] == {"gke-gcsfuse/volumes": "true"}
    csi = {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": {"bucketName": "my-bucket"}}
    assert {"name": "bucket", "csi": csi} in inside["volumes"]
    assert {"name": "bucket", "mountPath": "/bucket"} in inside["containers"][0]["volumeMounts"]
    assert inside["containers"][0]["resources"]["limits"]["google.com/tpu"] == "8"
    plain = shown(cloud, *SLICE, *RUN)
    assert "gcsfuse" not in str(plain) and "spot" not in str(plain) and plain["metadata"]["labels"] == {}


def test_capacity_and_queue_reach_the_manifest(cloud: Cloud):
    queued = shown(cloud, *SLICE, "--queue=team-a", "--priority=urgent", "--flex-start", *RUN)
    assert queued["metadata"]["labels"] == {
        "kueue.x-k8s.io/queue-name": "team-a",
        "kueue.x-k8s.io/priority-class": "urgent",
    }
    assert pod(queued)["nodeSelector"]["cloud.google.com/gke-flex-start"] == "true"
    reserved = shown(cloud, *SLICE, "--reservation=ours", "--queue=team-a", *RUN)
    assert pod(reserved)["nodeSelector"]["cloud.google.com/reservation-name"] == "ours"
    assert reserved["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "team-a"}


def test_the_run_arrives_whole(cloud: Cloud, hostile: list[str]):
    words = [*hostile, "--a=@NAME@ $$ $(HOME)", "--b=line\nand\ttab", '--c=\\"', "--d=: {x} [y] - #", "--e=ä漢"]
    manifest = shown(cloud, *SLICE, "--", *words)
    container = pod(manifest)["containers"][0]
    assert container["command"] == ["bertzoo", "pretrain"]
    # Kubernetes makes one dollar sign of two, and puts a variable for $(NAME) after a single one.
    expanded = [
        re.sub(r"\$\$|\$\(\w+\)", lambda m: "$" if m[0] == "$$" else "VARIABLE", arg) for arg in container["args"]
    ]
    assert expanded == words
    # The shell that quoted them reads them again.
    told = subprocess.check_output(
        ["bash", "-c", f"printf '%s\\0' {manifest['metadata']['annotations']['bertzoo/run']}"], text=True
    )
    assert told.split("\0")[:-1] == ["pretrain", *words]


def test_a_job_is_applied_once_and_restarted_after_a_failure(cloud: Cloud):
    place = ("--context=c", "--namespace=n")
    cloud.run("gke/job.sh", "apply", *IMAGE, *SLICE, *place, *RUN)
    assert yaml.safe_load((cloud.folder / "applied.yaml").read_text()) == shown(cloud, *SLICE, *RUN)
    assert cloud.calls("kubectl", *place, "apply") == [["-f", "-"]]
    assert mentions(cloud.run("gke/job.sh", "apply", *IMAGE, *SLICE, *RUN), "run", "still running")
    cloud.set(jobsets={"run": "Completed"})
    assert mentions(cloud.run("gke/job.sh", "apply", *IMAGE, *SLICE, *RUN), "run", "done", "job.sh delete")
    assert not cloud.calls("kubectl", "apply") and not cloud.calls("kubectl", "delete")
    cloud.set(jobsets={"run": "Failed"})
    cloud.run("gke/job.sh", "apply", *IMAGE, *SLICE, *RUN)
    assert len(cloud.calls("kubectl", "apply")) == 1
    assert cloud.calls("kubectl", "delete") == [["jobset", "run", "--ignore-not-found", "--wait"]]


def test_a_second_run_of_one_name_raises_unless_the_first_failed(cloud: Cloud, hostile: list[str]):
    cloud.run("gke/job.sh", "apply", *IMAGE, *SLICE, "--", *hostile)
    same = cloud.run("gke/job.sh", "apply", *IMAGE, *SLICE, "--", "pretrain", *hostile)
    assert mentions(same, "run", "still running")
    for state, said in (("", "still running"), ("Completed", "done")):
        cloud.set(jobsets={"run": state})
        for other in (("transfer", *hostile), ("demo", "--run_dir=gs://b/x")):
            out = cloud.run("gke/job.sh", "apply", *IMAGE, *SLICE, "--", *other, code=2)
            assert mentions(out, "config.toml", "--name", said)
    assert len(cloud.calls("kubectl", "apply")) == 1
    cloud.set(jobsets={"run": "Failed"})
    cloud.run("gke/job.sh", "apply", *IMAGE, *SLICE, *RUN)
    assert len(cloud.calls("kubectl", "apply")) == 2


def test_a_transfer_is_run_as_one(cloud: Cloud):
    container = pod(shown(cloud, *SLICE, "--", "transfer", "demo_transfer", "--run_dir=x"))["containers"][0]
    assert (container["command"], container["args"]) == (["bertzoo", "transfer"], ["demo_transfer", "--run_dir=x"])


def test_the_image_can_read_a_bucket():
    text = (LAUNCH / "gke/Dockerfile").read_text()
    assert "-c constraints.txt '.[gcs,sentencepiece,tensorboard,zstd]' 'jax[tpu]'" in text


ONE_HOST = ("--tpu=v6e", "--topology=2x2", "--bucket=b")


@pytest.mark.parametrize("end", ["Completed", "Failed"])
def test_a_smoke_test_brings_its_results_and_is_removed(cloud: Cloud, end: str, tmp_path):
    cloud.set(ends=end)
    options = (*IMAGE, *ONE_HOST, f"--folder={tmp_path}/results")
    out = cloud.run("gke/job.sh", "smoke", *options, code=int(end == "Failed"))
    container = pod(yaml.safe_load((cloud.folder / "applied.yaml").read_text()))["containers"][0]
    assert container["command"] == ["bash"] and container["args"][0] == "-c"
    begun, copy = container["args"][1].replace("$$", "$").replace("/bucket", str(tmp_path)).split("; code=$?; ")
    assert begun == "launch/smoke.sh smoke"
    for result in ("first", "second"):  # a second test of the name replaces the first one's results
        (tmp_path / "smoke").mkdir(exist_ok=True)
        (tmp_path / "smoke/smoke.txt").write_text(result)
        assert subprocess.run(["bash", "-c", f"code=3; {copy}"], cwd=tmp_path).returncode == 3
        assert (tmp_path / "run/smoke.txt").read_text() == result
    assert cloud.calls("gcloud", "storage") == [["cp", "--recursive", "gs://b/run/*", f"{tmp_path}/results"]]
    assert (tmp_path / "results/smoke.txt").exists() and mentions(out, "results/smoke.txt")
    assert cloud.calls("kubectl", "delete") == [["jobset", "run", "--ignore-not-found", "--wait"]]
    cloud.set(jobsets={"run": ""})
    cloud.run("gke/job.sh", "smoke", *IMAGE, *ONE_HOST, code=2)
    assert len(cloud.calls("kubectl", "delete")) == 1  # not somebody's run


def test_the_other_actions(cloud: Cloud):
    cloud.run("gke/job.sh", "status", "--name=run")
    cloud.run("gke/job.sh", "logs", "--name=run")
    cloud.run("gke/job.sh", "delete", "--name=run")
    cloud.run("gke/job.sh", "delete", "--name=run")
    assert [call[0] for call in cloud.calls("kubectl")] == ["get", "get", "logs", "delete", "delete"]
    assert any("jobset.sigs.k8s.io/jobset-name=run" in word for word in cloud.calls("kubectl", "logs")[0])


@pytest.mark.parametrize(("step", "after"), [("get jobsets", "apply"), ("delete", "apply"), ("apply", "never")])
def test_a_step_that_fails_ends_it(cloud: Cloud, step: str, after: str):
    cloud.set(failures=[[step, 7, 1]], jobsets={"run": "Failed"})
    out = cloud.run("gke/job.sh", "apply", *IMAGE, *SLICE, *RUN, code=None)
    assert cloud.code in (1, 7) and mentions(out, "kubectl") and not cloud.calls("kubectl", after)


@pytest.mark.parametrize("action", ["apply", "status", "logs", "delete", "smoke"])
def test_a_dry_run_sends_no_request(cloud: Cloud, action: str):
    rest = {"apply": (*SLICE, "--image=i", *RUN), "smoke": (*ONE_HOST, "--image=i")}.get(action, ())
    assert "+ kubectl " in cloud.run("gke/job.sh", action, "--name=run", "--dry-run", *rest) and not cloud.calls()
