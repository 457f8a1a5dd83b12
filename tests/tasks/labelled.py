"""Small files in GLUE's layout, and a tokenizer of single characters and a few words."""

from pathlib import Path

from bertzoo.data.tokenizers.wordpiece import WordPiece, WordPieceTokenizer

# The columns of GLUE's own files, by the split's sort; the text of column i of row r is "{name} {r}".
STSB = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
MNLI = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse"
    "\tsentence2_parse\tsentence1\tsentence2"
)
PAIR = "index\tsentence1\tsentence2"
HEADERS = {
    "cola": (None, "index\tsentence"),
    "sst2": ("sentence\tlabel", "index\tsentence"),
    "mrpc": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "index\t#1 ID\t#2 ID\t#1 String\t#2 String"),
    "stsb": (f"{STSB}\tscore", STSB),
    "qqp": ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "id\tquestion1\tquestion2"),
    "mnli": (f"{MNLI}\tlabel1\tgold_label", MNLI),
    "qnli": ("index\tquestion\tsentence\tlabel", "index\tquestion\tsentence"),
    **dict.fromkeys(("rte", "wnli"), (f"{PAIR}\tlabel", PAIR)),
    "ax": (None, PAIR),
}
FOLDERS = {"cola": "CoLA", "sst2": "SST-2", "mrpc": "MRPC", "stsb": "STS-B", "ax": "diagnostic"}
FOLDERS = {name: FOLDERS.get(name, name.upper()) for name in HEADERS}
# Where the texts and the label lie (text_a, text_b, label), as BERT's and ELECTRA's code have it.
PAIRS = (1, 2, 3), (1, 2)
COLUMNS = {
    "cola": ((3, None, 1), (1, None)),
    "sst2": ((0, None, 1), (1, None)),
    "mrpc": ((3, 4, 0), (3, 4)),
    "stsb": ((-3, -2, -1), (-2, -1)),
    "qqp": ((3, 4, 5), (1, 2)),
    "mnli": ((8, 9, -1), (8, 9)),
    **dict.fromkeys(("qnli", "rte", "wnli"), PAIRS),
    "ax": (None, (1, 2)),
}
# BERT's lists of labels, in the order of the logits.
LABELS = dict.fromkeys(("cola", "sst2", "mrpc", "qqp", "wnli"), ("0", "1")) | {"stsb": None}
LABELS |= dict.fromkeys(("mnli", "ax"), ("contradiction", "entailment", "neutral"))
LABELS |= dict.fromkeys(("qnli", "rte"), ("entailment", "not_entailment"))


def write(path: Path, *lines: str) -> Path:
    """A file of these lines, its directory made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(("\n".join(lines) + "\n").encode())
    return path


def write_split(name: str, split: str, directory: Path) -> list[list[str]]:
    """Write three rows of a task under the header that GLUE gives the split; return their cells."""
    header, labels = HEADERS[name][split.startswith("test")], LABELS[name] or ("0.000", "5.0", "2.4")
    width = len(header.split("\t")) if header else 4
    rows = [[f"cell {row} {column}" for column in range(width)] for row in range(3)]
    for nth, row in enumerate(rows):
        if split.startswith("test"):
            row[0] = str(nth)
        else:
            row[COLUMNS[name][0][2]] = labels[nth % len(labels)]
    file = "diagnostic" if name == "ax" else split
    write(directory / FOLDERS[name] / f"{file}.tsv", *filter(None, [header]), *("\t".join(row) for row in rows))
    return rows


def tokenizer() -> WordPieceTokenizer:
    """[PAD] [UNK] [CLS] [SEP] [MASK], the letters with and without ##, and three words."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["the", "cat", "sat"]
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters), *words]
    return WordPieceTokenizer(WordPiece(vocab_size=len(entries)), entries, "made here")
