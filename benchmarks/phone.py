"""The phone's files against those of litert-torch, Google's converter, of the same Hugging Face models and weights.

    python benchmarks/phone.py --peer=PYTHON --sst2=glue/SST-2 --vocab=vocab.txt --scored=RUN1,RUN2

PYTHON is one with litert-torch, torch and transformers, where phone_peer.py runs; bertzoo's own needs the extra litert.
All classifiers have random weights, read one row and use one thread, each in a process of its own; they take turns in
an order that changes from round to round, and every ratio is the median of the rounds' ratios. RUN1 and so on are runs
of `bertzoo finetune`, whose files of each precision are scored. Files and rounds are kept under --runs, and what is
there is not made again. The section in docs/results.md is then written anew, or with --models printed. Fails where a
target is missed. Nothing else should run beside it.
"""

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import machine
import phone_costs
import phone_page
import phone_scores
from pages import write_section
from phone_page import CORNERS, FIVE, LENGTH, MODELS, Found

from bertzoo.benchmarking import backends, interleave, models
from bertzoo.benchmarking.worker import LoadRequest
from bertzoo.data.tokenizers import tokenizer as tokenizers
from bertzoo.data.tokenizers.wordpiece import WordPiece
from bertzoo.export.graph import rewrites
from bertzoo.export.graph.from_model import build_graph
from bertzoo.export.graph.reference import training_graph
from bertzoo.export.litert import write
from bertzoo.export.options import Precision
from bertzoo.runs import any_model
from bertzoo.tasks.glue import GLUE

PARTS = 12  # of the sentences, one a round
VOCABULARY = 30522  # ids of a row


