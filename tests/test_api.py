"""The commands as functions: the same results as the command line's, from the same settings."""

import inspect
import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import planted
import pytest
import timed
import tiny
from messages import mentioning, mentions
from tiny import records

import bertzoo
from bertzoo.cli import main as cli
from bertzoo.core import config
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.core.logs import LOGGER
from bertzoo.finetuning.settings import Finetune
from bertzoo.runs.configs import Pretrain

pytestmark = pytest.mark.usefixtures("one_device")
SHORT = {"stages.*.steps": 2, "run.log_every": 1}
PLANTED = dict(option.removeprefix("--").split("=", 1) for option in planted.OPTIONS)


def test_a_run_from_a_file_an_object_and_overrides(tiny_corpus: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    file = tiny.write_config(tmp_path, tiny_corpus, stages=1)
    monkeypatch.setattr(LOGGER, "propagate", False)  # the program, pytest here, handles no messages
    with monkeypatch.context() as patch:
        patch.setattr(LOGGER, "level", logging.ERROR)
        one = bertzoo.pretrain(file, run_dir=tmp_path / "one", overrides=SHORT)
    silent = capsys.readouterr()
    assert not silent.out and not silent.err
    assert one.step == 2 and {"mlm_loss", "sop_accuracy"} <= one.metrics.keys() and one.metrics["step"] == 2
    recipe = config.load(Pretrain, [file], [("run.log_every", "1")])
    again = bertzoo.pretrain(recipe, run_dir=tmp_path / "one", overrides={"stages.*.steps": 2})  # resumes at the end
    assert again.step == 2 and "corpus" in capsys.readouterr().out
    model, params, tokenizer = one.load()
    ids = np.array([[tokenizer.specials.cls, *tokenizer.encode_batch(["a b"])[0], tokenizer.specials.sep]])
    logits = model.apply({"params": params}, ids, 0 * ids, ids >= 0, 0 * ids[:, :1]).masked_logits
    assert logits.shape == (1, 1, recipe.model.vocab_size) and np.isfinite(logits).all()
    (found,) = bertzoo.predict(tmp_path / "one", ["a [MASK] b"], top=3)
    (blank,) = found["blanks"]
    assert len(blank) == 3 and 0 < sum(blank.values()) <= 1
    assert bertzoo.convert(tmp_path / "one", tmp_path / "model", to="bertzoo", head="masked") is None
    assert bertzoo.load(tmp_path / "model").params.keys() == params.keys() - {"sentence_head"}
    for call, named in (
        (lambda: bertzoo.predict(tmp_path / "one", "a [MASK] b"), ("a [MASK] b",)),
        (lambda: bertzoo.predict(tmp_path / "one", [("a [MASK]", "b")]), (tmp_path / "one", "('a [MASK]', 'b')")),
        (lambda: bertzoo.predict(tmp_path / "one", ["a [MASK]"], top=0), ("top", 0, tokenizer.vocab_size)),
        (lambda: bertzoo.evaluate(tmp_path / "one", split="dev"), ("split", "dev", tmp_path / "one")),
        (lambda: bertzoo.tokenize("text.txt", tmp_path / "corpus", workers=-1), ("workers", -1, 0)),
        (lambda: bertzoo.evaluate(tmp_path / "one", data_dir=tmp_path), ("data_dir", tmp_path / "one")),
    ):
        with pytest.raises(UserError, match=mentioning(*named)):
            call()
    capsys.readouterr()
    assert cli.main(["evaluate", str(tmp_path / "one"), "--json"]) == 0
    assert bertzoo.evaluate(tmp_path / "one") == json.loads(capsys.readouterr().out)


def test_settings_that_are_wrong_are_errors(tiny_config: str, tmp_path: Path) -> None:
    for overrides, error, named in (
        ({"stages.*.step": 2}, ConfigError, "step"),
        ({"seed": True}, ConfigError, "seed"),
        ({"data.tokenizer.path": None, "objective.sentence": "nsp2"}, ConfigError, "nsp2"),
    ):
        with pytest.raises(error, match=mentioning(named)):
            bertzoo.pretrain(tiny_config, run_dir=tmp_path / "run", overrides=overrides)
    with pytest.raises(UserError, match=mentioning("nowhere")):
        bertzoo.pretrain(tiny_config, run_dir=tmp_path / "run", from_model="nowhere")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("to", "options", "named"),
    [
        ("bertzoo", {"lengths": (8,)}, ("--lengths", "litert", "bertzoo")),
        ("litert", {"precision": "int9"}, ("--precision", "int9", "int8-static")),
        ("litert", {"pooling": "sum"}, ("--pooling", "sum", "mean")),
        ("onx", {}, ("--to=onx", "mean onnx")),
        ("bertzoo", {"head": "top"}, ("--head", "top", "masked")),
        ("litert", {"examples": -1}, ("--examples", -1)),
    ],
)
def test_a_conversion_that_cannot_be(to: str, options: dict, named: tuple, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=mentioning(*named)):
        bertzoo.convert(tmp_path, tmp_path / "other", to=to, **options)
    with pytest.raises(UserError, match=mentioning("gs:/bucket/run", "source", "URL")):
        bertzoo.convert(Path("gs://bucket/run"), tmp_path / "other", to="bertzoo")
    with pytest.raises(TypeError, match=mentioning("lenghts")):
        bertzoo.convert(tmp_path, tmp_path / "other", to="litert", lenghts=(8,))  # pyright: ignore[reportCallIssue] (wrong)


