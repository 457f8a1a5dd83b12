"""The command line's contract: exit codes, one-sentence errors, where options go, and what is not imported."""

import importlib
import os
import re
import subprocess
import sys
import tomllib
import types
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from messages import mentions

from bertzoo import __version__
from bertzoo.cli import main as cli
from bertzoo.cli import support
from bertzoo.core.errors import NonFinite, SaveError, Stopped, UserError
from bertzoo.core.options import option


@dataclass(frozen=True, kw_only=True)
class Model:
    layers: int = 12


@dataclass(frozen=True, kw_only=True)
class Recipe:
    model: Model = Model()
    seed: int = 0


@dataclass(frozen=True)
class StandInFlags:
    files: tuple[str, ...] = option("files", ())
    _: KW_ONLY
    overrides: tuple[tuple[str, str], ...] = ()
    run_dir: str | None = option("a directory", None)
    seeds: int | None = option("a number", None)


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Makes `bertzoo pretrain` a verb that records what it was given, and then does what it is told."""

    def make(then: Exception | None = None, configurable: bool = True) -> list[Any]:
        calls: list[Any] = []
        module: Any = types.ModuleType("bertzoo.cli.pretrain", "A verb.\n\nexample:\n  bertzoo pretrain x")

        def main(options: StandInFlags) -> int:
            calls.append(options)
            if then:
                raise then
            return 0

        module.main = main
        if configurable:
            module.config = lambda: Recipe
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return calls

    return make


def test_both_ways_to_give_an_option(verb: Callable[..., list[Any]]) -> None:
    calls = verb()
    argv = ["pretrain", "a.toml", "--model.layers", "6", "b.toml", "--model.width=-1", "--run_dir", "r", "--seed=3"]
    assert cli.main(argv) == 0
    given = calls[0]
    assert (given.files, given.run_dir) == (("a.toml", "b.toml"), "r")
    assert given.overrides == (("model.layers", "6"), ("model.width", "-1"), ("seed", "3"))


def test_values_may_hold_anything_but_a_forgotten_value_is_noticed(verb: Callable[..., list[Any]]) -> None:
    calls = verb()
    assert cli.main(["pretrain", "--a.b=--x=1", "--a.c=", "--run_dir=a=b", "--", "--file"]) == 0
    given = calls[0]
    assert given.overrides == (("a.b", "--x=1"), ("a.c", "")) and given.run_dir == "a=b" and given.files == ("--file",)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["pretrain", "--run_dri=x"], ("--run_dri", "--run_dir")),
        (["pretrain", "--sed=3"], ("--sed", "--seed")),
        (["pretrain", "--output_dir=x"], ("--output_dir", "mean --run_dir?")),
        (["pretrain", "--qqq=3"], ("--qqq", "--help", "--debug", "--run_dir", "--seeds")),
        (["pretrain", "--run"], ("option", " --run")),
        (["pretrain", "--model.layers"], ("--model.layers=VALUE",)),
        (["pretrain", "--model.layers", "--seed=1"], ("--model.layers=VALUE",)),
        (["pretrain", "--run_dir"], ("--run_dir",)),
        (["pretrain", "--seeds=many"], ("--seeds=many", "whole number")),
        (["pretrain", "-x"], ("arguments", " -x")),
        (["pretrian"], ("pretrian", "pretrain")),
        (["qqq"], ("qqq",)),
        (["--run_dir=x"], ("command", "--run_dir=x")),
    ],
)
def test_wrong_usage_is_one_sentence(
    verb: Callable[..., list[Any]], capsys: pytest.CaptureFixture, argv: list[str], message: tuple[str, ...]
) -> None:
    calls = verb()
    assert cli.main(argv) == 2
    out, err = capsys.readouterr()
    assert err.startswith("bertzoo: ") and mentions(err, *message) and err.count("\n") == 1 and not out
    assert not calls


@pytest.mark.parametrize(
    ("verb", "option", "suggested"),
    [
        ("pretrain", "batch_size", ["stages.*.batch_size"]),
        ("pretrain", "learning_rate", ["optimizer.learning_rate", "stages.*.learning_rate"]),
        ("pretrain", "learning-rate", ["optimizer.learning_rate", "stages.*.learning_rate"]),
        ("pretrain", "source", ["data.source", "data.mixture.*.source"]),
        ("transfer", "batch_size", ["transfer.batch_size", "distillation.*.batch_size"]),
        ("finetune", "learning_rate", ["optimizer.learning_rate"]),
        ("finetune", "batchsize", ["batch_size"]),
        ("tokenize", "vocab_size", ["data.tokenizer.vocab_size"]),
    ],
)
def test_a_key_without_its_table_is_suggested_with_it(
    capsys: pytest.CaptureFixture, verb: str, option: str, suggested: list[str]
) -> None:
    assert cli.main([verb, "demo", f"--{option}=3"]) == 2
    words = re.findall(r"--[\w.*-]*\w", capsys.readouterr().err)
    assert words == [f"--{option}", *(f"--{name}" for name in suggested)]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("pretrain demo --epochs=3", ("--epochs", "`bertzoo finetune`")),
        # `config` checks whole command lines, and the keys of its files.
        ("config pretrain demo --run_dri=x", ("--run_dri", "--run_dir")),
        ("config pretrain demo", ("--run_dir",)),
        ("config prune demo --run_dir=x", ("demo.toml",)),
        ("config finetune --epoch=3", ("--epoch", "--epochs")),
        ("config demo --epochs=3", ("--epochs", "`bertzoo finetune`")),
        ("tokenize a.txt corpus --data.source=x", ("--data.source=x",)),
        ("tokenize a.txt corpus --data.masking.share=0.2", ("--data.masking.share",)),
        ("tokenize a.txt corpus --data.heldot=0.2", ("data.heldot", "data.heldout")),
        ("tokenize a.txt corpus --workers=-1", ("--workers=-1",)),
    ],
)
def test_options_that_a_verb_does_not_take_are_named(
    words: str, named: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("One sentence of a text.\n")
    assert cli.main(words.split()) == 2
    assert mentions(capsys.readouterr().err, *named) and [*Path().iterdir()] == [Path("a.txt")]


def test_config_asks_for_the_model_of_an_origin_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    lean = tmp_path / "lean.toml"
    lean.write_text('optimizer = { kind = "lamb", learning_rate = 1e-3 }\nstages = []\n')
    assert cli.main(["config", "pretrain", str(lean), "--run_dir=x", "--from=../bucket/bert"]) == 2
    assert mentions(capsys.readouterr().err, "[model]", "../bucket/bert", "model.toml")
    assert cli.main(["config", "pretrain", "demo", "--run_dir=x", "--from=../bucket/bert"]) == 0
    lean.write_text(
        f"{lean.read_text().splitlines()[0]}\nstages = [{{ steps = 1, batch_size = 4, max_length = 32 }}]\n"
    )
    assert cli.main(["config", "pretrain", str(lean), "--run_dir=x"]) == 2
    assert mentions(capsys.readouterr().err, "--model.kind", "--from=MODEL")
    assert cli.main(["config", "pretrain", str(lean), "--run_dir=x", "--model.kind=bert"]) == 0


@pytest.mark.parametrize("verb", [["config"], ["models"], ["benchmark"], ["pretrain", "--run_dir=new"]])
def test_a_model_without_a_recipe_names_what_takes_it(verb: list[str], tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "model.toml"
    file.write_text('[model]\nkind = "bert"\n[head]\nkind = "none"\n[source]\nformat = "run"\n')
    assert cli.main([*verb, str(file)]) == 2
    assert mentions(capsys.readouterr().err, f"bertzoo config demo {file}", f"{tmp_path}.")
    assert cli.main(["config", "demo", str(file)]) == 0


def test_config_prints_what_a_command_line_sets(capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["config", "pretrain", "demo", "--run_dir=x", "--seed=7"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["seed"] == 7
    assert cli.main(["config", "finetune", "--epochs=7"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["epochs"] == 7


def test_a_verb_without_a_config_takes_no_keys(verb: Callable[..., list[Any]], capsys: pytest.CaptureFixture) -> None:
    calls = verb(configurable=False)
    assert cli.main(["pretrain", "--model.layers=6"]) == 2
    assert mentions(capsys.readouterr().err, "--model.layers", "--help")
    assert not calls


@pytest.mark.parametrize(
    ("error", "code", "parts"),
    [
        (UserError("the text is empty"), 2, ("the text is empty",)),
        (Stopped("stopped at step 3"), 3, ("stopped at step 3",)),
        (NonFinite("step 3"), 1, ("step 3",)),
        (OSError(28, "No space left on device", "runs/a"), 1, ("runs/a: No space left on device",)),
        (PermissionError(13, "Permission denied"), 1, ("Permission denied",)),
        (ZeroDivisionError("x\ny"), 1, ("ZeroDivisionError: x", "--debug")),
        (KeyboardInterrupt(), 3, ("interrupted", "command")),
        (SaveError("a disk: RESOURCE_EXHAUSTED"), 1, ("a disk: RESOURCE_EXHAUSTED",)),  # not the memory
        (RuntimeError("RESOURCE_EXHAUSTED: 2 GB"), 2, ("memory ran out", "2 GB")),
        (MemoryError("2 GB"), 2, ("memory ran out", "2 GB")),
        (RuntimeError("Unable to initialize backend 'x'"), 2, ("Unable to initialize backend 'x'", "JAX_PLATFORMS")),
    ],
)
def test_errors_have_their_exit_code_and_no_traceback(
    verb: Callable[..., list[Any]], capsys: pytest.CaptureFixture, error: Exception, code: int, parts: tuple[str, ...]
) -> None:
    verb(error)
    assert cli.main(["pretrain"]) == code
    err = capsys.readouterr().err
    assert err.startswith(f"bertzoo: {parts[0]}") and err.count("\n") == 1 and mentions(err, *parts)
    if len(parts) == 1:  # the error's own words are all that is said
        assert err == f"bertzoo: {parts[0]}\n"


def test_late_errors_of_abandoned_writes_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """orbax's other writes raise them after a failed save, whose own error the command prints."""
    shown: list[Any] = []
    monkeypatch.setattr(sys, "__unraisablehook__", shown.append)
    for text in ("Event loop is closed", "another"):
        error: Any = SimpleNamespace(exc_type=RuntimeError, exc_value=RuntimeError(text))
        cli._lost(error)
    assert [str(error.exc_value) for error in shown] == ["another"]


