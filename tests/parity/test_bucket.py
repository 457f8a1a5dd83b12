"""A whole run in a bucket, as gcsfs, TensorStore and orbax write it to an emulated Cloud Storage."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from comparing import needs
from messages import mentions
from safetensors.numpy import load_file

needs("gcsfs", "gcp_storage_emulator")

import tiny

ROOT = Path(__file__).parents[2]
STEPS = ("--stages.0.steps=2", "--stages.1.steps=1")


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    """The environment of a machine whose Cloud Storage is the emulator."""
    directory = tmp_path_factory.mktemp("cloud")
    with open(directory / "output", "w") as output:
        script = [sys.executable, str(Path(__file__).with_name("emulated.py")), str(directory / "port")]
        server = subprocess.Popen(script, stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + 120
            while not (directory / "port").exists():
                assert server.poll() is None and time.monotonic() < deadline, (directory / "output").read_text()
                time.sleep(0.05)
            address = f"http://localhost:{(directory / 'port').read_text()}"
            urls = dict.fromkeys(("STORAGE_EMULATOR_HOST", "TENSORSTORE_GCS_HTTP_URL"), address)
            path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
            urls["EPATH_USE_TF"] = "false"  # TensorFlow's own client knows Google's address alone
            yield {**os.environ, **urls, "XDG_CACHE_HOME": str(directory / "cache"), "PYTHONPATH": path}
        finally:
            server.terminate()
            server.wait()


def bertzoo(cloud, *words, code=0, **more):
    """Return a command's output and errors."""
    command = [sys.executable, "-m", "bertzoo", *map(str, words)]
    done = subprocess.run(command, env={**cloud, **more}, capture_output=True, text=True, timeout=600)
    assert done.returncode == code, done.stderr[-2000:]
    return done.stdout, done.stderr


def objects(cloud, prefix):
    """The contents of the objects with this prefix."""
    base = f"{cloud['STORAGE_EMULATOR_HOST']}/storage/v1/b/bucket/o"

    def get(url):
        with urllib.request.urlopen(url) as answer:
            return answer.read()

    names = [item["name"] for item in json.loads(get(f"{base}?prefix={prefix}")).get("items", [])]
    return {name.removeprefix(prefix): get(f"{base}/{name.replace('/', '%2F')}?alt=media") for name in names}


def put(cloud, name, data):
    url = f"{cloud['STORAGE_EMULATOR_HOST']}/upload/storage/v1/b/bucket/o?uploadType=media&name={name}"
    urllib.request.urlopen(urllib.request.Request(url, data, method="POST")).close()


def losses(metrics):
    rows = map(json.loads, metrics.splitlines())
    return {(row["step"], row["split"]): row["loss"] for row in rows if "split" in row}


