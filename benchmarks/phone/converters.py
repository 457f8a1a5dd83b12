"""Our LiteRT files against those of litert-torch, Google's converter, of the same Hugging Face models and weights.

    python -m benchmarks phone.converters --peer=PYTHON --sst2=glue/SST-2 --vocab=vocab.txt --scored=RUN1,RUN2

PYTHON has litert-torch, torch and transformers, and runs convert_peer.py; bertzoo needs the extra litert. Classifiers
have random weights, read one row and use one thread, each in a process of its own; they take turns in an order that
changes from round to round, and a ratio is the median of the rounds' ratios with their quartiles. RUN1, RUN2 are runs
of `bertzoo finetune` whose files of each precision are scored. Files and rounds are kept under --runs and made once.
Fails if a target is missed. Nothing else should run at the same time.
"""

import argparse
import hashlib
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.learning import paper_tables
from benchmarks.lib import results
from benchmarks.phone import task_scores
from bertzoo.benchmarking import benchmark, interleave
from bertzoo.benchmarking.worker import LoadRequest
from bertzoo.core import atomic
from bertzoo.data.tokenizers import tokenizer as tokenizers
from bertzoo.data.tokenizers.wordpiece import WordPiece
from bertzoo.export.check import verify
from bertzoo.export.companions import companions
from bertzoo.export.graph.from_model import build_graph, scale_branches
from bertzoo.export.graph.reference import training_graph
from bertzoo.export.litert import write
from bertzoo.export.options import Precision
from bertzoo.runs import load_model
from bertzoo.tasks.glue import GLUE

LENGTH, FIVE = 128, [32, 64, 128, 256, 384]  # tokens of the one signature, and of five
PARTS = 12  # a round reads one of so many parts of the sentences
VOCABULARY = 30522
# By config: its name, the share of the peer's time that it may take, and the share that is aimed at.
MODELS = {
    "bert_base": ("BERT-base", 0.95, None),
    "squeezebert": ("SqueezeBERT", 0.90, 0.82),
    "mobilebert": ("MobileBERT", 0.97, None),
    "convbert_base": ("ConvBERT-base", 0.95, 0.90),
}
# Targets: int8 size with one signature and with five, size of five signatures, sentences' time, difference of logits.
SIZE_ONE, SIZE_FIVE, SIGNATURES, SENTENCES, SAME = 0.28, 0.30, 1.05, 0.45, 1e-4
RELEASED = ("no_norm", "relu")  # MobileBERT's norm and activation
CORNERS = {
    ("layer_norm", "gelu_tanh"): "LayerNorm & gelu",
    ("layer_norm", "relu"): "LayerNorm & relu",
    ("no_norm", "gelu_tanh"): "NoNorm & gelu",
    RELEASED: "NoNorm & relu",
}
# Conversions by the name in the table, and what they may take.
CONVERSIONS = {
    "LiteRT, five lengths": (".tflite", ["--to=litert", "--lengths=32,64,128,256,384"]),
    "LiteRT, int8-dynamic": (".tflite", ["--to=litert", "--precision=int8-dynamic"]),
    "ONNX": (".onnx", ["--to=onnx"]),
}
MINUTES, GIGABYTES = 3, 6
# Prints the peak memory of a process and its children. Linux starts a child's peak at the memory of its parent, so that
# a small process has to start it.
STARTER = """
import resource, subprocess, sys
code = subprocess.run([sys.executable, *sys.argv[1:]], stdout=subprocess.DEVNULL).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""


@dataclass
class Files:
    """The files of every model under a folder, made if missing."""

    folder: Path
    peer: str
    names: list[str]
    paths: dict[str, Path] = field(default_factory=dict)  # by what is measured, such as "mobilebert peer"

    def make(self) -> None:
        """Write every file that is not there yet."""
        for name in self.names:
            self._make_model(name)
        for norm, activation in CORNERS if "mobilebert" in self.names else ():
            if (norm, activation) != RELEASED:
                options = [("model.norm", norm), ("model.activation", activation)]
                self.make_file(f"corner {norm} {activation}", [LENGTH], "fp32", partial(corner, options))

    def _make_model(self, name: str) -> None:
        self.paths[f"{name} peer"] = self.peer_files(name, "tflite")[0]
        read = partial(load_model.read_model, self.hub(name))
        for kind, lengths in (("one", [LENGTH]), ("five", FIVE)):
            for precision in ("fp32", "int8-dynamic"):
                self.make_file(f"{name} {kind} {precision}", lengths, precision, read)
        self.make_file(f"{name} one int8-static", [LENGTH], "int8-static", read)

    def peer_files(self, name: str, *suffixes: str) -> list[Path]:
        """Other converters' files of a model, written if missing; a name in MODELS has random weights."""
        files = [self.folder / name / f"peer.{suffix}" for suffix in suffixes]
        missing = [str(file) for file in files if not file.exists()]
        if missing:
            print(f"{', '.join(missing)}: convert_peer.py converts", flush=True)
            files[0].parent.mkdir(parents=True, exist_ok=True)
            script = str(Path(__file__).with_name("convert_peer.py"))
            weights = [f"--random={name}"] if name in MODELS else []
            command = [self.peer, script, str(self.hub(name)), *missing, *weights]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{' '.join(command)} fails: {done.stderr[-2000:]}")
        return files

    def hub(self, name: str) -> Path:
        """The directory of a Hugging Face model."""
        return self.folder / name / "huggingface"

    def make_file(self, key: str, lengths: list[int], precision: Precision, read: Callable[[], Any]) -> None:
        """Write our file of the model that `read` returns, if it is missing; `key` is its name in `paths`."""
        path = self.folder / f"{key.replace(' ', '_')}.tflite"
        self.paths[key] = path
        if not path.exists():
            print(f"{path}: bertzoo converts", flush=True)
            model, rows = read(), {}
            graph = build_graph(*model.module())
            if precision == "int8-static":
                training = training_graph(model)
                rows = {write.signature(length): verify.sample_rows(training, None, length) for length in lengths}
                graph = scale_branches(graph, itertools.chain.from_iterable(rows.values()))
            atomic.write_bytes(path, write.quantised(write.convert(graph, lengths), precision, rows))