@pytest.mark.slow  # trains; the verbs' own tests do so too
def test_a_fine_tuned_model_scores_and_predicts(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOGGER, "propagate", False)  # the program, pytest here, handles no messages
    planted.fill(tmp_path)
    overrides = PLANTED | {"data_dir": tmp_path, "seeds": 1, "epochs": 1}
    start = {"from_model": tmp_path / "model", "overrides": overrides}
    with monkeypatch.context() as patch:
        patch.setattr(LOGGER, "level", logging.WARNING)
        bertzoo.finetune(run_dir=tmp_path / "silent", **start)
    assert capsys.readouterr() == ("", "")
    found = bertzoo.finetune(run_dir=tmp_path / "run", **start)
    assert found.results == json.loads((tmp_path / "run/results.json").read_text())
    rows = records(tmp_path / "run/seed-0")
    points = [row["task_accuracy" if row["split"] == "train" else "dev_accuracy"] for row in rows if "split" in row]
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "seed 0" and LOGGER.level == logging.NOTSET and not LOGGER.handlers
    assert re.findall(r"acc (\S+)", err) == [f"{share:.3f}" for share in points]
    assert max(points) > 1  # points, not shares
    shown = found._repr_html_()
    assert f"{found.score['dev']['accuracy']:.2f}" in shown
    measured = bertzoo.evaluate(found.run_dir)
    assert measured["scores"]["dev"] == pytest.approx(found.score["dev"]) and measured["examples"] == {"dev": 40}
    for call, named in (
        (lambda: bertzoo.evaluate(found.run_dir, checkpoint="best"), ("--checkpoint=best", found.run_dir)),
        (lambda: bertzoo.evaluate(found.run_dir, split="nowhere"), ("own", "nowhere")),
        (lambda: bertzoo.predict(found.run_dir, ["bara"], top=3), ("top", 3, found.run_dir)),
        (lambda: bertzoo.predict(found.run_dir, ["bara", None]), (1, None)),
        (lambda: bertzoo.predict(found.run_dir, [("bara", "doti"), "kera"]), (1, "'kera'")),
        (lambda: bertzoo.predict(found.run_dir, [("bara",), ("doti",)]), (0, "'bara'")),
    ):
        with pytest.raises(UserError, match=mentioning(*named)):
            call()
    assert found.predict([]) == []
    first, second = found.predict(["bara doti", "kera"])
    assert first["label"] in ("0", "1") and 0.5 <= first["probability"] <= 1 and second["index"] == "1"


