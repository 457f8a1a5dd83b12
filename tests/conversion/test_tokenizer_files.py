"""Tokenizer files of a Hugging Face directory: ids equal the libraries', and errors."""

import io
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sentencepiece
import tiny_bert
import tokenizers as library
import zoo
from messages import mentioning, mentions
from tokenizers import models, normalizers, pre_tokenizers

import bertzoo
from bertzoo.cli.main import main
from bertzoo.conversion import huggingface, tokenizers
from bertzoo.core.errors import UserError
from bertzoo.data.tokenizers.sentencepiece import SentencePiece
from bertzoo.heads import NoHead
from bertzoo.models import Bert, ConvBert
from bertzoo.runs import load_model

SPECIALS = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
SPECIALS |= {"mask_token": "[MASK]"}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "model", "Model", "##s", "été", "ete", "Été", "Ete"]
WORDS += ["中", "文", "中文", "中##文", "##文", "."]
TEXT = "A model, Models of a\tmodel. été ete Été ÉTÉ中文 中 a中文 models中"
OPTIONS = {**SPECIALS, "tokenizer_class": "BertTokenizer", "model_max_length": 16, "padding_side": "left"}
ADDED = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
SETTINGS = [
    {"do_lower_case": lower, "strip_accents": strip, "tokenize_chinese_chars": split}
    for lower, strip, split in itertools.product([True, False], [None, True, False], [True, False])
]


def dump(path: Path, table: Any) -> None:
    path.write_text(json.dumps(table), encoding="utf-8")


def reference(lower: bool, strip: bool | None, split: bool) -> library.Tokenizer:
    """BERT's tokenizer of the library alone."""
    numbers = {word: number for number, word in enumerate(WORDS)}
    made = library.Tokenizer(models.WordPiece(numbers, unk_token="[UNK]", max_input_chars_per_word=100))
    made.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=split, strip_accents=strip, lowercase=lower
    )
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def ids(tokenizer: Any, text: str = TEXT) -> list[int]:
    return tokenizer.encode_batch([text])[0].tolist()


def test_the_settings_differ_on_the_text():
    found = {tuple(reference(*setting.values()).encode(TEXT).ids) for setting in SETTINGS}
    assert len(found) == 8  # strip_accents unset is as do_lower_case


