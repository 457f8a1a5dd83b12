"""Every command that the README, docs, help texts and config headers show parses, and its configs load.

This replaces tests of prose: a page may say what it likes, but its commands must work as printed.
"""

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertzoo.api.training import data_of
from bertzoo.cli import main as cli
from bertzoo.core import config
from bertzoo.core.kinds import config_class
from bertzoo.jobs import pipeline, sweep

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = re.compile(r"(bertzoo|python -m benchmarks|launch/[\w/]+\.sh|make) ")


def fenced(page: Path) -> list[tuple[str, str]]:
    """The fenced blocks of a page: language and text."""
    return re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def lines_of(text: str) -> Iterator[str]:
    """The command lines in a block of text; a backslash joins the next line."""
    for line in re.sub(r"\\\n[# ]*", "", text).splitlines():
        if PROGRAMS.match(line.strip()):
            yield re.split(r"\s{2,}(?!-)", line.strip())[0]  # what follows a gap explains the command


def documented() -> dict[str, str]:
    """Commands by "file: command"."""
    commands = {}
    for page in PAGES:
        for language, block in fenced(page):
            if language in ("", "bash", "sh"):
                commands |= {f"{page.name}: {line}": line for line in lines_of(block)}
    for file in sorted((ROOT / "configs").rglob("*.toml")):
        header = "\n".join(
            line.lstrip("# ") for line in file.read_text(encoding="utf-8").splitlines() if line[:1] == "#"
        )
        commands |= {f"{file.name}: {line}": line for line in lines_of(header)}
    for verb in cli.VERBS:
        examples = (importlib.import_module(f"bertzoo.cli.{verb}").__doc__ or "").partition("examples:\n")[2]
        commands |= {f"{verb} --help: {line}": line for line in lines_of(examples)}
    return commands


COMMANDS = documented()


def test_every_page_with_commands_is_read() -> None:
    sources = {name.split(":")[0] for name in COMMANDS}
    assert {"README.md", "tpu.md", "corpora.md", "squeezebert.toml", "pretrain --help"} <= sources
    assert len(COMMANDS) > 150


@pytest.fixture
def snippets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with the config files that the pages print, each under the name in its first line."""
    for page in PAGES:
        for language, text in fenced(page):
            if language == "toml" and (name := re.match(r"# (\S+\.toml)\n", text)):
                (tmp_path / name[1]).write_text(text)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", COMMANDS)
def test_command_parses_and_its_configs_load(name: str, snippets: None) -> None:
    command = COMMANDS[name]
    words = shlex.split(command, comments=True)
    if "<" in words:
        words = words[: words.index("<")] + words[words.index("<") + 2 :]
    if words[0] == "make":
        for target in (word for word in words[1:] if "=" not in word):
            assert re.search(rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command
    elif words[0] == "bertzoo":
        check_verb(words[1:])
    else:
        script = ROOT / (f"benchmarks/{words[3].replace('.', '/')}.py" if words[0] == "python" else words[0])
        text = script.read_text(encoding="utf-8") + (ROOT / "launch" / "common.sh").read_text(encoding="utf-8")
        if words[0] != "python":  # launchers pass the options of `bertzoo` on
            words = words[: words.index("--") if "--" in words else len(words)]
        own = {re.split(r"[=.]", word)[0] for word in words if re.match(r"--\w", word) and "." not in word}
        assert not {
            flag for flag in own if not re.search(rf"{flag}(?![\\w-])", text) and "parse_known_args" not in text
        }, command


def check_verb(argv: list[str]) -> None:
    """Parse a command line of `bertzoo` and load every config and grid that it names."""
    shortened = {"…", "..."} & set(argv)
    argv = [word for word in argv if word not in shortened]
    if shortened and argv[0] == "pipeline":
        argv += [f"--inputs.{name}=any" for name in ("text", "glue", *["squad"] * (argv[1] != "squeezebert"))]
    if shortened and argv[0] in ("pretrain", "finetune", "pipeline"):
        argv += ["--run_dir=runs/any"]
    verb, options = cli.parse(argv)
    assert options is not None
    match verb.__name__.rpartition(".")[2]:
        case "sweep":
            assert sweep.load_sweep(options.sweep, options.overrides, options.tasks, options.random).jobs
        case "pipeline":
            assert pipeline.load_pipeline(options.pipeline, options.overrides, options.tasks).jobs
        case "results":
            assert options.directories
        case "models":
            for file in options.names:
                config.load(config_class(file), [file], options.overrides)
        case "benchmark":
            ours = set(config.shipped())
            assert all(name in ours or "/" in name or "." in name for name in options.models), options.models
            for file in set(options.models) & ours:
                config.load(config_class(file), [file], options.overrides)
        case "tokenize":
            assert data_of(options).source == options.source
        case "config":
            assert verb.main(options) == 0
        case "plan":
            config.load(config_class(*options.config), options.config, options.overrides)
        case _ if hasattr(verb, "config"):
            config.load(verb.config(), options.config, options.overrides)
        case _:
            assert not getattr(options, "overrides", ())


def test_the_demo_ends_with_commands_that_work_in_its_terminal() -> None:
    """Outside of make, bertzoo is no command before the environment is active."""
    text = (ROOT / "launch" / "demo.sh").read_text().split("<<TEXT\n")[1].replace("$run", "runs/make-demo")
    lines = [line for line in text.splitlines() if line.startswith((". ", "bertzoo "))]
    assert lines[0].split()[:2] == [".", ".venv/bin/activate"]
    for line in lines[1:]:
        words = shlex.split(re.split(r" {3,}", line)[0])
        check_verb(words[1:])
