"""Cut a model's vocabulary to the tokens of your texts, for a smaller file.

OUT is a model directory with fewer word embeddings and a smaller tokenizer, for every other command. Texts whose tokens
are all kept are split as before and have the same outputs. Tokens of one character are kept if the character occurs in
the texts, so that other words are split into characters and pieces.

examples:
  bertzoo prune vocabulary minilm minilm_small --input=questions.csv --text_a=question
  bertzoo prune vocabulary bert-base-uncased small --input=law.txt --size=8192
  bertzoo prune vocabulary runs/sst2 sst2_small --input=train.tsv --text_a=sentence
"""

from dataclasses import KW_ONLY, dataclass

from bertzoo.cli.embed import read_texts
from bertzoo.core.options import option
from bertzoo.core.paths import on_disk


@dataclass(frozen=True)
class PruneVocabularyFlags:
    model: str = option("a run, a model directory or another project's model", metavar="MODEL")
    out: str = option("a new directory", group="output", metavar="OUT")
    _: KW_ONLY
    input: str = option("texts in a TSV, CSV, JSONL, Parquet or .txt file", metavar="FILE")
    text_a: str | None = option("the column of the texts (default: text)", None, metavar="COLUMN")
    size: int = option("most tokens to keep; 0: all that occur", 0, group="output", metavar="N", least=0)


def main(options: PruneVocabularyFlags) -> int:
    from bertzoo.core import atomic
    from bertzoo.pruning.vocabulary import prune_vocabulary
    from bertzoo.runs import load_model

    out = on_disk(options.out, "OUT =", "Write a directory of this machine, and copy it.")
    texts, model = read_texts((), options.input, options.text_a), load_model.read_model(options.model)
    with atomic.new_directory(out) as folder:
        pruned = prune_vocabulary(model, texts, options.size)
        load_model.write_model(pruned, folder)
    tokens = f"{pruned.model.vocab_size:,} of {model.model.vocab_size:,} tokens"
    print(f"Wrote {options.out}: {tokens}, {pruned.parameter_count:,} of {model.parameter_count:,} parameters.")
    return 0