@dataclass
class Files:
    """The files of every model under a folder, each made where it is not there yet."""

    folder: Path
    peer: str
    names: list[str]
    paths: dict[str, Path] = field(default_factory=dict)  # by what is measured, as in "mobilebert peer"
    lengths: dict[str, list[int]] = field(default_factory=dict)

    def make(self) -> None:
        """All of them."""
        for name in self.names:
            self._of(name)
        for norm, activation in CORNERS if "mobilebert" in self.names else ():
            options = [("model.norm", norm), ("model.activation", activation)]
            if options != phone_page.RELEASED:
                self._file(f"corner {norm} {activation}", [LENGTH], "fp32", lambda given=options: corner(given))

    def _of(self, name: str) -> None:
        theirs = self.folder / name / "peer.tflite"
        self.paths[f"{name} peer"], self.lengths[f"{name} peer"] = theirs, [LENGTH]
        if not theirs.exists():
            print(f"{theirs}: litert-torch converts", flush=True)
            theirs.parent.mkdir(parents=True, exist_ok=True)
            script = Path(__file__).with_name("phone_peer.py")
            command = [self.peer, str(script), name, str(self.hub(name)), str(theirs)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{' '.join(command)} fails: {done.stderr[-2000:]}")
        every = (rewrites.optimised,)
        for kind, lengths in (("one", [LENGTH]), ("five", FIVE)):
            for precision in ("fp32", "int8-dynamic"):
                self._file(f"{name} {kind} {precision}", lengths, precision, lambda: self._graph(name, every))
        self._file(f"{name} one int8-static", [LENGTH], "int8-static", lambda: self._graph(name, every), name)

    def hub(self, name: str) -> Path:
        """The directory of a Hugging Face model."""
        return self.folder / name / "huggingface"

    def _graph(self, name: str, changes: Sequence[Callable]) -> Any:
        plain = training_graph(any_model.read_model(self.hub(name)))
        graph = build_graph(plain.model, plain.params, plain.pooling)
        for change in changes:
            graph = change(graph)
        return graph

    def _file(
        self, key: str, lengths: list[int], precision: Precision, graph: Callable[[], Any], calibrated: str = ""
    ) -> None:
        path = self.folder / f"{key.replace(' ', '_')}.tflite"
        self.paths[key], self.lengths[key] = path, lengths
        if not path.exists():
            print(f"{path}: bertzoo converts", flush=True)
            rows = (
                backends.calibration(any_model.read_model(self.hub(calibrated)), lengths, precision)
                if calibrated
                else None
            )
            made = backends.litert_file(graph(), path.with_suffix(".tmp"), lengths, precision, rows)
            made.path.rename(path)


def corner(options: list[tuple[str, str]]) -> Any:
    """MobileBERT's graph with another norm or activation."""
    made = models.read_model("mobilebert", options, ()).pretrained
    assert made is not None
    return rewrites.phone_graph(training_graph(made))


def sentences(folder: Path, vocabulary: Path) -> list[int]:
    """The shortest of the five lengths that holds each sentence of SST-2's development set, [CLS] and [SEP] with it."""
    tokenizer = tokenizers.build(WordPiece(path=str(vocabulary)), lambda: iter(()))
    texts = [example.text_a for example in GLUE["sst2"].read("dev", folder).examples]
    counts = [len(ids) + 2 for ids in tokenizer.encode_batch(texts)]
    return [next(length for length in FIVE if length >= count) for count in counts]


def measure(files: Files, read: Sequence[int], rounds: int, each: int) -> list[dict[str, Any]]:
    """Of every round the seconds of each file's runs at the one length, and of the sentences where they are read."""
    fixed = [key for key in files.paths if not key.endswith(("five fp32", "five int8-dynamic"))]
    spread = [f"{name} five fp32" for name in files.names] if read else []
    keys = [*fixed, *spread]
    sizes = {key: files.paths[key].stat().st_size for key in keys}
    settings = json.dumps([sizes, each, list(read)])
    kept = files.folder / f"rounds-{hashlib.sha256(settings.encode()).hexdigest()[:12]}.jsonl"
    done = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    if len(done) >= rounds:
        return done[:rounds]
    loads = [(key, LoadRequest("litert", str(files.paths[key]), 1, VOCABULARY)) for key in keys]
    with interleave.start_workers(loads) as workers, kept.open("a") as file:
        print(f"{len(workers)} files are loaded", flush=True)
        for index in range(len(done), rounds):
            row: dict[str, Any] = {"fixed": {}, "sentences": {}}
            for place in interleave.order(len(keys), index):
                key, worker = keys[place], workers[place]
                if key in spread:
                    part = list(read[index % PARTS :: PARTS])
                    first = sorted(set(part))  # not counted: a signature's first run makes it ready
                    row["sentences"][key] = worker.run([*first, *part])[len(first) :]
                else:
                    row["fixed"][key] = worker.run([LENGTH] * (1 + each))[1:]
            file.write(json.dumps(row) + "\n")
            file.flush()
            done.append(row)
            print(f"round {index + 1} of {rounds}", flush=True)
    return done


def difference(files: Files, name: str) -> float:
    """The largest difference of logits between the two files of a model, as a share of the largest of theirs."""
    keys = [f"{name} peer", f"{name} one fp32"]
    loads = [(key, LoadRequest("litert", str(files.paths[key]), 1, VOCABULARY)) for key in keys]
    with interleave.start_workers(loads) as workers:
        theirs, ours = (next(iter(worker.outputs(LENGTH).values())) for worker in workers)
    return max(abs(a - b) for a, b in zip(theirs, ours, strict=True)) / max(map(abs, theirs))


def versions(peer: str) -> Mapping[str, str]:
    """Of the packages of either side."""
    from importlib.metadata import version

    asked = "import importlib.metadata as m; print(*(m.version(p) for p in ('litert-torch', 'torch', 'transformers')))"
    said = subprocess.run([peer, "-c", asked], check=True, capture_output=True, text=True).stdout.split()
    theirs = dict(zip(("litert-torch", "torch", "transformers"), said, strict=True))
    return theirs | {name: version(name) for name in ("litert-converter", "ai-edge-litert", "litert-quantizer")}


def main() -> None:
    """Make what is not there, measure what is not measured, write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, metavar="PYTHON", help="one with litert-torch")
    parser.add_argument("--runs", type=Path, default=Path("runs/phone"), help="where files and rounds are kept")
    parser.add_argument("--models", default=",".join(MODELS), help="some of them; the page is printed then")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--each", type=int, default=5, help="runs of a file in a round")
    parser.add_argument("--sst2", type=Path, metavar="DIR", help="the folder of SST-2")
    parser.add_argument("--vocab", type=Path, metavar="TXT", help="BERT's vocabulary")
    parser.add_argument(
        "--scored", default="", metavar="RUNS", help="fine-tuned runs, in which quantised files are scored"
    )
    parser.add_argument(
        "--executorch", default="", metavar="PYTHON", help="one with ExecuTorch, to convert to it as well"
    )
    args = parser.parse_args()
    names = args.models.split(",")
    if unknown := [name for name in names if name not in MODELS]:
        sys.exit(f"--models={unknown[0]} is none of {', '.join(MODELS)}")
    if (args.sst2 is None) != (args.vocab is None):
        sys.exit("--sst2 and --vocab go together: give both, or measure no sentences")
    if names == list(MODELS) and not (args.sst2 and args.scored):
        sys.exit(
            "the page has targets of --sst2 with --vocab and of --scored: give them, or some --models to be printed"
        )
    write.check_packages()
    read = sentences(args.sst2, args.vocab) if args.sst2 else []
    files = Files(args.runs, args.peer, names)
    files.make()
    found = Found(
        names=names,
        rounds=measure(files, read, args.rounds, args.each),
        scores=[
            phone_scores.scores(Path(run), args.runs / "scored" / hashlib.sha256(run.encode()).hexdigest()[:12])
            for run in filter(None, args.scored.split(","))
        ],
        sizes={key: path.stat().st_size for key, path in files.paths.items()},
        costs=phone_costs.costs(files.hub("mobilebert"), args.runs / "costs.json", args.executorch)
        if "mobilebert" in names
        else {},
        differences={name: difference(files, name) for name in names},
        read=read,
        each=args.each,
        versions=versions(args.peer),
        processor=machine.processor(),
    )
    section, missed = phone_page.page(found)
    if names == list(MODELS):
        write_section(Path(__file__).name, section)
    else:
        print(section)
    if missed:
        sys.exit("missed: " + "; ".join(missed))
    print("all targets are met")


if __name__ == "__main__":
    main()
