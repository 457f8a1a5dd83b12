"""Runs that start from another model: copied parameters, log lines and errors."""

import functools
import re
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import chex
import jax
import numpy as np
import pytest
import tiny
import tiny_bert
import tomli_w
from flax import linen as nn
from messages import mentioning, mentions
from safetensors.numpy import load_file, save_file
from test_pretrain import error
from tiny import facts

import bertzoo
from bertzoo.cli.main import main
from bertzoo.core import config
from bertzoo.core.errors import ConfigError
from bertzoo.runs import load_model, warm_start
from bertzoo.runs.configs import Pretrain
from bertzoo.runs.experiments import RunBatches
from bertzoo.runs.load_model import load_run
from bertzoo.runs.pretrain import load_recipe
from bertzoo.train import optim, sharding, state

pytestmark = pytest.mark.usefixtures("one_device")

# The model of tiny_bert, which is no run's: the rows of [model] are written from its config.json by hand.
MODEL = {
    "kind": "bert", "vocab_size": 24, "hidden_size": 24, "layers": 1, "heads": 3, "feed_forward_size": 20,
    "max_positions": 12,
}  # fmt: skip
CONFIG = {
    "optimizer": {"kind": "lamb", "learning_rate": 0.01, "schedule": {"warmup_share": 0.5}},
    "stages": [{"steps": 2, "batch_size": 8, "max_length": 12, "max_predictions": 2}],
    "run": {"log_every": 1, "evaluate_every": 1, "evaluate_rows": 8, "save_every": 1},
}
DATA = {"heldout": 0.2, "sentences": "lines", "minimum_tokens": 1, "tokenizer": {"vocab_size": 24}}
# Whole words of tiny.py's text are spelt out of its letters.
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *"aeioulm", *(f"##{letter}" for letter in "aeioulmnrst")]
# The first learning rate of a warm-up is 0: the first checkpoint holds what the run started with.
NSP = ["--objective.sentence=nsp"]
RTD = ["--objective.kind=replaced", "--objective.generator_width=0.5", "--data.packing.kind=electra"]


