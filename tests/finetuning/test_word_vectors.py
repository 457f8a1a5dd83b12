"""Word vectors of new models: equal to numpy's from the states of a model, and runs that begin with them."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from embedding_runs import NEW_MODEL, finetune
from messages import mentioning, mentions

import bertzoo
from bertzoo.cli import main as cli
from bertzoo.core.errors import UserError
from bertzoo.finetuning.embedding import EmbeddingTask
from bertzoo.finetuning.evaluate import evaluate_split, load_task_model
from bertzoo.finetuning.settings import Finetune
from bertzoo.finetuning.warm_start import WORDS, load_starting_model
from bertzoo.heads import KINDS, SentenceEmbedding
from bertzoo.models import Electra, Static
from bertzoo.runs import load_model
from bertzoo.tasks.custom import CustomFiles

SCRIPT = Path(__file__).parents[2] / "launch" / "word_table.py"


@pytest.fixture(scope="module")
def table(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("words") / "table"
    words = [sys.executable, SCRIPT, place / "run", out, "--size", "6"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{out}: ") and done.stdout.endswith("of 6 numbers\n")
    return out


def vectors(place: Path) -> tuple[np.ndarray, np.ndarray]:
    """The weighted principal components of the vectors of the tokens, and the ids of those that have one."""
    model = load_model.read_model(place / "run")
    tokens, specials = model.tokenizer, model.tokenizer.specials
    ids = [i for i in range(tokens.vocab_size) if i not in (specials.cls, specials.sep, specials.mask)]
    module, params = model.module()
    rows = np.array([[specials.cls, i, specials.sep] for i in ids])
    states = module.apply({"params": params}, rows, 0 * rows, 0 * rows + 1).hidden_states[-1]
    means = np.asarray(states, np.float64).mean(1)
    means -= means.mean(0)
    components = means @ np.linalg.svd(means)[2][:6].T
    frequency = 1 / np.arange(2, 2 + len(ids))
    return components * (1e-4 / (1e-4 + frequency / frequency.sum()))[:, None], np.array(ids)


def test_a_table_of_words_equals_numpys(place: Path, table: Path):
    model = load_model.read_model(table)
    wanted, ids = vectors(place)
    words, specials = model.params[WORDS], model.tokenizer.specials
    assert model.model.kind == "static" and len(words) == model.tokenizer.vocab_size
    assert not words[list(vars(specials).values())].any()
    some = np.isin(ids, [specials.pad, specials.unk], invert=True)
    # A principal component's sign is arbitrary, and the length of the whole table is free.
    found, wanted = (x @ x.T / np.abs(x @ x.T).max() for x in (words[ids[some]].astype(np.float64), wanted[some]))
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_text_is_the_sum_of_its_words_in_any_order(table: Path):
    model = load_model.read_model(table)
    one, other, words = bertzoo.embed(table, ["bara doti kelu", "kelu bara doti", "doti"])
    np.testing.assert_allclose(one, other, atol=1e-6)
    for text, vector in (("bara doti kelu", one), ("doti", words)):
        total = model.params[WORDS][model.tokenizer.encode_batch([text])[0]].sum(0)
        np.testing.assert_allclose(vector, total / np.linalg.norm(total), atol=1e-5)


@pytest.mark.slow  # test_embedding.py trains such models for a few steps
def test_a_new_model_begins_with_the_words_of_another(place: Path, tmp_path):
    teacher, options = f"--teacher={place / 'run'}", ("--alpha=0", "--embedding.projection=16", "--epochs=30")
    run = tmp_path / "run"
    assert finetune(place, run, f"--from={place / 'run'}", teacher, "--own.text_b=", *options, *NEW_MODEL) == 0
    results = json.loads((run / "results.json").read_text())
    history = [entry["score"] for entry in results["seeds"][0]["history"]]
    assert history[-1] > history[0] + 5, history
    made = load_model.read_model(run)
    assert isinstance(made.model, Electra) and made.head == SentenceEmbedding(projection=16)
    assert made.model.vocab_size == made.tokenizer.vocab_size
    assert json.loads((run / "run.json").read_text())["from"]["path"] == str(place / "run")


def test_a_table_has_one_dropout_rate(place: Path, table: Path):
    recipe = Finetune(head="embedding", task="own", encoder_dropout=0.25, max_length=12)
    start = load_starting_model(str(table), recipe, EmbeddingTask(recipe, CustomFiles(kind="texts")))
    assert isinstance(start.model, Static) and start.model.dropout == 0.25


def test_a_new_model_suits_every_head_for_vectors(monkeypatch):
    monkeypatch.setitem(KINDS, "other", SentenceEmbedding)
    assert Finetune(head="other", model=Static()).embeds


@pytest.mark.parametrize(
    ("source", "more", "words"),
    [
        ("run", ["--size=17"], ("--size=17", 16, "run")),
        ("run", ["--size=0"], ("--size=0", 16)),
        ("model", [], ("gives texts no vectors",)),
    ],
)
def test_a_table_that_cannot_be_written_is_one_error(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch,
    source: str, more: list[str], words: tuple[object, ...],
) -> None:  # fmt: skip
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), str(place / source), str(tmp_path / "out"), *more])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert mentions(capsys.readouterr().err.splitlines()[-1], *words) and not (tmp_path / "out").exists()


def test_a_table_has_no_attention(table: Path, tmp_path, capsys):
    for more in ([], ["--layers=1"]):
        words = ["inspect", "attention", str(table), f"--out={tmp_path / 'a.png'}", "--text=bara doti", *more]
        assert cli.main(words) == 2
        assert mentions(capsys.readouterr().err, f"{table} has no layers")


def test_vectors_have_no_answers_to_write(place: Path, tmp_path):
    for task in ("", "sts", "clustering"):
        with pytest.raises(UserError, match=mentioning("output =", "answers")):
            evaluate_split(load_task_model(place / "run"), task=task, input="rows.csv", output=tmp_path)
