"""Push a converted model directory to the Hugging Face Hub."""

import re
from pathlib import Path

from huggingface_hub import CommitOperationAdd, HfApi, get_token

from bertzoo.core.errors import UserError
from bertzoo.core.remote import remote_errors
from bertzoo.core.version import __version__


def open_hub(repository: str) -> HfApi:
    """Return the Hub as the user of this machine's token; raises UserError if there is none, or the Hub rejects it.

    Call it before the conversion, which may take minutes. repository: as in `push`.
    """
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise UserError(f"--push={repository} is not a repository of the Hugging Face Hub. Write it as ORG/NAME.")
    if get_token() is None:
        raise UserError(
            f"--push={repository} needs a token of the Hugging Face Hub that may write there, and this machine has "
            "none. Run `hf auth login`, or set HF_TOKEN."
        )
    hub = HfApi(library_name="bertzoo", library_version=__version__)
    with remote_errors(f"hf://{repository}", "written"):
        hub.whoami()
    return hub


def push(hub: HfApi, directory: Path, repository: str, card: str) -> str:
    """Commit the files of a directory to the model repository ORG/NAME, and return its URL.

    A repository that does not exist is created, and only its owners see it. card: README.md there.
    """
    files = {path.relative_to(directory).as_posix(): path for path in sorted(directory.rglob("*")) if path.is_file()}
    contents = {name: card.encode() if name == "README.md" else path for name, path in files.items()}
    with remote_errors(f"hf://{repository}", "written"):
        url = hub.create_repo(repository, private=True, exist_ok=True)
        added = [CommitOperationAdd(name, content) for name, content in contents.items()]
        hub.create_commit(repository, added, commit_message=f"Push the files of bertzoo {__version__}")
    return str(url)