def test_a_run_in_a_bucket_equals_the_run_on_disk(cloud, tmp_path):
    """Other machines resume it with its programs, past a damaged checkpoint; the losses equal a run on disk."""
    kept, no_cache = "--run.keep_programs=true", {"JAX_COMPILATION_CACHE_DIR": ""}
    config = tiny.write_config(tmp_path, tiny.write_text(tmp_path / "text.txt", documents=100))
    bertzoo(cloud, "pretrain", config, f"--run_dir={tmp_path / 'run'}", *STEPS)
    bertzoo(cloud, "pretrain", config, "--run_dir=gs://bucket/run", *STEPS, kept, **no_cache)
    there = objects(cloud, "run/")
    expected = losses((tmp_path / "run" / "metrics.jsonl").read_bytes())
    assert losses(there["metrics.jsonl"]) == expected and len(expected) == 5
    assert {"config.toml", "run.json", "corpus/manifest.json", "checkpoints/3.sha256.json"} <= there.keys()
    assert json.loads(there["run.json"])["corpus"] == "gs://bucket/run/corpus"
    assert sum(name.startswith("programs/jit_train_step-") for name in there) == 2
    assert b"saved_seconds" not in there["metrics.jsonl"]
    assert not list(tmp_path.rglob("gs:*")) and not Path("gs:").exists()

    arrays = [name for name in there if name.startswith("checkpoints/3/params/") and "/d/" in name]
    victim = max(arrays, key=lambda name: len(there[name]))
    data = bytearray(there[victim])
    data[len(data) // 2] ^= 1
    put(cloud, f"run/{victim}", bytes(data))
    elsewhere = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    _, said = bertzoo(cloud, "pretrain", config, "--run_dir=gs://bucket/run", *STEPS, kept, **elsewhere, **no_cache)
    assert mentions(said, f"gs://bucket/run/{victim}", "step 2")
    assert losses(metrics := objects(cloud, "run/")["metrics.jsonl"]) == expected and b"saved_seconds" in metrics
    out, _ = bertzoo(cloud, "checkpoints", "gs://bucket/run", "--json", "--verify", **elsewhere)
    local, _ = bertzoo(cloud, "checkpoints", tmp_path / "run", "--json", "--verify")
    assert [found | {"bytes": 0} for found in json.loads(out)] == [one | {"bytes": 0} for one in json.loads(local)]
    assert any(name.startswith("damaged-3/") for name in objects(cloud, "run/checkpoints/"))

    third = {"XDG_CACHE_HOME": str(tmp_path / "third")}
    out, _ = bertzoo(cloud, "predict", "gs://bucket/run", "a [MASK]", "--json", **third)
    local, _ = bertzoo(cloud, "predict", tmp_path / "run", "a [MASK]", "--json")
    assert json.loads(out) == json.loads(local) and not (tmp_path / "third" / "bertzoo" / "corpora").exists()
    for name, model in (("remote", "gs://bucket/run"), ("local", tmp_path / "run")):
        bertzoo(cloud, "convert", model, tmp_path / name, "--to=bertzoo", **third)
    parameters = [(tmp_path / name / "parameters.safetensors").read_bytes() for name in ("remote", "local")]
    assert parameters[0] == parameters[1] and not list((tmp_path / "third").rglob("training"))
    out, _ = bertzoo(cloud, "evaluate", "gs://bucket/run", "--json", **elsewhere)
    local, _ = bertzoo(cloud, "evaluate", tmp_path / "run", "--json")
    assert json.loads(out) == json.loads(local)
    out, _ = bertzoo(cloud, "report", "gs://bucket/run", **elsewhere)
    assert "gs://bucket/run/report.md" in out and b"Model: kind squeezebert" in objects(cloud, "run/")["report.md"]


def test_a_denied_google_bucket_prints_one_error(cloud, tmp_path):
    text = tiny.write_text(tmp_path / "text.txt", documents=100)
    config = tiny.write_config(tmp_path, text)
    for command in (
        ("pretrain", config, "--run_dir=gs://closed/run"),
        ("pretrain", config, f"--run_dir={tmp_path / 'run'}", "--data.source=gs://closed/corpus"),
        ("tokenize", text, "gs://closed/corpus"),
        ("evaluate", "gs://closed/run"),
        ("convert", "gs://closed/run", tmp_path / "out", "--to=bertzoo"),
        ("report", "gs://closed/run"),
    ):
        _, said = bertzoo(cloud, *command, code=2)
        (message,) = [line for line in said.splitlines() if line.startswith("bertzoo: ")]
        assert mentions(message, "gs://closed/", "no access to the bucket")


PIPELINE = """
[inputs]
text = ""
labels = ""

[stages.base]
verb = "pretrain"
config = "CONFIG"
options = { data.source = "{text}", stages.0.steps = 2, stages.1.steps = 1 }

[stages.tuned]
verb = "finetune"
config = "finetune"
from = "base"
options = { own.train = "train.csv", own.dev = "dev.csv", data_dir = "{labels}", seeds = 1, max_length = 16 }
tasks.own = { epochs = 1, batch_size = 8, optimizer.learning_rate = 0.01 }

[stages.file]
verb = "convert"
from = "tuned"
tasks = ["own"]
options.to = "bertzoo"
"""


def test_a_pipeline_trains_on_two_processes_in_a_bucket(cloud, tmp_path):
    """Its model is that of the same pipeline in one process on disk; a second start finds every step finished."""
    text = tiny.write_text(tmp_path / "text.txt", documents=100)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(PIPELINE.replace("CONFIG", str(tiny.write_config(tmp_path, text))))
    labels = tmp_path / "labels"
    labels.mkdir()
    for name in ("train.csv", "dev.csv"):
        rows = [f"{word},{number % 2}" for number, word in enumerate(text.read_text().split()[:32])]
        (labels / name).write_text("\n".join(["text,label", *rows]))
    inputs = [f"--inputs.text={text}", f"--inputs.labels={labels}"]
    launcher = f"--launch={ROOT / 'launch' / 'local_multi.sh'} --devices-per-process=1 2"
    programs = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    command = ["pipeline", recipe, f"--run_dir={tmp_path / 'there'}", *inputs]
    command += [launcher, "--training_dir=gs://bucket/pipeline"]
    bertzoo(cloud, *command, **programs)
    assert {"config.toml", "checkpoints/3.sha256.json"} <= objects(cloud, "pipeline/base/").keys()
    log = (tmp_path / "there" / "logs" / "base.log").read_text()
    assert {"[0]", "[1]"} <= {line[:3] for line in log.splitlines()}  # the launcher marks each process's lines
    bertzoo(cloud, "pipeline", recipe, f"--run_dir={tmp_path / 'here'}", *inputs)
    tensors = [
        load_file(tmp_path / run / "stages" / "file" / "own" / "parameters.safetensors") for run in ("here", "there")
    ]
    assert tensors[0].keys() == tensors[1].keys()
    for name, expected in tensors[0].items():
        np.testing.assert_allclose(tensors[1][name], expected, atol=1e-5 * max(1, np.abs(expected).max()))
    bertzoo(cloud, "convert", "gs://bucket/pipeline/base", tmp_path / "base", "--to=bertzoo")
    base = load_file(tmp_path / "base" / "parameters.safetensors")
    changes = [np.abs(array - base[name]).max() for name, array in tensors[1].items() if name in base]
    assert max(changes) > 1e-2  # the fine-tuning trained the model from the bucket
    _, errors = bertzoo(cloud, *command, **programs)
    assert mentions(errors, "3 already finished")
