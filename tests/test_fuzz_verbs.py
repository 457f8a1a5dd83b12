"""Commands, and the readers of texts and tables, on damaged files and command lines."""

import functools
import gzip
import importlib.util
import itertools
import lzma
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import planted
import pytest
import quiz
import tiny
import tomli_w
import zstandard
from hostile import attack, damaged, fuzz, survive, survive_command
from in_jax import Export

from bertzoo.cli import main as cli
from bertzoo.core import config
from bertzoo.data.corpus.reader import Corpus
from bertzoo.data.sources import pieces
from bertzoo.runs import report
from bertzoo.tasks import readers, squad

pytestmark = pytest.mark.slow
LITERT = importlib.util.find_spec("litert_converter") is not None
INDEX = ["index.json", "vectors.raw", "bits.raw", "texts.jsonl"]
SENTENCES = ["modules.json", "1_Pooling/config.json", "config_sentence_transformers.json", "sentence_bert_config.json"]


@pytest.fixture(scope="module")
def place(finished_run: Path, tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with a file of every kind that users bring."""
    folder = tmp_path_factory.mktemp("place")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        shutil.copytree(finished_run, "run")
        shutil.copytree(tiny_corpus, "corpus")
        planted.fill(folder)
        planted.fill_pairs(Path("RTE"), "RTE", np.random.default_rng(2))
        Path("quiz").mkdir()
        quiz.fill(Path("quiz"))
        tiny.write_config(folder, "corpus")
        text = tiny.write_text(Path("text.txt"), 20).read_bytes()
        lines = b"".join(b'{"text": "%s"}\n' % line for line in text.split(b"\n") if line)
        for suffix, pack in (("gz", gzip.compress), ("xz", lzma.compress), ("zst", zstandard.compress)):
            Path(f"text.txt.{suffix}").write_bytes(pack(text))
        Path("text.jsonl").write_bytes(lines)
        Path("sweep.toml").write_text('[sweep]\nbase = "finetune"\ntasks = ["cola"]\n[grid]\nseed = [1, 2]\n')
        stage = {"verb": "tokenize", "source": "{text}", "config": "demo"}
        Path("recipe.toml").write_text(tomli_w.dumps({"inputs": {"text": "text.txt"}, "stages": {"corpus": stage}}))
        assert cli.main(["convert", "model", "hub", "--to=huggingface"]) == 0
        assert cli.main(["finetune", "finetune", *planted.OPTIONS[:3], "--seeds=1", "--epochs=1", "--data_dir=.",
                         "--from=model", "--run_dir=tuned", "--max_length=24"]) == 0  # fmt: skip
        Path("pairs.csv").write_text("text,partner\n" + "bara doti,kera luso\n" * 8)
        files = ("--own.train=pairs.csv", "--own.dev=pairs.csv", "--own.text_b=partner", "--data_dir=.")
        sizes = ("--max_length=8", "--batch_size=8", "--buckets=1")
        assert cli.main(["finetune", "embedding", *files, *sizes, "--from=model", "--run_dir=vectors"]) == 0
        assert cli.main(["convert", "vectors", "sentences", "--to=huggingface"]) == 0
        assert cli.main(["search", "index", "vectors", "--input=text.txt", "--index=index", "--precision=binary"]) == 0
        if not LITERT:
            Export(folder).stand_in(patch)
        assert cli.main(["convert", "tuned", "file.tflite", "--to=litert", "--lengths=16"]) == 0
        yield folder


def load_text(file: Path) -> None:
    for origin in pieces.origins(str(file), "text"):
        for document in origin.documents():
            assert "\0" not in document


def load_table(file: Path) -> None:
    table = readers.read_table(file)
    for _, cells, _ in table.select(table.columns):
        assert cells is None or len(cells) == len(table.columns)


TEXTS = ["text.txt", *(f"text.txt.{kind}" for kind in ("gz", "xz", "zst")), "text.jsonl"]
READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    **{f"text ({name})": (name, load_text) for name in TEXTS},
    **{f"table ({name})": (name, load_table) for name in ("train.csv", "RTE/dev.tsv", "quiz/own.jsonl")},
    "table (SQuAD)": ("quiz/dev-v2.0.json", squad.read_questions),
    **{
        f"report ({name})": (f"run/{name}", lambda _: report.page(report.read_run("run")))
        for name in ("run.json", "metrics.jsonl", "config.toml")
    },
}


@pytest.mark.parametrize("name", READERS)
def test_readers(place: Path, name: str) -> None:
    file, read = READERS[name]
    attack(name, Path(file), lambda path: survive(lambda: read(path)))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tuned/results.json", "results tuned"),
        ("tuned/run.json", "results tuned"),
        ("tuned/config.toml", "results tuned"),
        ("sweep.toml", "sweep sweep.toml --data_dir=. --from=model --run_dir=new --list"),
        ("recipe.toml", "pipeline recipe.toml --run_dir=new --list"),
        ("run/config.toml", "checkpoints run"),
        ("run/checkpoints/10/training/_METADATA", "checkpoints run"),
        ("run/checkpoints/10/params/_sharding", "checkpoints run --verify"),
        ("model/model.toml", "convert model NEW --to=huggingface"),
        ("model/parameters.safetensors", "convert model NEW --to=huggingface"),
        ("model/tokenizer/vocab.txt", "convert model NEW --to=huggingface"),
        ("hub/config.json", "convert hub NEW --to=bertzoo"),
        ("hub/model.safetensors", "convert hub NEW --to=bertzoo"),
        ("hub/tokenizer.json", "convert hub NEW --to=bertzoo"),
        ("hub/tokenizer_config.json", "convert hub NEW --to=bertzoo"),
        *((f"index/{file}", "search query vectors bara --index=index") for file in INDEX),
        *((f"sentences/{file}", "embed sentences bara") for file in SENTENCES),
        ("file.tflite.json", "phone pack file.tflite NEW"),
        ("file.tflite.json", "predict file.tflite bara"),
        ("file.tflite.files/golden.json", "phone pack file.tflite NEW"),
        ("file.tflite.files/exam.json", "phone pack file.tflite NEW"),
        ("file.tflite.files/tokenizer.json", "predict file.tflite bara"),
    ],
)
def test_commands(place: Path, name: str, words: str) -> None:
    if name.startswith("file") and words.startswith("phone") and not LITERT:
        pytest.skip("the stand-in of LiteRT writes no signatures")
    new, numbers = place / "new", itertools.count()

    def run(file: Path) -> None:
        shutil.rmtree(new, ignore_errors=True)
        survive_command(*(f"new/{next(numbers)}" if word == "NEW" else word for word in shlex.split(words)))

    attack(f"{words.split()[0]} ({name})", Path(name), run)


@pytest.mark.parametrize(
    "name", ["10.sha256.json", "10/params/_METADATA", "10/params/ocdbt.process_0/d/*", "10/params/manifest.ocdbt"]
)
def test_checkpoints_that_are_accepted_are_the_same(place: Path, name: str) -> None:
    assert cli.main(["convert", "run/checkpoints/10", "same", "--to=bertzoo"]) == 0
    expected = Path("same/parameters.safetensors").read_bytes()

    def run(file: Path) -> None:
        shutil.rmtree("new", ignore_errors=True)
        if survive_command("convert", "run/checkpoints/10", "new", "--to=bertzoo"):
            assert Path("new/parameters.safetensors").read_bytes() == expected

    try:
        attack(f"convert (checkpoints/{name})", next(Path("run/checkpoints").glob(name)), run)
    finally:
        shutil.rmtree("same")


@pytest.mark.parametrize(
    "name", ["manifest.json", "train.sentences.npy", "train-00000.array_record", "tokenizer/vocab.txt"]
)
def test_corpora_that_are_accepted_are_the_same(place: Path, name: str) -> None:
    def tokens() -> bytes:
        corpus = Corpus.open(Path("corpus"))
        corpus.verify()
        return b"".join(block.tobytes() for block in corpus.stream("train"))

    expected = tokens()

    def run(_: Path) -> None:
        loaded: list[bytes] = []
        if survive(lambda: loaded.append(tokens())):
            assert loaded == [expected]

    attack(f"corpus ({name})", Path("corpus", name), run)


COMMANDS = [
    "config demo --model.layers=3 --optimizer.learning_rate=1e-3 --stages.0.steps=7",
    "pretrain tiny.toml --run_dir=new --data.heldout=0.1 --mesh.fsdp=2 --from=model",
    "convert model new --to=huggingface --head=masked --lengths=8,16 --precision=fp32",
    "predict tuned bara --text_a=text --batch_size=8 --max_length=24",
    "results tuned --json",
    "models squeezebert --model.layers=6",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_command_lines(place: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A verb that would compute only loads the config that its words name."""
    name = command.split()[0]
    verb = importlib.import_module(f"bertzoo.cli.{name}")
    if name not in ("config", "results"):
        main = functools.wraps(verb.main)(lambda options: load_config(verb, options))
        monkeypatch.setattr(verb, "main", main)

    def run(damage: list) -> None:
        options = command.removeprefix(name).encode()
        survive_command(name, *damaged(options, damage).decode("utf-8", "surrogateescape").split(" "))

    fuzz(f"command line ({name})", run)


def load_config(verb: ModuleType, options: Any) -> int:
    if hasattr(verb, "config") and (files := getattr(options, "config", None)):
        config.load(verb.config(), files, options.overrides)
    return 0