def corner(options: list[tuple[str, str]]) -> Any:
    """MobileBERT with another norm or activation."""
    return benchmark.read_model("mobilebert", options).pretrained


def sentence_lengths(folder: Path, vocabulary: Path) -> list[int]:
    """For each sentence of SST-2's development set the shortest of the five lengths that holds it."""
    tokenizer = tokenizers.build(WordPiece(path=str(vocabulary)), lambda: iter(()))
    texts = [example.text_a for example in GLUE["sst2"].read("dev", folder).examples]
    counts = [len(ids) + 2 for ids in tokenizer.encode_batch(texts)]  # [CLS] and [SEP]
    return [next(length for length in FIVE if length >= count) for count in counts]


def measure(files: Files, read: Sequence[int], rounds: int, runs: int) -> list[dict[str, Any]]:
    """By round the seconds of each file's runs at the one length ("fixed"), and of the sentences ("sentences")."""
    fixed = [key for key in files.paths if not key.endswith(("five fp32", "five int8-dynamic"))]
    spread = [f"{name} five fp32" for name in files.names] if read else []
    keys = [*fixed, *spread]
    settings = json.dumps([{key: files.paths[key].stat().st_size for key in keys}, runs, list(read)])
    file = files.folder / f"rounds-{hashlib.sha256(settings.encode()).hexdigest()[:12]}.jsonl"
    done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    if len(done) >= rounds:
        return done[:rounds]
    loads = [(key, load_request(files.paths[key])) for key in keys]
    with interleave.start_workers(loads) as workers, file.open("a") as stream:
        for index in range(len(done), rounds):
            row: dict[str, Any] = {"fixed": {}, "sentences": {}}
            for place in interleave.order(len(keys), index):
                key, worker = keys[place], workers[place]
                if key in spread:
                    part = list(read[index % PARTS :: PARTS])
                    first = sorted(set(part))  # not counted: the first run of a signature prepares it
                    row["sentences"][key] = worker.run([*first, *part])[len(first) :]
                else:
                    row["fixed"][key] = worker.run([LENGTH] * (1 + runs))[1:]
            stream.write(json.dumps(row) + "\n")
            stream.flush()
            done.append(row)
            print(f"round {index + 1} of {rounds}", flush=True)
    return done


def load_request(file: Path) -> LoadRequest:
    """A request to load a file in the runtime of its suffix, on one thread."""
    return LoadRequest(benchmark.BACKENDS[file.suffix], str(file), 1, VOCABULARY)


def logit_difference(files: Files, name: str) -> float:
    """The largest difference of logits between the files of a model, as a share of the largest of the peer's."""
    paths = [files.paths[f"{name} {side}"] for side in ("peer", "one fp32")]
    with interleave.start_workers([(str(path), load_request(path)) for path in paths]) as workers:
        theirs, ours = (next(iter(worker.outputs(LENGTH).values())) for worker in workers)
    return max(abs(a - b) for a, b in zip(theirs, ours, strict=True)) / max(map(abs, theirs))