def test_debug_shows_the_traceback(verb: Callable[..., list[Any]], capsys: pytest.CaptureFixture) -> None:
    verb(UserError("the text is empty"))
    assert cli.main(["pretrain", "--debug"]) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err and err.endswith("bertzoo: the text is empty\n")


def test_help(verb: Callable[..., list[Any]], capsys: pytest.CaptureFixture) -> None:
    verb()
    assert cli.main(["--help"]) == 0
    overview = capsys.readouterr().out
    assert all(name.replace("_", " ") in overview for name in cli.VERBS)
    assert cli.main([]) == 2
    assert cli.main(["pretrain", "--help"]) == 0
    assert "  bertzoo pretrain x" in capsys.readouterr().out
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"bertzoo {__version__}\n"


@pytest.mark.parametrize("name", cli.VERBS)
def test_a_help_has_a_summary_the_usage_groups_defaults_and_three_examples(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    verb = importlib.import_module(f"bertzoo.cli.{name}")
    parser = cli.verb_parser(name, verb)
    text = parser.format_help()
    usage, summary, *_, examples = text.strip().split("\n\n")
    assert re.fullmatch(r"[A-Z][^\n]{10,84}\.", summary)
    assert usage.startswith(f"usage: bertzoo {name.replace('_', ' ')} ")
    assert [line[:10] for line in examples.splitlines()] == ["examples:", *["  bertzoo "] * 3]
    assert len(text) < 3000, "the site has room for more"
    positional, optional, *groups = parser._action_groups
    assert not positional._group_actions and not optional._group_actions
    kinds = [[bool(action.option_strings) for action in group._group_actions] for group in groups]
    assert not kinds[0][0] and all(kind == sorted(kind) for kind in kinds), "arguments come before options"
    for action in (action for group in groups for action in group._group_actions):
        assert action.nargs != "*" or not action.required
        shown = action.help or ""
        assert action.nargs == 0 or not action.option_strings or re.search(r"\(default: |\(required\)", shown), shown


def test_the_help_shows_defaults_that_the_code_has(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, kw_only=True)
    class SizeFlags:
        rows: int = option("rows", 0, group="speed", metavar="N")
        columns: int = option("columns", group="speed", metavar="N")

    parser = support.Parser(prog="x", description="A verb.\n\nMore.\n\nexamples:\n  x")
    support.declare(parser, SizeFlags)
    parser.complete()
    lines = [line.split() for line in parser.format_help().splitlines()]
    assert ["--rows", "N", "rows", "(default:", "0)"] in lines
    assert ["--columns", "N", "columns", "(required)"] in lines
    assert lines.index(["speed:"]) < lines.index(["general:"]) < lines.index(["examples:"])


def test_the_program_as_a_process(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "bertzoo", "report", tmp_path], capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("bertzoo: ") and done.stderr.count("\n") == 1
    assert mentions(done.stderr, tmp_path, "config.toml")


def test_a_reader_that_stops_early_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "bertzoo", "--help"], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_help_and_report_and_tokenize_import_no_jax() -> None:
    program = (
        "import sys, bertzoo.cli.main as cli\n"
        "for verb in ([], ['report'], ['tokenize']): cli.main([*verb, '--help'])\n"
        "sys.exit(bool({'jax', 'flax', 'matplotlib', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_signal_within_a_callback_that_lets_nothing_out_is_not_lost(number: str) -> None:
    program = f"""
import os, signal, time, weakref
from bertzoo.cli import main as cli

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background has it ignored

def verb(argv):
    thing = type("Thing", (), {{}})()
    reference = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.{number}))
    del thing
    time.sleep(60)
    return 0

cli.run = verb
cli.entry()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 3 and done.stderr.startswith("bertzoo: interrupted") and done.stderr.count("\n") == 1


def test_evaluate_compares_the_loss_with_a_gain_of_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertzoo.export.file_model.is_pretraining", lambda path: True)
    monkeypatch.setattr("bertzoo.runs.load_model.load_run", lambda *_: None)
    monkeypatch.setattr(
        "bertzoo.runs.load_model.evaluate_run",
        lambda *_: {"unigram_entropy": 2.0, "mlm_loss": 2.5, "mlm_hidden_loss": 1},
    )
    gates = ["--below_unigram=-1", "--below_unigram=0", "--hidden_below_unigram=0", "--hidden_below_unigram=2"]
    assert [cli.main(["evaluate", "run", "--json", gate]) for gate in gates] == [0, 1, 0, 1]


def test_every_shipped_config_prints_as_toml_that_loads_again(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    from bertzoo.core import config
    from bertzoo.core.kinds import kind_of_files

    names = config.shipped()
    assert {"demo", "squeezebert", "bert_base"} <= set(names)
    for name, path in names.items():
        assert cli.main(["config", name, "--seed=7"]) == 0
        resolved = tmp_path / f"{name}.toml"
        resolved.write_text(capsys.readouterr().out)
        loaded = config.load(kind_of_files(resolved).config(), [resolved])
        assert loaded == config.load(kind_of_files(path).config(), [path], [("seed", "7")])
        assert loaded.kind == tomllib.loads(path.read_text())["kind"] and len(path.read_text().splitlines()) <= 62


def test_progress_of_tokenising_is_one_line_in_an_interval(capsys, monkeypatch):
    clock = iter([0.0, 1.0, 11.0, 11.0, 12.0])
    monkeypatch.setattr(support, "time", types.SimpleNamespace(monotonic=lambda: next(clock)))
    show = support.tokenising()
    for pieces in range(3):
        show(pieces, 2_500_000 * pieces)
    shown = capsys.readouterr().err
    assert mentions(shown, "2.5 M", "1 shard") and shown.count("\n") == 1


def test_the_overview_imports_almost_nothing() -> None:
    """Each of these modules would take 10 ms or more."""
    program = (
        "import sys\nfrom bertzoo.cli import start\ntry: start.entry()\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == f"{cli.overview()}\n"
    assert not {"argparse", "dataclasses", "logging", "typing", "bertzoo.api"} & set(done.stderr.split())
