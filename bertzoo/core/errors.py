"""Exceptions that end a command with one clear sentence and an exit code."""


class UserError(Exception):
    """Wrong user input; the message says what is wrong, where, and what to do (exit code 2)."""

    exit_code = 2


class ConfigError(UserError):
    """A wrong config file or option; the message names the key."""


class CorpusError(UserError):
    """Text, a tokenizer or a tokenised corpus that cannot be used; the message names the file."""


class CheckpointError(UserError):
    """A checkpoint that cannot be used; the message names the file."""


class SaveError(CheckpointError):
    """A checkpoint that could not be written; the message names the last good one (exit code 1)."""

    exit_code = 1


class NonFinite(Exception):
    """A loss that is not finite; the message names step, records and last good checkpoint (exit code 1)."""

    exit_code = 1


class Stopped(Exception):
    """A run that a signal stopped after saving; the same command resumes it (exit code 3)."""

    exit_code = 3


class HostLost(Exception):
    """A run of several processes of which another one ended or never joined; start all of them again (exit code 4)."""

    exit_code = 4