def quartiles(ratios: Sequence[float]) -> dict[str, float]:
    """The median and the quartiles, rounded."""
    ordered, quarter = sorted(ratios), len(ratios) // 4
    figures = {"median": statistics.median(ordered), "first": ordered[quarter], "third": ordered[-1 - quarter]}
    return {name: round(ratio, 3) for name, ratio in figures.items()}


@dataclass
class Times:
    """The rounds of `measure`."""

    rounds: Sequence[Mapping[str, Any]]

    def ratio(self, ours: str, theirs: str) -> dict[str, float]:
        """The median and the quartiles of the rounds' ratios of medians."""
        median = statistics.median
        return quartiles([median(row["fixed"][ours]) / median(row["fixed"][theirs]) for row in self.rounds])

    def milliseconds(self, key: str) -> float:
        """The median of all runs."""
        return round(1e3 * statistics.median(second for row in self.rounds for second in row["fixed"][key]), 1)


def peer_row(name: str, times: Times, difference: float) -> dict[str, Any]:
    """A model's file beside litert-torch's."""
    title, limit, aim = MODELS[name]
    ours, theirs = f"{name} one fp32", f"{name} peer"
    row = {"model": title, "litert-torch, ms": times.milliseconds(theirs), "ours, ms": times.milliseconds(ours)}
    row |= {"ratio": times.ratio(ours, theirs), "at most": limit, "aim": aim}
    met = row["ratio"]["median"] <= limit and difference <= SAME
    return row | {"met": met, "logits differ by": float(f"{difference:.1e}")}


def quantised_row(name: str, times: Times, sizes: Mapping[str, int]) -> dict[str, Any]:
    """A model's int8 files beside float32."""
    kinds = [f"{name} {kind} {precision}" for kind in ("one", "five") for precision in ("fp32", "int8-dynamic")]
    one, one_int8, five, five_int8 = (sizes[key] for key in kinds)
    dynamic, static = (times.ratio(f"{name} one int8-{kind}", f"{name} one fp32") for kind in ("dynamic", "static"))
    small = one_int8 / one <= SIZE_ONE and five / one <= SIGNATURES and five_int8 / five <= SIZE_FIVE
    return {
        "model": MODELS[name][0],
        "float32, MB": round(one / 1e6, 1),
        "int8, MB": round(one_int8 / 1e6, 1),
        "size, int8 of float32": round(one_int8 / one, 3),
        "five lengths of one": round(five / one, 3),
        "five lengths, int8 of float32": round(five_int8 / five, 3),
        "time, int8-dynamic of float32": dynamic,
        "time, int8-static of float32": static,
        "met": small and dynamic["median"] <= 1,
    }


def sentences_row(name: str, times: Times) -> dict[str, Any]:
    """Sentences at the shortest length that holds each, beside one length for all."""
    key, one, rounds = f"{name} five fp32", f"{name} one fp32", times.rounds
    pairs = [(statistics.fmean(row["sentences"][key]), statistics.median(row["fixed"][one])) for row in rounds]
    ratio = quartiles([mean / median for mean, median in pairs])
    mean = 1e3 * statistics.fmean(second for row in rounds for second in row["sentences"][key])
    row = {"model": MODELS[name][0], "mean of sentences, ms": round(mean, 1), "at 128, ms": times.milliseconds(one)}
    return row | {"ratio": ratio, "at most": SENTENCES, "met": ratio["median"] <= SENTENCES}


def paper_rows(times: Times) -> Iterator[dict[str, Any]]:
    """MobileBERT's corners and SqueezeBERT as shares of BERT-base's time, beside the papers' tables."""

    def row(title: str, key: str, share: float, device: str) -> dict[str, Any]:
        figures = {"ms": times.milliseconds(key), "of our BERT-base": times.ratio(key, "bert_base one fp32")}
        return {"model": title} | figures | {"the paper's": round(share, 2), "device": device}

    lines = paper_tables.paper_rows("MobileBERT", ["7"])
    printed = {line.variant: float(line.values["latency_ms"].value) for line in lines}
    bert = _latency("MobileBERT", "4", "BERT-base")
    for options, title in CORNERS.items():
        key = "mobilebert one fp32" if options == RELEASED else f"corner {' '.join(options)}"
        yield row(f"MobileBERT, {title}", key, printed[title] / bert, "Pixel 4, 4 threads, TFLite")
    bert = _latency("SqueezeBERT", "2", "BERT-base")
    for name in ("mobilebert", "squeezebert"):
        share = _latency("SqueezeBERT", "2", MODELS[name][0]) / bert
        yield row(MODELS[name][0], f"{name} one fp32", share, "Pixel 3, PyTorch, SqueezeBERT's Table 2")


