"""The jobs in the manifest of launch/gke/job.sh fit the models of Kubernetes' own Python client."""

import sys
from pathlib import Path

import yaml
from comparing import needs

sys.path.insert(0, str(Path(__file__).parents[1] / "launch"))

from clouds import Cloud

needs("kubernetes")
from kubernetes import client

PLAIN = {"str": str, "int": int, "bool": bool, "object": object}


def problems(value, kind: str, path: str) -> list[str]:
    """Unknown fields, wrong types and missing fields of a value that should be a `kind` of the client's models."""
    if kind.startswith("list["):
        return [one for item in value for one in problems(item, kind[5:-1], f"{path}[]")]
    if kind.startswith("dict[str, "):
        return [one for key, item in value.items() for one in problems(item, kind[10:-1], f"{path}.{key}")]
    if kind in PLAIN:
        return [] if isinstance(value, PLAIN[kind]) else [f"{path} is no {kind}: {value!r}"]
    model = getattr(client, kind)
    names = {name: field for field, name in model.attribute_map.items()}
    found = [f"{path}.{key} is unknown" for key in value.keys() - names.keys()]
    try:  # the constructor checks required fields
        model(**{names[key]: item for key, item in value.items() if key in names})
    except ValueError as error:
        found.append(f"{path}: {error}")
    for key in value.keys() & names.keys():
        found += problems(value[key], model.openapi_types[names[key]], f"{path}.{key}")
    return found


def test_jobs_and_metadata_fit_the_models(tmp_path: Path):
    words = "show --name=run --image=i --tpu=v5e --topology=4x4 --slices=2 --bucket=b --spot --queue=q --priority=p"
    manifest = yaml.safe_load(Cloud(tmp_path).run("gke/job.sh", *words.split(), "--", "demo", "--run_dir=gs://b/x"))
    job = manifest["spec"]["replicatedJobs"][0]["template"]
    assert problems(manifest["metadata"], "V1ObjectMeta", "") == [] == problems(job, "V1JobTemplateSpec", "")
    pod = job["spec"]["template"]["spec"]
    pod["restartpolicy"] = pod.pop("restartPolicy")
    pod["containers"][0]["args"].append(1)
    del pod["containers"][0]["name"]
    assert len(problems(job, "V1JobTemplateSpec", "")) == 3