def flat(params) -> dict[str, np.ndarray]:
    return {name: np.asarray(leaf) for name, leaf in state.named(params).items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A text, its corpus, a config, and a BERT for language modelling with a sentence head, as Hugging Face has it."""
    made = tmp_path_factory.mktemp("from")
    (made / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    source, corpus = tiny.write_text(made / "text.txt"), made / "corpus"
    source.write_text(re.sub(r"\b[nrst]", "l", source.read_text()))  # the vocabulary has no word that begins so
    (made / "bert.toml").write_text(tomli_w.dumps(CONFIG | {"model": MODEL, "data": DATA | {"source": str(corpus)}}))
    options = [f"--config={made / 'bert.toml'}", f"--data.tokenizer.path={made / 'vocab.txt'}", "--workers=1"]
    assert main(["tokenize", str(source), str(corpus), *options]) == 0
    random = np.random.default_rng(1)
    extra = {"bert.pooler.dense.weight": (24, 24), "bert.pooler.dense.bias": (24,)}
    extra |= {"cls.seq_relationship.weight": (2, 24), "cls.seq_relationship.bias": (2,)}
    # Large enough to tell a parameter from a fresh one, small enough for losses that mean something.
    weights = {name: np.float32(0.1) * array for name, array in tiny_bert.tensors().items()}
    weights |= {name: random.normal(size=shape).astype(np.float32) for name, shape in extra.items()}
    write(made / "hf", weights, architectures=["BertForPreTraining"])
    return made


def write(directory: Path, *args, **changes) -> Path:
    """tiny_bert's directory with the vocabulary above."""
    tiny_bert.write(directory, *args, **changes)
    (directory / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return directory


@pytest.fixture(scope="module")
def adapted(folder: Path) -> Path:
    """A run that started from the Hugging Face directory, read the text itself, and keeps all heads."""
    run = folder / "adapted"
    options = [*NSP, f"--from={folder / 'hf'}", f"--data.source={folder / 'text.txt'}", "--workers=1"]
    assert pretrain(folder, run, *options) == 0
    return run


def pretrain(folder: Path, run: Path, *options: str) -> int:
    return main(["pretrain", str(folder / "bert.toml"), f"--run_dir={run}", *options])


def recipe(folder: Path, *options: str) -> Pretrain:
    pairs = [tuple(option.removeprefix("--").split("=", 1)) for option in options]
    return config.load(Pretrain, [folder / "bert.toml"], pairs)  # pyright: ignore[reportArgumentType]


def listed(lines: list[str], word: str) -> list[str]:
    """The modules that the line with this word lists, without remarks in parentheses."""
    (line,) = (line for line in lines if word in line)
    return re.sub(r" \([^)]*\)", "", line.rpartition(": ")[2]).split(", ")


def refused(capsys, folder: Path, tmp_path: Path, *options: str) -> str:
    """Return the one error of a run that does not start."""
    words = [str(folder / "bert.toml"), f"--run_dir={tmp_path / 'refused'}", f"--data.source={folder / 'text.txt'}"]
    message = error(capsys, "pretrain", *words, *options)
    assert not (tmp_path / "refused").exists()
    return message


def test_every_parameter_and_the_vocabulary_come_from_the_source(folder, adapted):
    _, params, _ = bertzoo.load(folder / "hf")
    source, first, last = flat(params), flat(load_run(adapted, 1).params), flat(load_run(adapted, 2).params)
    assert source.keys() == first.keys() and {"sentence_head/kernel", "pooler/bias"} < source.keys()
    chex.assert_trees_all_equal(first, source)
    assert not np.array_equal(last["masked_head/dense/kernel"], first["masked_head/dense/kernel"])
    words = load_run(adapted).tokenizer
    assert [words.token(i) for i in range(words.vocab_size)] == WORDS
    assert "vocab.txt sha256:" in (adapted / "corpus" / "settings.json").read_text()


def test_the_loss_before_the_first_step_equals_the_sources(folder, adapted):
    """Against Hugging Face's tensors through the public loader, on the run's held-out rows, by the equation."""
    heldout = [line for line in tiny.records(adapted) if line.get("split") == "heldout"]
    trained = load_run(adapted, 1)
    assert [row["step"] for row in heldout] == [0, 1, 2]
    feed = RunBatches(trained.recipe, trained.run.open_corpus(), adapted / "plans")
    batches = list(feed.heldout(0, 8, jax.device_count()))
    model, params, _ = bertzoo.load(folder / "hf")
    loss = {"mlm": [0.0, 0.0], "nsp": [0.0, 0.0]}
    apply = jax.jit(model.apply)
    for batch in batches:
        inputs = [batch[n] for n in ("input_ids", "token_type_ids", "attention_mask", "masked_positions")]
        output = apply({"params": params}, *inputs)
        for name, logits, labels, weights in (
            ("mlm", output.masked_logits, batch["masked_ids"], batch["masked_weights"]),
            ("nsp", output.sentence_logits, batch["sentence_label"], batch["row_weight"]),
        ):
            logits = np.asarray(logits, np.float64)
            nats = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, labels[..., None], -1)[..., 0]
            loss[name][0] += (nats * weights).sum()
            loss[name][1] += weights.sum()
    for name, (total, weight) in loss.items():
        assert heldout[0][f"{name}_loss"] == pytest.approx(total / weight, rel=1e-5)
        assert heldout[0][f"{name}_loss"] == pytest.approx(heldout[1][f"{name}_loss"], rel=1e-6)
    assert heldout[2]["loss"] != heldout[1]["loss"]


def test_run_json_records_the_source(folder, adapted, tmp_path):
    origin = facts(adapted)["from"]
    assert origin["path"] == str((folder / "hf").resolve())
    # The hash is the one that a model directory has.
    assert main(["convert", str(folder / "hf"), str(tmp_path / "ours"), "--to=bertzoo"]) == 0
    written = tomllib.loads((tmp_path / "ours" / "model.toml").read_text())
    assert origin["parameters_sha256"] == written["source"]["parameters_sha256"]


def test_a_config_without_a_model_takes_the_sources(folder, adapted, tmp_path, capsys):
    lean, source, new = tmp_path / "lean.toml", load_model.read_model(folder / "hf"), tmp_path / "new"
    lean.write_text(tomli_w.dumps(CONFIG | {"data": DATA | {"source": str(folder / "corpus")}}))
    load = functools.partial(load_recipe, [lean])
    assert load([], folder / "hf", new).model == source.model
    assert load([("model.dropout", "0.3")], folder / "hf", new).model == replace(source.model, dropout=0.3)
    # A run with a checkpoint does not read its source again.
    assert load([], tmp_path / "gone", adapted).model == load_run(adapted).recipe.model
    options = [f"--from={folder / 'hf'}", f"--data.source={folder / 'text.txt'}", *NSP]
    assert main(["pretrain", str(lean), f"--run_dir={shutil.copytree(adapted, tmp_path / 'run')}", *options]) == 0
    assert recipe(folder) == load_recipe([folder / "bert.toml"], [], folder / "hf", new)
    with pytest.raises(ConfigError, match=mentioning("model ", "--model.kind", "--from=MODEL", "model.toml")):
        load([], None, new)
    assert main(["convert", str(folder / "hf"), str(tmp_path / "ours"), "--to=bertzoo"]) == 0
    assert config.load(Pretrain, [lean, tmp_path / "ours/model.toml"]).model == source.model
    lean.write_text(lean.read_text() + "[head]\n")
    assert main(["config", str(lean)]) == 2 and mentions(capsys.readouterr().err, "head", lean)


@pytest.mark.slow
def test_a_resumed_run_does_not_need_its_source(folder, adapted, tmp_path, capsys):
    run, source = tmp_path / "run", tmp_path / "moved"
    shutil.copytree(folder / "hf", source)
    options = [*NSP, f"--from={source}"]
    assert pretrain(folder, run, *options) == 0
    chex.assert_trees_all_equal(load_run(adapted).params, load_run(run).params)
    # Killed before its first checkpoint: it begins again, as the same command says.
    shutil.rmtree(run / "checkpoints")
    capsys.readouterr()
    assert pretrain(folder, run, *options) == 0 and mentions(capsys.readouterr().err, source)
    assert not re.search(r'"event": "(changed|resumed)"', (run / "metrics.jsonl").read_text())
    chex.assert_trees_all_equal(load_run(adapted).params, load_run(run).params)
    # Killed after it: the source may be gone.
    recorded = facts(run)["from"]
    shutil.rmtree(run / "checkpoints" / "2")
    (run / "checkpoints" / "2.sha256.json").unlink()
    shutil.rmtree(source)
    assert pretrain(folder, run, *options) == 0
    chex.assert_trees_all_equal(load_run(adapted).params, load_run(run).params)
    assert facts(run)["from"] == recorded
    capsys.readouterr()
    for other, said in (([f"--from={folder / 'hf'}"], str(folder / "hf")), ([], "none")):
        assert pretrain(folder, run, options[0], *other) == 2
        assert f"from: '{source}' -> '{said}'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_without_a_checkpoint_may_start_from_something_else(folder, adapted, tmp_path, capsys):
    run, source = tmp_path / "run", tmp_path / "hf"
    shutil.copytree(adapted, run)
    shutil.copytree(folder / "hf", source)
    capsys.readouterr()
    for said in ((f"from: '{folder / 'hf'}' -> '{source}'",), ("parameters", source)):
        shutil.rmtree(run / "checkpoints")
        assert pretrain(folder, run, *NSP, f"--from={source}") == 0
        changed = [line for line in capsys.readouterr().err.splitlines() if "changed" in line]
        assert mentions("\n".join(changed), *said)
        assert facts(run)["from"] == facts(adapted)["from"] | {"path": str(source)} or said[0] == "parameters"
        weights = load_file(source / "model.safetensors")
        np.testing.assert_array_equal(
            flat(load_run(run, 1).params)["masked_head/bias"], weights["cls.predictions.bias"]
        )
        weights["cls.predictions.bias"] += 1
        save_file(weights, source / "model.safetensors")
    path = [f"--data.tokenizer.path={folder / 'vocab.txt'}"]
    shutil.rmtree(run / "checkpoints")
    assert pretrain(folder, run, *NSP, *path) == 0
    assert "from" not in facts(run)


@pytest.mark.slow  # three runs
def test_replaced_tokens_and_back(folder, adapted, tmp_path, capsys):
    """BERT's backbone under replaced token detection, and runs of either objective that start from it."""
    run, _ = tmp_path / "run", capsys.readouterr()
    options = ["--stages.0.steps=1", "--run.evaluate_every=0", f"--from={adapted}/checkpoints/1"]
    assert pretrain(folder, run, *RTD, *options) == 0
    said = capsys.readouterr().err.splitlines()
    assert listed(said, f" {adapted}/checkpoints/1") == ["embedding", "encoder"]
    assert listed(said, "fresh") == ["generator", "replaced_head"]
    assert listed(said, "left out") == ["masked_head", "pooler", "sentence_head"]
    assert facts(run)["from"]["step"] == 1
    made = load_run(run)
    found, source = flat(made.params), flat(load_run(adapted, 1).params)
    fresh = flat(nn.meta.unbox(made.objective.init(jax.random.split(jax.random.key(0))[0])))
    assert found.keys() == fresh.keys()
    for name, array in found.items():
        given = name.startswith(("embedding/", "encoder/"))
        np.testing.assert_array_equal(array, source[name] if given else fresh[name], err_msg=name)
    assert not np.array_equal(found["embedding/word/embedding"], fresh["embedding/word/embedding"])

    own = warm_start.read_warm_start(run, recipe(folder, *RTD))
    assert len(own.report) == 1
    assert listed(own.report, str(run)) == ["embedding", "encoder", "generator", "replaced_head"]
    assert own.params.keys() == found.keys() and all(np.array_equal(own.params[n], found[n]) for n in found)
    wider = warm_start.read_warm_start(run, recipe(folder, *RTD, "--objective.generator_width=1"))
    assert len(wider.report) == 2 and listed(wider.report, "fresh") == ["generator"]
    assert wider.params.keys() == {name for name in found if not name.startswith("generator/")}
    masked = warm_start.read_warm_start(run, recipe(folder, "--model.dropout=0"))
    assert len(masked.report) == 4 and listed(masked.report, "fresh") == ["masked_head"]
    assert listed(masked.report, "left out") == ["generator", "replaced_head"]
    assert mentions(masked.report[3], run, "model.dropout 0.1 -> 0.0")
    assert masked.params.keys() == {name for name in found if name.startswith(("embedding/", "encoder/"))}


def test_classifiers_and_other_sentence_heads_are_left_out(folder, adapted, tmp_path):
    weights = {name: array for name, array in tiny_bert.tensors().items() if not name.startswith("cls.")}
    weights |= {"bert.pooler.dense.weight": np.eye(24, dtype="f4"), "bert.pooler.dense.bias": np.ones(24, "f4")}
    weights |= {"classifier.weight": np.ones((3, 24), np.float32), "classifier.bias": np.ones(3, np.float32)}
    labels = {str(i): name for i, name in enumerate("xyz")}
    names = {"id2label": labels, "label2id": {name: int(i) for i, name in labels.items()}}
    source = write(tmp_path / "hf", weights, architectures=["BertForSequenceClassification"], **names)
    assert listed(warm_start.read_warm_start(source, recipe(folder)).report, "left out") == ["classifier", "pooler"]
    made = warm_start.read_warm_start(source, recipe(folder, *NSP))
    assert len(made.report) == 3 and listed(made.report, str(source)) == ["embedding", "encoder", "pooler"]
    assert listed(made.report, "fresh") == ["masked_head", "sentence_head"]
    assert listed(made.report, "left out") == ["classifier"]
    np.testing.assert_array_equal(made.params["pooler/kernel"], np.eye(24))
    for origin in (folder / "hf", adapted):
        assert warm_start.read_warm_start(origin, recipe(folder, *NSP)).report[1:] == []
        said = warm_start.read_warm_start(origin, recipe(folder, "--objective.sentence=sop")).report
        assert len(said) == 2 and listed(said, "fresh") == ["sentence_head"] and mentions(said[1], "nsp")


def test_the_parameters_are_placed_as_the_run_has_them(folder):
    made = recipe(folder, *NSP)
    given = warm_start.read_warm_start(folder / "hf", made).params
    objective, optimizer = made.objective.build(made.model, made.compute), optim.build(made.optimizer, 2)
    mesh = sharding.make_mesh(sharding.Mesh(data=2, fsdp=4), jax.devices())
    begun = state.fresh(objective, optimizer, mesh, 0, given)
    places = state.named(state.abstract_params(objective, mesh))
    assert not all(place.sharding.is_fully_replicated for place in places.values())
    for name, leaf in state.named(begun.params).items():
        assert leaf.sharding == places[name].sharding, name
        np.testing.assert_array_equal(leaf, given[name], err_msg=name)
    with pytest.raises(ValueError, match=mentioning("pooler/bias")):
        state.fresh(objective, optimizer, mesh, 0, {"pooler/bias": np.zeros(7, np.float32)})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model.layers=2"], ("SRC", "model.layers", 1, 2)),
        (["--model.max_positions=16"], ("SRC", "model.max_positions", 12, 16)),
        (["--model.vocab_size=25", "--model.activation=relu"], ("model.vocab_size", 24, 25, "model.activation")),
        (["--model.kind=distilbert"], ("model.kind", "'bert'", "'distilbert'")),
        (["--data.tokenizer.lowercase=false"], ("SRC", "lowercase", True, False)),
        (
            ["--data.tokenizer.kind=sentencepiece", "--data.tokenizer.vocab_size=24"],
            ("SRC", "kind", "wordpiece", "sentencepiece"),
        ),
        (["--data.tokenizer.vocab_size=15"], ("SRC", 24, "vocab_size", 15)),
        (["--data.tokenizer.path=OTHER"], ("data.tokenizer.path", "HERE/OTHER", "SRC", 5, "'.'", "'a'")),
        (["--data.tokenizer.path=FEWER"], ("HERE/FEWER", "SRC", 24, 23)),
        (["--from=nowhere"], ("nowhere", "directory")),
        (["--from="], ("--from", "empty")),
        (["--from=HERE/refused"], ("--from", "--run_dir")),  # itself
    ],
)
def test_a_model_that_does_not_fit_raises_before_any_file(folder, tmp_path, capsys, options, message):
    (tmp_path / "OTHER").write_text("\n".join([*WORDS[:5], WORDS[6], WORDS[5], *WORDS[7:]]) + "\n")
    (tmp_path / "FEWER").write_text("\n".join(WORDS[:-1]) + "\n")
    options = [o.replace("path=", f"path={tmp_path}/").replace("HERE", str(tmp_path)) for o in options]
    given = [f"--from={folder / 'hf'}", *options]
    said = refused(capsys, folder, tmp_path, *given)
    assert mentions(said.replace(str(folder / "hf"), "SRC").replace(str(tmp_path), "HERE"), *message)