def _latency(paper: str, table: str, model: str) -> float:
    """The first that the table prints of a model."""
    rows = [row for row in paper_tables.paper_rows(paper, [table]) if row.model == model and "latency_ms" in row.values]
    return float(rows[0].values["latency_ms"].value)


def conversion_rows(source: Path, file: Path, executorch: str) -> list[dict[str, Any]]:
    """Seconds and peak gigabytes of converting a model, check included, by format; `file` keeps what was measured."""
    formats = dict(CONVERSIONS)
    if executorch:
        formats["ExecuTorch"] = (".pte", ["--to=executorch", "--lengths=128", f"--python={executorch}"])
    costs: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.exists() else {}
    for name, (suffix, options) in formats.items():
        if name not in costs:
            converted = file.with_name(f"converted{suffix}")
            for old in (converted, converted.with_name(companions(converted)[0])):
                old.unlink(missing_ok=True)
            print(f"{name}: measuring a conversion", flush=True)
            words, start = ["convert", str(source), str(converted), *options], time.perf_counter()
            command = [sys.executable, "-c", STARTER, "-m", "bertzoo", *words]
            process = subprocess.run(command, stdout=subprocess.PIPE, text=True)
            if process.returncode:
                sys.exit(f"bertzoo {' '.join(words)} fails")
            seconds, gigabytes = time.perf_counter() - start, int(process.stdout) * 1024 / 1e9
            met = seconds <= 60 * MINUTES and gigabytes <= GIGABYTES
            cells = {"seconds": round(seconds), "peak memory, GB": round(gigabytes, 1), "met": met}
            costs[name] = {"format": name} | cells
            file.write_text(json.dumps(costs, indent=1))
    return [costs[name] for name in formats]


def versions(python: str, *names: str) -> str:
    """Names and versions of packages that another Python has."""
    program = f"from importlib.metadata import version as v; print(', '.join(f'{{p}} {{v(p)}}' for p in {names}))"
    return subprocess.run([python, "-c", program], check=True, capture_output=True, text=True).stdout.strip()


def arguments() -> argparse.Namespace:
    parser = results.parser("converters", __doc__, "runs/phone")
    parser.add_argument("--peer", required=True, metavar="PYTHON", help="a Python with litert-torch")
    parser.add_argument("--models", default=",".join(MODELS), help="(default: %(default)s)")
    results.add_numbers(parser, rounds=12, each=5)
    parser.add_argument("--sst2", type=Path, metavar="DIR", help="the folder of SST-2")
    parser.add_argument("--vocab", type=Path, metavar="TXT", help="BERT's vocabulary, for --sst2")
    parser.add_argument("--scored", default="", metavar="RUNS", help="fine-tuned runs whose files are scored")
    parser.add_argument("--executorch", default="", metavar="PYTHON", help="one with ExecuTorch: convert to it too")
    args = parser.parse_args()
    args.models = results.names(parser, "models", args.models, MODELS)
    if (args.sst2 is None) != (args.vocab is None):
        parser.error("--sst2 and --vocab go together: give both or neither")
    return args


def main() -> None:
    """Make missing files, measure missing rounds, and write the result."""
    args = arguments()
    write.check_packages()
    read = sentence_lengths(args.sst2, args.vocab) if args.sst2 else []
    files = Files(args.runs, args.peer, args.models)
    files.make()
    times = Times(measure(files, read, args.rounds, args.each))
    sizes = {key: path.stat().st_size for key, path in files.paths.items()}
    tables: dict[str, Any] = {
        "peer": [peer_row(name, times, logit_difference(files, name)) for name in args.models],
        "quantised": [quantised_row(name, times, sizes) for name in args.models],
    }
    if read:
        tables["lengths"] = [{"length": length, "sentences": count} for length, count in sorted(Counter(read).items())]
        tables["sentences"] = [sentences_row(name, times) for name in args.models]
    if args.scored:
        tables["scores"] = [task_scores.score_row(Path(run), args.runs / "scored") for run in args.scored.split(",")]
    if "mobilebert" in args.models:
        hub, file = files.hub("mobilebert"), args.runs / "costs.json"
        tables["conversions"] = conversion_rows(hub, file, args.executorch)
    if {"bert_base", "mobilebert", "squeezebert"} <= set(args.models):
        tables["papers"] = list(paper_rows(times))
    theirs = versions(args.peer, "litert-torch", "torch", "transformers")
    ours = results.packages("litert-converter", "ai-edge-litert", "litert-quantizer")
    results.write(args.out, [f"{theirs}, {ours}"], tables)