def test_text_becomes_a_corpus(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("".join(f"one two three four number {n}\n\n" for n in range(50)))
    overrides = {"data.tokenizer.vocab_size": 60, "data.heldout": 0.2, "data.minimum_tokens": 2}
    manifest = bertzoo.tokenize(str(tmp_path / "text.txt"), tmp_path / "corpus", overrides=overrides, workers=1)
    assert sum(split["documents"] for split in manifest["splits"].values()) == 50
    with pytest.raises(UserError, match=mentioning("heldout", "2.0")):
        bertzoo.tokenize(str(tmp_path / "text.txt"), tmp_path / "x", overrides={"data.heldout": 2})


@pytest.mark.slow
def test_a_plan_and_a_benchmark_equal_the_commands(tiny_config: str, capsys, monkeypatch) -> None:
    plan = bertzoo.plan(tiny_config, topology="v5e:1x1", compile_steps=False, price=2.0)
    assert cli.main(["plan", tiny_config, "--topology=v5e:1x1", "--no-compile", "--price=2", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["chips"] == plan.chips == 1 and printed["model_flops"] == plan.model_flops > 0
    assert [stage["estimated"]["total"] for stage in printed["stages"]] == [s.estimated.total for s in plan.stages]
    with pytest.raises(UserError, match=mentioning("v9:1x1")):
        bertzoo.plan(tiny_config, topology="v9:1x1")
    timed.stand_in(monkeypatch)
    settings = {"lengths": (8,), "runs": 2, "rounds": 1}
    measured = bertzoo.benchmark([tiny_config], **settings)
    (row,) = measured.rows
    assert (row["backend"], row["length"]) == ("litert", 8) and row["rounds_ms"] == [pytest.approx([2, 3])]
    for wrong, named in (
        ({"runs": 1, "rounds": 2}, ("runs", 1, 2)),
        ({"backends": "onnx"}, ("backends", "'onnx'")),
        ({"threads": 1}, ("threads", 1)),
    ):
        with pytest.raises(UserError, match=mentioning(*named)):
            bertzoo.benchmark([tiny_config], **{**settings, **wrong})


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: bertzoo.benchmark("demo"), ("models", "'demo'")),
        (lambda: bertzoo.plan(Finetune(task="rte", epochs=1), topology="v5e:1x1"), ("config", "Finetune")),
        (lambda: bertzoo.plan("finetune", topology="v5e:1x1"), ("finetune",)),
        (lambda: bertzoo.tokenize("x", "y", overrides={"data.masking.kind": "word"}), ("data.masking.kind",)),
        (lambda: bertzoo.tokenize("x", "y", overrides={"data.source": "z"}), ("x", "z")),
    ],
)
def test_errors_name_wrong_arguments(call, named, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=mentioning(*named)):
        call()
    assert not [*tmp_path.iterdir()]


def test_missing_and_unknown_arguments_raise() -> None:
    with pytest.raises(TypeError, match="'run_dir'"):
        bertzoo.pretrain("demo")
    with pytest.raises(TypeError, match="'worker'"):
        bertzoo.pretrain("demo", run_dir="x", worker=2)


def test_help_of_a_function_is_not_that_of_a_negated_flag() -> None:
    (line,) = re.findall("(?m)^ *compile_steps: (.*)", inspect.getdoc(bertzoo.plan) or "")
    assert mentions(line, "whether to compile") and "without" not in line


@pytest.mark.slow
def test_the_readme_example_runs_as_a_script(tiny_config: str, tmp_path: Path) -> None:
    """Pretrain, predict, fine-tune and export, with a tiny config, planted labels and a format that needs no extra."""
    script = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    script = script.split("## Ten lines of Python", 1)[1].split("```python\n", 1)[1].split("```", 1)[0]
    assert len(script.strip().splitlines()) <= 12
    planted.fill(tmp_path)
    labels = PLANTED | {"data_dir": str(tmp_path), "seeds": 1, "epochs": 1}
    for old, new in (
        ('"demo", run_dir="runs/demo"', f'{tiny_config!r}, run_dir="runs/demo", overrides={SHORT!r}'),
        ('{"data_dir": "runs/labels"}', repr(labels)),
        ('"demo_finetune"', '"finetune"'),
        ('"tuned.tflite", to="litert", lengths=(32, 64), precision="int8-dynamic"', '"tuned", to="bertzoo"'),
    ):
        assert old in script
        script = script.replace(old, new)
    command = [sys.executable, "-c", script]
    shown = subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True).stdout
    step, blanks, label = (line for line in shown.splitlines() if not line.startswith("warning: "))
    assert step.startswith("4 ") and blanks.startswith("[{") and label.rsplit(" ", 1)[1] in ("0", "1")
    assert bertzoo.load(tmp_path / "tuned").tokenizer is not None
