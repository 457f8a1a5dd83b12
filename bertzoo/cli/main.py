"""The command line: `bertzoo VERB …`, its options, exit codes and error messages.

Exit codes:

0: done
1: failed, for a reason that has no other code
2: wrong input
3: stopped by a signal; run the command again to resume
4: another process of the run is lost; restart all processes of the run

A verb is a module of `bertzoo.cli`: its docstring is the help text, and `main(options) -> int` returns the exit code.
The fields of the dataclass that annotates `options` are the flags. A verb with a config also has `config() -> type`,
which returns the config's class; `--a.b=value` sets a field of the config, and is one of the pairs in the options'
field `overrides`. If a verb's module sets `PASSES_ON`, the overrides are options that it does not declare, and it
checks them itself or passes them to another command. `PASSES_ON` is True or a text about these options for the help.
Only the requested verb's module is imported.
"""

import errno
import importlib
import os
import signal
import sys
import textwrap
import threading
import traceback
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from types import FrameType, ModuleType
from typing import Any, NoReturn

from bertzoo.cli.start import VERBS, overview
from bertzoo.cli.support import Parser, declare, read_options
from bertzoo.core.config import paths_by_name, suggest
from bertzoo.core.errors import Explained, Stopped, UserError, one_line
from bertzoo.core.logs import shown
from bertzoo.core.machine import keep_freed_memory
from bertzoo.core.version import __version__
from bertzoo.train import signals
from bertzoo.train.signals import leave_closed_terminal, stop_signals

# Errors of a wrong path, not of a full disk or a broken machine.
_PATHS = {errno.EACCES, errno.EIO, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT}
_PATHS |= {errno.ENOTDIR, errno.EPERM}
_ELSEWHERE = {  # options of other projects, and the last name of the equivalent key here
    "lr": "learning_rate",
    "output_dir": "run_dir",
    "seq_length": "max_length",
    "max_seq_length": "max_length",
    "num_train_epochs": "epochs",
}
# Verbs that compute in this process.
_WITH_JAX = ("pretrain", "transfer", "prune", "finetune", "resume", "evaluate", "predict", "embed", "search")


def entry() -> NoReturn:
    """Run the `bertzoo` command. SIGTERM and SIGHUP end it as Ctrl-C does; under nohup, SIGHUP is ignored."""
    signal.signal(signal.SIGTERM, _terminate)
    if signal.SIGHUP in stop_signals():
        signal.signal(signal.SIGHUP, _terminate)
    sys.unraisablehook = _lost
    if sys.argv[1:2] and sys.argv[1] in _WITH_JAX:
        keep_freed_memory()
    code = main(sys.argv[1:])
    if signals.is_child() and code:
        signals.exit_child(code)
    sys.exit(code)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # a second one follows: Slurm also signals the parent, which forwards it
    leave_closed_terminal()
    raise KeyboardInterrupt


def _lost(unraisable: "sys.UnraisableHookArgs") -> None:
    """Send SIGTERM to this process if Python has discarded a KeyboardInterrupt; SIGTERM raises a new one.

    Python discards exceptions in callbacks of weak references, for example. After a failed save, orbax's remaining
    writes call an event loop that is closed; the save's own error follows.
    """
    if str(unraisable.exc_value) == "Event loop is closed":
        return
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    signal.signal(signal.SIGTERM, _terminate)
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()