@pytest.mark.parametrize("files", ["vocab.txt", "tokenizer.json", "both", "generic"])
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: "-".join(map(str, setting.values())))
def test_wordpiece_has_the_ids_of_the_library(files: str, setting: dict[str, Any], tmp_path):
    theirs = reference(*setting.values())
    said = OPTIONS | setting
    if files in ("vocab.txt", "both"):
        (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    if files != "vocab.txt":
        theirs.save(str(tmp_path / "tokenizer.json"))
    if files == "generic":  # a class without options of its own, which ignores them
        said = {"tokenizer_class": "TokenizersBackend", "do_lower_case": not setting["do_lower_case"]}
    dump(tmp_path / "tokenizer_config.json", said)
    ours = tokenizers.read_tokenizer(tmp_path)
    assert ours is not None and ids(ours) == theirs.encode(TEXT).ids
    (tmp_path / "out").mkdir()
    sizes = SimpleNamespace(token_types=2, max_positions=9, vocab_size=len(WORDS))
    tokenizers.write_tokenizer(ours, tmp_path / "out", sizes)
    written = library.Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert written.encode(TEXT, add_special_tokens=False).ids == ids(ours)
    pair = written.encode(TEXT, TEXT)  # [CLS] A [SEP] of type 0, B [SEP] of type 1
    assert pair.type_ids == [0] * (len(ids(ours)) + 2) + [1] * (len(ids(ours)) + 1)
    again = tokenizers.read_tokenizer(tmp_path / "out")
    assert again is not None and ids(again) == ids(ours)


@pytest.fixture(scope="module")
def pieces() -> bytes:
    texts = ["A model, Models of a model.", "été ete Été ÉTÉ Ete", "a model of models, ete, été"] * 9
    made = SentencePiece(vocab_size=60, lowercase=False, strip_accents=False).train(lambda: iter(texts))
    return made.contents


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(("lower", "keep"), list(itertools.product([True, False], [True, False])))
def test_sentencepiece_has_the_ids_of_the_library(pieces: bytes, whole: bool, lower: bool, keep: bool, tmp_path):
    steps: list[Any] = [] if keep else [normalizers.NFKD(), normalizers.StripAccents()]
    steps += [normalizers.Lowercase()] if lower else []
    text = "A Model of models été Été ÉTÉ Ete"
    processor = sentencepiece.SentencePieceProcessor(model_proto=pieces)
    expected = processor.encode(normalizers.Sequence(steps).normalize_str(text))
    write_pieces(tmp_path, pieces, lower, keep)
    if not whole:
        (tmp_path / "tokenizer.json").unlink()
    ours = tokenizers.read_tokenizer(tmp_path)
    assert ours is not None and ids(ours, text) == expected
    if whole:
        options = {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": not lower}
        dump(tmp_path / "tokenizer_config.json", options)
        generic = tokenizers.read_tokenizer(tmp_path)
        assert generic is not None and ids(generic, text) == expected
        table = json.loads((tmp_path / "tokenizer.json").read_text())
        table["normalizer"] = {"type": "Sequence", "normalizers": [table["normalizer"]]}
        dump(tmp_path / "tokenizer.json", table)
        nested = tokenizers.read_tokenizer(tmp_path)
        assert nested is not None and ids(nested, text) == expected
        theirs = library.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        assert theirs.encode(text, add_special_tokens=False).ids == expected


def write_pieces(folder: Path, pieces: bytes, lower: bool = True, keep: bool = False) -> None:
    (folder / "model").write_bytes(pieces)
    made = SentencePiece(path=str(folder / "model"), lowercase=lower, strip_accents=not keep).load()
    (folder / "model").unlink()
    sizes = SimpleNamespace(token_types=2, max_positions=9, vocab_size=made.vocab_size)
    tokenizers.write_tokenizer(made, folder, sizes)


Change = Callable[[dict[str, Any]], Any]


def options(**changes: Any) -> tuple[str, Change]:
    return "tokenizer_config.json", lambda table: table | changes


def special(**changes: Any) -> tuple[str, Change]:
    return "special_tokens_map.json", lambda table: table | changes


def whole(*path: Any, value: Any) -> tuple[str, Change]:
    """tokenizer.json with another value at a path."""

    def change(table: dict[str, Any]) -> dict[str, Any]:
        place: Any = table
        for key in path[:-1]:
            place = place[key]
        if path[-1] == "append":
            place.append(value)
        else:
            place[path[-1]] = value
        return table

    return "tokenizer.json", change


def new(name: str, table: Any) -> tuple[str, Change]:
    return name, lambda _: table


MODEL = {"content": "model", "id": 6, **ADDED}
REFUSED: dict[str, tuple[tuple[str, Change], tuple]] = {
    "another mask": (options(mask_token="model"), ("tokenizer_config.json", "mask_token", "'model'", "'[MASK]'")),
    "another mask in full": (options(mask_token=MODEL), ("tokenizer_config.json", "mask_token", "'model'", "'[MASK]'")),
    "another pad": (special(pad_token="a"), ("special_tokens_map.json", "pad_token", "'a'", "'[PAD]'")),
    "another bos": (options(bos_token="<s>"), ("bos_token", "'<s>'", "'[CLS]'")),
    "more specials": (options(additional_special_tokens=["model"]), ("additional_special_tokens", "'model'")),
    "more in a map": (special(extra_special_tokens={"e": "model"}), ("extra_special_tokens", "'model'")),
    "unknown in a map": (special(image_token="a"), ("image_token", "'a'")),
    "another class": (options(tokenizer_class="RobertaTokenizer"), ("tokenizer_class", "'RobertaTokenizer'")),
    "own code": (options(auto_map={"AutoTokenizer": ["own.Own", None]}), ("auto_map", "own.Own")),
    "of pieces": (options(tokenizer_class="AlbertTokenizer"), ("'AlbertTokenizer'", "wordpiece")),
    "no cutting": (options(do_basic_tokenize=False), ("do_basic_tokenize", False, True)),
    "whole words": (options(never_split=["a"]), ("never_split", "['a']", None)),
    "text for a bool": (options(do_lower_case="false"), ("do_lower_case", "'false'")),
    "added_tokens.json": (new("added_tokens.json", {"new": 19}), ("added_tokens.json", "'new'", 19)),
    "an entry added": (new("added_tokens.json", {"model": 6}), ("added_tokens.json", "'model'", "6")),
    "a decoder": (options(added_tokens_decoder={"19": {"content": "new"}}), ("tokenizer_config.json", "'new'", 19)),
    "a number": (options(added_tokens_decoder={"5": {"content": "[MASK]"}}), ("tokenizer_config.json", "'[MASK]'", 5)),
    "no decoder": (options(added_tokens_decoder=["a"]), ("tokenizer_config.json", "added_tokens_decoder")),
    "an added token": (whole("added_tokens", "append", value=MODEL), ("tokenizer.json", "'model'", "6")),
    "a gap": (whole("model", "vocab", "new", value=40), ("tokenizer.json", 20, 19)),
    "no vocabulary": (whole("model", "vocab", value=None), ("tokenizer.json", "model.vocab")),
    "unk_token": (whole("model", "unk_token", value="a"), ("model.unk_token", "'a'")),
    "long words": (whole("model", "max_input_chars_per_word", value=9), ("max_input_chars_per_word", 9)),
    "a prefix": (whole("model", "continuing_subword_prefix", value="@"), ("continuing_subword_prefix", "'@'")),
    "normalizer": (whole("normalizer", value={"type": "NFC"}), ("normalizer.type", "'NFC'")),
    "unclean": (whole("normalizer", "clean_text", value=False), ("normalizer.clean_text", False)),
    "words": (whole("pre_tokenizer", value={"type": "Whitespace"}), ("pre_tokenizer.type", "'Whitespace'")),
}


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A directory with every file of transformers 4."""
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    made = reference(True, None, True)
    made.add_special_tokens(WORDS[:5])
    made.save(str(tmp_path / "tokenizer.json"))
    decoder = {str(number): {"content": word, **ADDED} for number, word in enumerate(WORDS[:5])}
    more = {"added_tokens_decoder": decoder, "do_basic_tokenize": True, "never_split": None, "bos_token": None}
    more |= {"clean_up_tokenization_spaces": True, "extra_special_tokens": {}, "name_or_path": "x"}
    dump(tmp_path / "tokenizer_config.json", OPTIONS | more)
    dump(tmp_path / "special_tokens_map.json", SPECIALS | {"mask_token": {"content": "[MASK]", **ADDED}})
    return tmp_path


def test_the_files_of_transformers_4_are_read(good: Path):
    dump(good / "added_tokens.json", {"[MASK]": 4})
    assert ids(tokenizers.read_tokenizer(good)) == reference(True, None, True).encode(TEXT).ids


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_would_change_ids_raise(case: str, good: Path):
    (name, change), parts = REFUSED[case]
    path = good / name
    dump(path, change(json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}))
    with pytest.raises(UserError, match=mentioning(*parts)):
        tokenizers.read_tokenizer(good)


REFUSED_PIECES: dict[str, tuple[tuple[str, Change], tuple]] = {
    "spaces": (options(remove_space=False), ("remove_space", False, True)),
    "sampling": (options(sp_model_kwargs={"alpha": 0.1}), ("sp_model_kwargs", "'alpha'", None)),
    "of words": (options(tokenizer_class="BertTokenizer"), ("'BertTokenizer'", "sentencepiece")),
    "another unknown": (options(unk_token="[UNK]"), ("unk_token", "'[UNK]'", "'<unk>'")),
}


@pytest.mark.parametrize("case", REFUSED_PIECES)
def test_settings_that_would_change_pieces_raise(case: str, pieces: bytes, tmp_path):
    write_pieces(tmp_path, pieces)
    assert tokenizers.read_tokenizer(tmp_path) is not None
    (name, change), parts = REFUSED_PIECES[case]
    dump(tmp_path / name, change(json.loads((tmp_path / name).read_text(encoding="utf-8"))))
    with pytest.raises(UserError, match=mentioning(*parts)):
        tokenizers.read_tokenizer(tmp_path)


def trained(texts: list[str], **options: Any) -> bytes:
    """A model with ids 0 and 1 of padding and unknown pieces."""
    model, kinds = io.BytesIO(), {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, hard_vocab_limit=False, minloglevel=2, **kinds, **options
    )
    return model.getvalue()


def test_other_spellings_are_carried(tmp_path):
    symbols = ["[CLS]", "[SEP]", "[MASK]", "9,"]
    own = {"pad_piece": "[PAD]", "unk_piece": "[UNK]", "user_defined_symbols": symbols}
    write_pieces(tmp_path, trained(["a bc, ab, bc"] * 9, vocab_size=16, **own))
    table = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert (table["pad_token"], table["unk_token"]) == ("[PAD]", "[UNK]")
    ours, theirs = tokenizers.read_tokenizer(tmp_path), library.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert ours is not None and theirs.get_vocab_size() == ours.vocab_size and theirs.token_to_id("[PAD]") == 0


def numbers() -> bytes:
    """A model with pieces that join a number and the comma after it, as ALBERT's has."""
    texts = ["in 1990, 12, 15, and 1,999, we had 9, then a, b. 1,000 or 2,500,"] * 20
    texts += ["the 1990 1991 12 15 9 were , alone"] * 10
    split = {"split_by_unicode_script": False, "split_by_number": False}
    return trained(texts, vocab_size=60, pad_piece="<pad>", control_symbols=["[CLS]", "[SEP]", "[MASK]"], **split)


def encode_pieces(processor: Any, text: str) -> list[str]:
    """ALBERT's own (google-research/albert, tokenization.py)."""
    made = []
    for piece in processor.encode(text, out_type=str):
        if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
            parts = processor.encode(piece[:-1].replace("▁", ""), out_type=str)
            if piece[0] != "▁" and parts[0][0] == "▁":
                parts = parts[1:] if len(parts[0]) == 1 else [parts[0][1:], *parts[1:]]
            made += [*parts, ","]
        else:
            made.append(piece)
    return made


def test_numbers_are_cut_from_their_commas(tmp_path):
    """As in ALBERT's code, and as the releases' tokenizer.json does it by scores."""
    write_pieces(tmp_path, numbers())
    processor = sentencepiece.SentencePieceProcessor(model_proto=numbers())
    ours, theirs = tokenizers.read_tokenizer(tmp_path), library.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert ours is not None
    for text in ("in 1990, 12, 15, and 1,999, we", "1,000 or 2,500,", "9, a9,", "x12, 1990", "a2, b2,", "we had a, b"):
        expected = [processor.piece_to_id(piece) for piece in encode_pieces(processor, text)]
        assert ids(ours, text) == theirs.encode(text, add_special_tokens=False).ids == expected
        joined = processor.encode(text)
        assert (joined != expected) == any(processor.id_to_piece(i)[-2:] in ("1,", "2,") for i in joined)
    assert processor.encode("1,000 or 2,500,") != ids(ours, "1,000 or 2,500,")
    assert ours.decode(ids(ours, "1,000 or 2,500,")) == "1,000 or 2,500,"


def test_settings_without_a_vocabulary_raise(good: Path):
    for name in ("vocab.txt", "tokenizer.json"):
        (good / name).unlink()
    with pytest.raises(UserError, match=mentioning("tokenizer_config.json", "tokenizer.json", "vocab.txt", "spiece")):
        tokenizers.read_tokenizer(good)


OVERRIDES: dict[str, tuple[tuple[str, Change], tuple[bool, bool | None, bool]]] = {
    "cased": (options(do_lower_case=False), (False, None, True)),
    "cased in tokenizer.json alone": (whole("normalizer", "lowercase", value=False), (True, None, True)),
    "accents": (options(strip_accents=False), (True, False, True)),
    "joined": (options(tokenize_chinese_chars=False), (True, None, False)),
}


@pytest.mark.parametrize("case", OVERRIDES)
def test_tokenizer_config_overrides_tokenizer_json_as_in_transformers(case: str, good: Path, caplog):
    (name, change), setting = OVERRIDES[case]
    dump(good / name, change(json.loads((good / name).read_text(encoding="utf-8"))))
    assert ids(tokenizers.read_tokenizer(good)) == reference(*setting).encode(TEXT).ids
    (line,) = caplog.messages
    assert mentions(line, good / "tokenizer.json", f"lowercase = {setting[0]}", f"split_cjk = {setting[2]}")


def test_the_first_of_the_vocabularies_is_read(good: Path, pieces: bytes):
    (good / "vocab.txt").write_text("other\n")
    assert ids(tokenizers.read_tokenizer(good)) == reference(True, None, True).encode(TEXT).ids
    (good / "tokenizer_config.json").unlink()
    (good / "special_tokens_map.json").unlink()
    (good / "tokenizer.json").unlink()
    write_pieces(good, pieces)
    expected = ids(tokenizers.read_tokenizer(good))
    table = json.loads((good / "tokenizer.json").read_text(encoding="utf-8"))
    table["model"]["vocab"][9][0] = "other"
    dump(good / "tokenizer.json", table)
    assert ids(tokenizers.read_tokenizer(good)) == expected


def test_the_verb_carries_a_cased_tokenizer(tmp_path):
    source = tiny_bert.write(tmp_path / "source")
    words = [word.upper() if word == "b" else word for word in tiny_bert.WORDS]
    (source / "vocab.txt").write_text("\n".join(words) + "\n")
    dump(source / "tokenizer_config.json", {"do_lower_case": False})
    expected = [words.index(word) for word in ("B", "[UNK]", "a")]
    paths = {"bertzoo": source, "pytorch": tmp_path / "bertzoo", "huggingface": tmp_path / "bertzoo"}
    for target, origin in paths.items():
        assert main(["convert", str(origin), str(tmp_path / target), f"--to={target}"]) == 0
    assert ids(bertzoo.load(tmp_path / "bertzoo").tokenizer, "B b a") == expected
    for target in ("pytorch", "huggingface"):
        theirs = library.Tokenizer.from_file(str(tmp_path / target / "tokenizer.json"))
        assert theirs.encode("B b a").ids == [2, *expected, 3]


def test_a_missing_tokenizer_is_logged(tmp_path, capsys):
    source = tiny_bert.write(tmp_path / "source")
    (source / "vocab.txt").unlink()
    assert main(["convert", str(source), str(tmp_path / "out"), "--to=bertzoo"]) == 0
    said = capsys.readouterr().err
    assert mentions(said, source, tmp_path / "out", "no tokenizer") and said.count("\n") == 1


def test_our_own_vocabulary_is_checked(tmp_path):
    assert main(["convert", str(tiny_bert.write(tmp_path / "source")), str(tmp_path / "out"), "--to=bertzoo"]) == 0
    vocabulary = tmp_path / "out" / "tokenizer" / "vocab.txt"
    vocabulary.write_text("\n".join(tiny_bert.WORDS[:-9]) + "\n")
    with pytest.raises(UserError, match=mentioning(11, 20)):
        load_model.read_model(tmp_path / "out")


@pytest.mark.parametrize("model", [ConvBert, Bert])
def test_no_row_is_frozen_by_default(model: Any, tmp_path):
    more = {"embedding_size": 6, "mask_padding": False, "kernel_size": 3} if model is ConvBert else {}
    huggingface.write_huggingface(zoo.pretrained(model(**zoo.SIZES, **zoo.LAYERS, **more), NoHead()), tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["pad_token_id"] == 0
