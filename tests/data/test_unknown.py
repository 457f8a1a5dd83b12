"""Words that the vocabulary lacks: their share in the manifest, and where it stops or warns."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_up import made_up_documents, small, write_documents
from messages import mentioning, mentions

from bertzoo.core.errors import CorpusError
from bertzoo.data.corpus.reader import Corpus
from bertzoo.data.corpus.tokenize import tokenize, write_corpus
from bertzoo.data.settings import Data
from bertzoo.data.tokenizers.sentencepiece import SentencePiece

FOREIGN = "Мороз и солнце день чудесный еще ты дремлешь друг прелестный"


@pytest.fixture(scope="module", params=["wordpiece", "sentencepiece"])
def trained(request, tmp_path_factory) -> Data:
    """The settings of a text, with the vocabulary trained on it."""
    folder = tmp_path_factory.mktemp(request.param)
    data = small(write_documents(folder / "text.txt", made_up_documents(60)))
    if request.param == "sentencepiece":
        data = replace(data, tokenizer=SentencePiece(vocab_size=200))
    tokenizer = tokenize(data, folder / "corpus", workers=1).tokenizer
    return replace(data, tokenizer=replace(data.tokenizer, path=str(folder / "corpus" / "tokenizer" / tokenizer.file)))


def mixed(data: Data, folder: Path, every: int, before: int = 0) -> Data:
    """The settings of a text where one document of `every` is foreign, behind `before` sentences that are not."""
    documents = made_up_documents(60, longest=10)
    for index in range(0, 60, every):
        documents[index] = documents[index + 1][:1] * before + [FOREIGN] * (10 + 2 * before)
        documents[index][-1] += f" {index}"  # else it would equal the others
    return replace(data, source=str(write_documents(folder / "mixed.txt", documents)))


def test_the_manifest_counts_unknown_words_and_entries_in_use(logged, trained, tmp_path):
    data = mixed(trained, tmp_path, every=12)
    manifest = write_corpus(data, tmp_path / "c", workers=1)
    corpus = Corpus.open(tmp_path / "c")
    tokens = {split: np.concatenate(list(corpus.stream(split))) for split in ("train", "heldout")}
    counts = {split: Counter(array.tolist()) for split, array in tokens.items()}
    unk = corpus.tokenizer.specials.unk
    for split, record in manifest.splits.items():
        assert (record.unknown, record.entries) == (counts[split][unk], len(counts[split]))
    share = sum(count[unk] for count in counts.values()) / sum(map(len, tokens.values()))
    assert manifest.unknown_share == share and 0.01 < share < 0.2
    (line,) = logged
    assert mentions(line, f"{share:.1%}", "[UNK]", tmp_path / "c")


def test_text_in_another_script_stops_before_the_tokenisation(trained, tmp_path):
    data = mixed(trained, tmp_path, every=2)
    with pytest.raises(CorpusError, match=mentioning("[UNK]", data.source, "data.tokenizer.path")):
        write_corpus(data, tmp_path / "c", workers=1)
    assert not (tmp_path / "c").exists()  # the place is free for the corrected command


def test_the_folder_of_a_vocabulary_is_not_its_file(trained, tmp_path):
    folder = Path(trained.tokenizer.path).parent
    data = replace(trained, tokenizer=replace(trained.tokenizer, path=str(folder)))
    with pytest.raises(CorpusError, match=mentioning(folder, "directory", Path(trained.tokenizer.path).name)):
        tokenize(data, tmp_path / "c", workers=1)


def test_unknown_text_after_a_known_beginning_stops_at_the_end(trained, tmp_path):
    data = mixed(trained, tmp_path, every=2, before=100)
    with pytest.raises(CorpusError, match=mentioning("[UNK]", tmp_path / "c")):
        write_corpus(data, tmp_path / "c", workers=1)
    assert Corpus.open(tmp_path / "c").manifest.unknown_share > 0.2


def test_text_in_the_vocabulary_logs_no_warning(logged, trained, tmp_path):
    write_corpus(trained, tmp_path / "c", workers=1)
    assert not logged