def main(argv: Sequence[str]) -> int:
    """Run a command line (without the program's name), print errors, and return the exit code."""
    try:
        with shown(sys.stderr):
            code = run(argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("bertzoo: interrupted. Run the same command again to resume.", file=sys.stderr)
        return Stopped.exit_code
    except Exception as error:
        if "--debug" in argv:
            traceback.print_exc()
        explained = _explained(error)
        print(f"bertzoo: {one_line(str(explained))}", file=sys.stderr)
        return getattr(explained, "exit_code", 1)


def _explained(error: Exception) -> Exception:
    """Return an error whose message is for the user: a UserError for one of the machine, the devices or a path."""
    if hasattr(error, "exit_code"):
        return error
    if "RESOURCE_EXHAUSTED" in str(error) or isinstance(error, MemoryError):
        return UserError(f"memory ran out: {str(error)[:200]}. Use fewer rows or shorter texts.")
    if str(error).startswith("Unable to initialize backend"):
        return UserError(f"{str(error)[:200]}. Unset JAX_PLATFORMS, or install 'jax[cuda12]' or 'jax[tpu]'.")
    if isinstance(error, OSError) and error.errno in _PATHS and error.filename:
        return UserError(f"{error.filename} cannot be used: {error.strerror}. Name another path.")
    if type(error) is ValueError and "null byte" in str(error):
        return UserError("a path in the options or the config holds a null byte. Remove the byte.")
    if isinstance(error, OSError) and error.strerror:
        file = f"{error.filename}: " if error.filename else ""
        return Explained(f"{file}{error.strerror}")
    first = next(iter(str(error).splitlines()), "")  # JAX prints whole trees of parameters
    shown = textwrap.shorten(first, 300, placeholder=" …") if len(first) > 300 else first
    return Explained(f"{type(error).__name__}: {shown} (a bug in bertzoo; --debug shows the traceback)")


def run(argv: Sequence[str]) -> int:
    """Run a command line and return the exit code; does not catch errors."""
    if not argv or argv[0] in ("-h", "--help"):
        print(overview())
        return 0 if argv else 2
    if argv[0] == "--version":
        print(f"bertzoo {__version__}")
        return 0
    verb, options = parse(argv)
    return 0 if options is None else verb.main(options)


def parse(argv: Sequence[str]) -> tuple[ModuleType, Any]:
    """Return the module of a command line's verb, and its options.

    The options are None if the command line requests help, which argparse then prints.
    Raises UserError.
    """
    if list(argv[:2]) == ["prune", "vocabulary"]:
        argv = ["prune_vocabulary", *argv[2:]]
    elif argv[0] == "prune_vocabulary":
        raise UserError("unknown command prune_vocabulary. Did you mean prune vocabulary?")
    name = argv[0]
    if name not in VERBS:
        near = get_close_matches(name, VERBS, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"The commands are {', '.join(VERBS).replace('_', ' ')}."
        raise UserError(f"unknown command {name}. {hint}")
    verb = importlib.import_module(f"bertzoo.cli.{name}")
    parser = verb_parser(name, verb)
    try:
        arguments, overrides = split(argv[1:], parser.flags(), verb)
        # Options may stand between a verb's arguments; argparse's method for this loses a "--".
        args = (parser.parse_args if "--" in arguments else parser.parse_intermixed_args)(arguments)
    except SystemExit:  # argparse has printed its help
        return verb, None
    return verb, read_options(verb.main.__annotations__["options"], args, overrides)


def verb_parser(name: str, verb: ModuleType) -> Parser:
    keys = ""
    if hasattr(verb, "config"):
        keys = "--TABLE.KEY=VALUE sets a key of the config. `bertzoo config CONFIG` prints every key and its value."
    elif getattr(verb, "PASSES_ON", ""):
        keys = verb.PASSES_ON
    parser = Parser(prog=f"bertzoo {name.replace('_', ' ')}", description=verb.__doc__, keys=keys)
    declare(parser, verb.main.__annotations__["options"])
    parser.complete()
    return parser


def split(argv: Sequence[str], flags: Sequence[str], verb: ModuleType) -> tuple[list[str], list[tuple[str, str]]]:
    """Split the words after a verb into words for the verb's parser and (key, value) options of the verb's config."""
    arguments: list[str] = []
    overrides: list[tuple[str, str]] = []
    words = iter(argv)
    for word in words:
        if word == "--":
            return [*arguments, word, *words], overrides
        if not word.startswith("--") or word[2:].split("=")[0] in flags:
            arguments.append(word)
            continue
        key, equals, value = word[2:].partition("=")
        if not getattr(verb, "PASSES_ON", False):
            check_key(key, flags, _config_paths(verb))
        if not equals:
            value = next(words, "--")
            if value.startswith("--"):
                raise UserError(f"--{key} has no value. Write --{key}=VALUE.")
        overrides.append((key, value))
    return arguments, overrides


def check_key(key: str, flags: Sequence[str], paths: Mapping[str, list[str]]) -> None:
    """Raise UserError, naming the nearest options, if `key` is neither dotted nor a top-level key of the config.

    paths: {last name: dotted keys} for the config's keys.
    """
    keys = [name for name, dotted in paths.items() if dotted[0] == name]
    if key in keys or ("." in key and keys):
        return
    if near := suggest(_ELSEWHERE.get(key, key), {**paths, **{flag: [flag] for flag in flags}}):
        hint = f"Did you mean {' or '.join(f'--{name}' for name in near)}?"
    elif others := [name for name in VERBS if key in _config_paths(importlib.import_module(f"bertzoo.cli.{name}"))]:
        hint = f"It is an option of {', '.join(f'`bertzoo {name}`' for name in others)}."
    else:
        hint = f"The options are {', '.join(f'--{flag}' for flag in flags)}"
        hint += " and the config's keys, such as --TABLE.KEY=VALUE." if keys else "."
    raise UserError(f"unknown option --{key}. {hint}")


def _config_paths(verb: ModuleType) -> dict[str, list[str]]:
    """Return {last name: dotted keys} for the keys of a verb's config."""
    return paths_by_name(verb.config()) if hasattr(verb, "config") else {}
