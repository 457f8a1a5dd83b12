"""The exceptions a person may see: one clear sentence each, with an exit code."""


class UserError(Exception):
    """The user's input is wrong; the message is one sentence that says what to do (exit code 2)."""

    exit_code = 2


class ConfigError(UserError):
    """A config file or an option is wrong; the message names the key."""


class CorpusError(UserError):
    """Text, a tokenizer or a tokenised corpus cannot be used; the message names the file."""


class CheckpointError(UserError):
    """A checkpoint cannot be used; the message names the file."""


class SaveError(CheckpointError):
    """A checkpoint could not be written; the message names the last good one (exit code 1)."""

    exit_code = 1


class NonFinite(Exception):
    """The loss is not a finite number; the message names step, records and last good checkpoint (exit code 1)."""

    exit_code = 1


class Stopped(Exception):
    """A signal stopped the run after it was saved; running the same command again resumes it (exit code 3)."""

    exit_code = 3


class HostLost(Exception):
    """Another process of the run is gone or never came; all are to be run again (exit code 4)."""

    exit_code = 4