def test_a_source_without_a_tokenizer(folder, tmp_path, capsys):
    source = write(tmp_path / "hf")
    (source / "vocab.txt").rename(tmp_path / "vocab.txt")
    message = refused(capsys, folder, tmp_path, f"--from={source}")
    assert mentions(message, source)
    made = warm_start.read_warm_start(source, recipe(folder, f"--data.tokenizer.path={tmp_path / 'vocab.txt'}"))
    assert mentions(made.report[-1], source, "tokenizer", tmp_path / "vocab.txt")
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS[:10]) + "\n")
    message = refused(capsys, folder, tmp_path, f"--from={source}", f"--data.tokenizer.path={tmp_path / 'vocab.txt'}")
    assert mentions(message, 10, 24)


def test_a_corpus_of_another_vocabulary_raises(folder, adapted, tmp_path, capsys):
    (tmp_path / "vocab.txt").write_text("\n".join([*WORDS[:-2], *WORDS[:-3:-1]]) + "\n")
    options = [f"--config={folder / 'bert.toml'}", f"--data.tokenizer.path={tmp_path / 'vocab.txt'}", "--workers=1"]
    assert main(["tokenize", str(folder / "text.txt"), str(tmp_path / "other"), *options]) == 0
    said = refused(capsys, folder, tmp_path, f"--from={adapted}", f"--data.source={tmp_path / 'other'}")
    assert mentions(said, tmp_path / "other", "token 22", "'##t'", "'##s'")


def test_a_backbone_of_other_shapes_raises(folder, monkeypatch):
    found = load_model.read_model(folder / "hf")
    name = "encoder/layers_0/feed_forward/output/bias"
    for params, said in (
        ({n: a for n, a in found.params.items() if n != name}, ("(24,)",)),
        ({**found.params, name: np.zeros(7, np.float32)}, ("(7,)", "(24,)")),
    ):
        monkeypatch.setattr(load_model, "read_model", lambda path, p=params: replace(found, params=p))
        with pytest.raises(ConfigError, match=mentioning("feed_forward/output/bias", *said)):
            warm_start.read_warm_start(folder / "hf", recipe(folder))
