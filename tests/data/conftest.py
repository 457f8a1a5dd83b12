"""A small corpus of made-up text, tokenised once for each test process."""

import pytest
from made_up import made_up_documents, small, write_documents

from bertzoo.data.corpus.reader import Corpus
from bertzoo.data.corpus.tokenize import tokenize


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """400 documents in several shards, about 100,000 tokens."""
    directory = tmp_path_factory.mktemp("corpus")
    source = write_documents(directory / "text.txt", made_up_documents(400))
    return tokenize(small(source), directory / "tokenised", workers=1)
