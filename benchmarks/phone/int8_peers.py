"""Our int8-dynamic files beside other projects' int8 files of the same Hugging Face weights: time, size, points lost.

    python -m benchmarks phone.int8_peers --peer=PYTHON --scored=RUN

Peers are litert-torch with Google's quantiser, and ONNX Runtime's dynamic quantisation with a scale per channel.
PYTHON is that of converters.py, with onnxruntime, onnx and onnxscript; bertzoo needs the extras litert and onnx.
Classifiers read one row of 128 tokens on one thread, each in a process of its own; they take turns as in converters.py.
All have random weights but RUN's, a fine-tuned classifier, whose files are scored on its whole development set. Files
and rounds are kept under --runs. Fails if a peer's file is as fast as ours, or RUN's loses less by over half a point.
Nothing else should run at the same time.
"""

import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lib import results
from benchmarks.lib.program import bertzoo
from benchmarks.phone.converters import LENGTH, MODELS, VOCABULARY, Files, Times, measure, versions
from bertzoo.export import runtimes
from bertzoo.export.check import quiz
from bertzoo.export.litert import flatbuffer, write
from bertzoo.runs import load_model

SCORED = "scored"  # the name of RUN's model among the files
FLOAT, LITERT, ONNX = "tflite", "int8.tflite", "int8.onnx"  # suffixes of the peers' files
PEERS = {LITERT: "litert-torch, Google's quantiser", ONNX: "ONNX Runtime"}
ROWS = 16  # random rows on which logits are compared with float32's
LOST = 0.5  # target: points that ours may lose more than a peer's file
PACKAGES = ("litert-torch", "litert-quantizer", "onnxruntime", "torch", "transformers")


def make_files(folder: Path, peer: str, names: list[str], run: Path | None) -> Files:
    """The int8 files of every model, written if they are missing, with litert-torch's float32 file as a reference."""
    files = Files(folder, peer, names)
    if run is not None and not files.hub(SCORED).exists():
        files.hub(SCORED).parent.mkdir(parents=True, exist_ok=True)
        bertzoo("convert", str(run), str(files.hub(SCORED)), "--to=huggingface")
    for name in names:
        _, *paths = files.peer_files(name, FLOAT, *PEERS)
        files.paths |= {f"{name} {suffix}": path for suffix, path in zip(PEERS, paths, strict=True)}
        read = partial(load_model.read_model, files.hub(name))
        files.make_file(f"{name} one int8-dynamic", [LENGTH], "int8-dynamic", read)
    return files


def peer_rows(title: str, name: str, times: Times, files: Files) -> list[dict[str, Any]]:
    """A model's int8 file beside each peer's: milliseconds, megabytes, and how far logits are from float32's."""
    ours, paths = f"{name} one int8-dynamic", files.paths
    reference = random_logits(files.peer_files(name, FLOAT)[0])

    def figures(key: str, side: str) -> dict[str, Any]:
        error = np.linalg.norm(random_logits(paths[key]) - reference) / np.linalg.norm(reference)
        row = {f"{side}, ms": times.milliseconds(key), f"{side}, MB": round(paths[key].stat().st_size / 1e6, 1)}
        return row | {f"{side}, error": round(float(error), 3)}

    rows = []
    for suffix, peer in PEERS.items():
        theirs = f"{name} {suffix}"
        ratio = times.ratio(ours, theirs)
        row = {"model": title, "peer": peer} | figures(theirs, "peer's") | figures(ours, "ours")
        rows.append(row | {"time, ours of peer's": ratio, "met": ratio["median"] < 1})
    return rows


def random_logits(file: Path) -> np.ndarray:
    """A classifier's logits for ROWS rows of random ids, (ROWS,C)."""
    infer, zeros = file_runner(file), np.zeros((1, LENGTH), np.int32)
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (ROWS, 1, LENGTH), np.int32)
    rows = ({"input_ids": row, "attention_mask": zeros + 1, "token_type_ids": zeros} for row in ids)
    return np.concatenate([infer(row)["logits"] for row in rows])


def file_runner(file: Path) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """A function from a row's inputs to the logits that a classifier's file of one length gives, by name."""
    if file.suffix == ".onnx":
        run, kinds = runtimes.Onnx(file), dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), "int32")
    else:
        ((signature, ports),) = flatbuffer.ports(file.read_bytes()).items()
        run, kinds = partial(runtimes.LiteRT(file).run, signature), {name: kind for name, kind, _ in ports["inputs"]}

    def infer(row: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        (logits,) = run({name: row[name].astype(kind) for name, kind in kinds.items()}).values()
        return {"logits": logits}

    return infer


def score_rows(run: Path, files: Files) -> list[dict[str, Any]]:
    """Points of a fine-tuned model's files on its development set, and what the int8 files lose to float32."""
    pretrained = load_model.read_model(files.hub(SCORED))
    task = quiz.build_quiz(run, pretrained, LENGTH, 0)
    assert task is not None
    split = task.split
    slots = split.plan(1, [LENGTH])
    paths = {"litert-torch, float32": files.peer_files(SCORED, FLOAT)[0]}
    paths |= {peer: files.paths[f"{SCORED} {suffix}"] for suffix, peer in PEERS.items()}
    paths["bertzoo, int8-dynamic"] = files.paths[f"{SCORED} one int8-dynamic"]
    points = {}
    for title, path in paths.items():
        infer = file_runner(path)
        predictions = split.predict(slots, [infer(split.batch(slot, 1)) for slot in slots])
        points[title] = statistics.fmean(split.scores(predictions).values())
    float32, *peers, ours = points.values()
    rows = [
        {"file": title, "task": split.task.name, "examples": len(split.examples)}
        | {"points": round(value, 2), "lost": round(float32 - value, 2), "met": None}
        for title, value in points.items()
    ]
    rows[-1]["met"] = max(peers) - ours <= LOST
    return rows


def main() -> None:
    """Make missing files, measure missing rounds, and write the result."""
    parser = results.parser("int8_peers", __doc__, "runs/phone")
    parser.add_argument("--peer", required=True, metavar="PYTHON", help="a Python with the peers' packages")
    parser.add_argument("--models", default=",".join(MODELS), help="(default: %(default)s)")
    parser.add_argument("--scored", type=Path, metavar="RUN", help="a fine-tuning run whose files are scored, too")
    results.add_numbers(parser, rounds=12, each=5)
    args = parser.parse_args()
    write.check_packages()
    titles = {name: MODELS[name][0] for name in args.models.split(",")}
    if args.scored is not None:
        model = load_model.read_model(args.scored)
        titles[SCORED] = f"{model.model.kind}, {model.model.layers} layers, {model.parameter_count / 1e6:.1f} M"
    files = make_files(args.runs, args.peer, list(titles), args.scored)
    times = Times(measure(files, [], args.rounds, args.each))
    tables = {"peers": [row for name in titles for row in peer_rows(titles[name], name, times, files)]}
    if args.scored is not None:
        tables["scores"] = score_rows(args.scored, files)
    ours = results.packages("litert-converter", "ai-edge-litert", "litert-quantizer", "onnxruntime")
    results.write(args.out, [f"peers: {versions(args.peer, *PACKAGES)}", f"bertzoo: {ours}"], tables)
