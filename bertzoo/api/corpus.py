"""The function that tokenises text into a corpus."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bertzoo.api.arguments import config_files
from bertzoo.api.options import TokenizeOptions
from bertzoo.core.options import takes
from bertzoo.core.tables import Record

if TYPE_CHECKING:
    from bertzoo.data.corpus.manifest import Manifest
    from bertzoo.data.settings import Data


@takes(TokenizeOptions)
def tokenize(options: TokenizeOptions) -> dict[str, Any]:
    """Tokenise text into a corpus, as `bertzoo tokenize` does; return the corpus's manifest.

    overrides: keys of [data], such as `{"data.tokenizer.vocab_size": 8000}`.
    """
    return Record(write_corpus(options).raw)


def write_corpus(options: TokenizeOptions, progress: Callable[[int, int], None] | None = None) -> "Manifest":
    """Tokenise text into a corpus. progress: as in `data.corpus.tokenize.write_corpus`."""
    from bertzoo.data.corpus import tokenize

    return tokenize.write_corpus(data_of(options), options.destination, workers=options.workers, progress=progress)


def data_of(options: TokenizeOptions) -> "Data":
    """Return the [data] settings of a corpus."""
    from bertzoo.core.config import as_options
    from bertzoo.data.settings import corpus_settings

    overrides = as_options(options.overrides)
    if not (files := config_files(options.config)):
        return corpus_settings(str(options.source), overrides)
    from bertzoo.runs.configs import Pretrain

    return corpus_settings(str(options.source), overrides, files, Pretrain)
