"""Helpers of question answering tests: a vocabulary, questions, and their files."""

import json
import string

from bertzoo.data.tokenizers.wordpiece import WordPiece, WordPieceTokenizer
from bertzoo.tasks.squad import Answer, Question

WORDS = ["the", "who", "was", "born", "in", "leader", "john", "smith", "1895", "1943", "japan", "##ese"]
WORDS += ["japanese", "##s"]
LETTERS = string.ascii_lowercase + string.digits
ENTRIES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *LETTERS, *("##" + letter for letter in LETTERS)]
ENTRIES = list(dict.fromkeys([*ENTRIES, *"().,-'!?\""]))
TOKENIZER = WordPieceTokenizer(WordPiece(), ENTRIES, "here")


def question(context, answer=None, key="q", text="who was born", start=None, impossible=False):
    """A question; its answer, if any, starts at its first occurrence unless `start` is set."""
    answers = () if answer is None else (Answer(answer, context.index(answer) if start is None else start),)
    return Question(key, text, context, answers, impossible, "an article", f"here question {key}")


def pieces(ids):
    """Ids as the vocabulary spells them."""
    return [ENTRIES[index] for index in ids]


def published(context, *asked, version="1.1"):
    """SQuAD's table of one paragraph."""
    return {"version": version, "data": [{"title": "T", "paragraphs": [{"context": context, "qas": list(asked)}]}]}


def asked(key, answer, start, **more):
    """A question of SQuAD's table."""
    return {"id": key, "question": f"what is {key}?", "answers": [{"text": answer, "answer_start": start}], **more}


def write(path, table):
    path.write_text(table if isinstance(table, str) else json.dumps(table), encoding="utf-8")
    return path
