"""Convert a model from any directory to a model directory of another format, or to a verified file for phones."""

import hashlib
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bertzoo.conversion import heads, huggingface, pytorch, tensors, tokenizers
from bertzoo.conversion.family import Inexpressible
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core import atomic, config
from bertzoo.core.errors import UserError
from bertzoo.core.kinds import model_name
from bertzoo.core.paths import Location
from bertzoo.core.version import __version__
from bertzoo.data.tokenizers.sentencepiece import SentencePieceTokenizer
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.data.tokenizers.wordpiece import LONGEST_WORD, WordPiece, WordPieceTokenizer
from bertzoo.export import card
from bertzoo.export.check import golden, verify
from bertzoo.export.check.quiz import Quiz, build_quiz, score_file
from bertzoo.export.companions import companions, interrupted_write, read_metadata
from bertzoo.export.formats import FileSettings, Target, flops_by_signature, targets
from bertzoo.export.graph.reference import training_graph
from bertzoo.export.options import FILES, SUFFIXES, TEXT_FORMATS, ExportOptions
from bertzoo.finetuning.labels import name_classes
from bertzoo.finetuning.question_answering import noted_options
from bertzoo.runs import load_model
from bertzoo.tasks.glue import GLUE

_LOG = logging.getLogger(__name__)

FEW = 16  # fewer calibration texts rarely give good scales for int8-static

# (options, model config, file, length, names of the inputs) -> peak bytes of a process that runs the file once
Memory = Callable[[ExportOptions, Any, Path, int, tuple[str, ...]], int]


class Converted(NamedTuple):
    """The converted model, a file's metadata JSON or None, and whether this call, not an earlier one, wrote it."""

    model: Pretrained
    description: dict[str, Any] | None
    written: bool = True


def convert(source: Location, destination: Path, options: ExportOptions, memory: Memory) -> Converted:
    """Read the model in `source` and write it to `destination`, which appears only when it is complete.

    An exported file is first compared with its model. memory: a function that measures the memory of running a file.

    Raises UserError if model or destination does not fit the options, ExportFailed if a file cannot be written or
    differs from its model.
    """
    if os.path.realpath(source) == os.path.realpath(destination):
        raise UserError(f"SRC and DST are both {source}. Name another DST.")
    if options.to in FILES:
        return _convert_to_file(source, destination, options, memory)
    # A repeated command finds the directory that it wrote.
    repeat = os.path.isfile(destination / (load_model.MODEL if options.to == "bertzoo" else "config.json"))
    if not repeat:
        atomic.check_new_directory(destination)
    pretrained = _read_model(source, options)
    if options.pooling is not None:
        pretrained = heads.add_pooling(pretrained, options.pooling)
    pretrained = heads.shape_vectors(pretrained, options.size, None)
    write = {
        "huggingface": huggingface.write_huggingface,
        "bertzoo": load_model.write_model,
        "pytorch": pytorch.write_pytorch,
    }[options.to]
    form = options.to
    with atomic.new_directory(destination, repeat) as temporary:
        try:
            write(pretrained, temporary)
        except Inexpressible as error:
            _LOG.info(f"{error}; wrote a PyTorch module instead, as --to=pytorch does")
            pytorch.write_pytorch(pretrained, temporary)
            form = "pytorch"
        page = card.directory_card(temporary, destination.name, form, pretrained, _origin(pretrained))
        (temporary / "README.md").write_text(page, encoding="utf-8")
    if repeat:
        _LOG.info(f"{destination} was complete already, with the same files")
    if pretrained.tokenizer is None:
        _LOG.info(f"{source} has no tokenizer, so {destination} has none either")
    return Converted(pretrained, None, not repeat)


def _read_model(source: Location, options: ExportOptions) -> Pretrained:
    """Read a model and apply the options for head, licence and padding; log the names of dropped parameters."""
    pretrained = load_model.read_model(source)
    if options.head is not None:
        pretrained, dropped = heads.keep_head(pretrained, options.head)
        for name in dropped:
            _LOG.info(f"left out: {name}")
    if pretrained.generator is not None and options.head is None:
        _LOG.info(f"left out: the generator (--head={pretrained.generator.head.kind} takes it)")
    if options.license is not None:
        pretrained = replace(pretrained, source=pretrained.source | {"license": options.license})
    return heads.leak_padding(pretrained) if options.leak_padding else pretrained


def _convert_to_file(source: Location, destination: Path, options: ExportOptions, memory: Memory) -> Converted:
    """Convert a model to a file; check packages and destination before the model is read, which can take minutes."""
    target = targets(options.python or Path(sys.executable))[options.to]
    if destination.suffix != (suffix := SUFFIXES[options.to]):
        raise UserError(f"DST = {destination} must end in {suffix}. Rename it.")
    packages = target.check()
    names = companions(destination)
    atomic.remove_leftovers(destination)
    written = os.path.isfile(destination)
    existing = (read_metadata(destination) or {}) if written else interrupted_write(destination)
    if "request" not in existing:
        atomic.check_new_file(destination, *names)
    texts = _calibration_texts(options)
    named = name_classes(_read_model(source, options))
    pretrained = heads.shape_vectors(heads.add_pooling(named, options.pooling), options.size, options.output)
    if texts and pretrained.tokenizer is None:
        raise UserError(
            f"--calibration={options.calibration} needs a tokenizer to read its texts with, but {source} has none. "
            "Convert a model with its tokenizer."
        )
    if options.to in TEXT_FORMATS:
        check_text_model(options.to, pretrained)
    request = _request(options, pretrained, texts, packages)
    if existing:
        complete = pretrained.tokenizer is None or destination.with_name(names[1]).is_dir()
        if existing["request"] != request or (written and not complete):
            atomic.check_new_file(destination, *names)
        if written:
            _LOG.info(f"{destination} was complete already: the same command wrote it")
            return Converted(pretrained, existing, written=False)
        _LOG.info(f"{destination} is written anew, because a killed command had begun to write it")
    settings = FileSettings(
        lengths=target.lengths(pretrained, options.lengths or ()),
        precision=options.precision or "fp32",  # pyright: ignore[reportArgumentType] (ExportOptions has checked it)
        calibration=texts,
    )
    with load_model.local_model(source) as local:
        quiz = build_quiz(local, pretrained, max(settings.lengths), options.examples)
    with atomic.new_files(destination, *names, replace=bool(existing)) as temporary:
        measure = partial(memory, options, pretrained.model)
        description = write_file(
            target, pretrained, temporary / destination.name, settings, quiz, measure, request, packages
        )
    if pretrained.tokenizer is None:
        _LOG.info(f"{source} has no tokenizer, so the file was verified on random ids")
    return Converted(pretrained, description)


def write_file(
    target: Target,
    pretrained: Pretrained,
    file: Path,
    settings: FileSettings,
    quiz: Quiz | None,
    memory: Callable[[Path, int, tuple[str, ...]], int],
    request: str,
    packages: Mapping[str, str],
) -> dict[str, Any]:
    """Write a file, its metadata JSON and, if the model has a tokenizer, its companion folder; return the JSON.

    quiz: examples to score the file and the model on, or None.
    memory: (file, length, names of the inputs) -> peak bytes of running the file.
    request: a hash of all that the file depends on, for the JSON.
    packages: versions of the packages that write and verify the file, for the JSON.

    Raises ExportFailed if the file's outputs differ from the model's, or its scores are lower.
    """
    reference = target.reference(pretrained, training_graph(pretrained))
    lengths, tokenizer = settings.lengths, pretrained.tokenizer
    facts = target.make(pretrained, reference, settings, file)
    with target.load(file) as run:
        errors = verify.verify_outputs(run, reference, tokenizer, lengths, settings.precision)
        scores, exam = (None, None) if quiz is None else score_file(run, reference, quiz, lengths)
        if scores is not None:
            verify.check_scores(scores, settings.precision)
        examples = None if tokenizer is None else golden.golden_rows(run, reference, tokenizer, lengths)
        examples = examples and [row for row in examples if target.pairs or len(row["texts"]) == 1]
        facts |= target.prove(file, run, pretrained, lengths)
    decoding = {}  # settings that choose answers from a span head's outputs
    if pretrained.head.form == "question":
        options, nulls = noted_options(pretrained.source, pretrained.head)
        decoding = {"decoding": config.plain(options.decoding(nulls))}
    description = {
        "bertzoo": __version__,
        "format": target.name,
        "precision": settings.precision,
        "parameters": pretrained.parameter_count,
        "layers": pretrained.model.layers,
        "bytes": file.stat().st_size,
        "memory": memory(file, lengths[-1], reference.inputs),
        "sha256": atomic.file_hash(file),
        "request": request,
        "packages": packages,
        "model": config.plain(pretrained.model),
        "head": config.plain(pretrained.head),
        **({} if tokenizer is None else {"tokenizer": _describe_tokenizer(tokenizer)}),
        **decoding,
        "source": _origin(pretrained),
        "inputs": {name: "int32" for name in reference.inputs},
        "sentences": "random ids" if tokenizer is None else list(verify.TEXT),
        **({} if "flops" in facts else {"flops": flops_by_signature(reference, lengths)}),
        **facts,
        "limits": verify.LIMITS[settings.precision]._asdict(),
        "signatures": errors,
        "scores": scores,
    }
    document, folder = (file.with_name(name) for name in companions(file))
    document.write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    if tokenizer is not None:
        folder.mkdir()
        tokenizers.write_tokenizer(tokenizer, folder, pretrained.model, beside_file=True)
        (folder / "README.md").write_text(card.card(file.name, description), encoding="utf-8")
        (folder / "golden.json").write_text(json.dumps(examples) + "\n", encoding="utf-8")
        if exam is not None and target.name == "litert":  # a task's rows for `bertzoo phone`
            (folder / "exam.json").write_text(json.dumps(exam) + "\n", encoding="utf-8")
    return description


def _request(options: ExportOptions, pretrained: Pretrained, texts: Sequence[str], packages: Mapping[str, str]) -> str:
    """Return the SHA-256 of all that a file depends on."""
    tokenizer = None
    if pretrained.tokenizer is not None:
        digest = hashlib.sha256(pretrained.tokenizer.contents).hexdigest()
        tokenizer = [_describe_tokenizer(pretrained.tokenizer), digest]
    choices = asdict(options) | {"calibration": None, "python": None}
    facts = [__version__, packages, choices, texts, _origin(pretrained), tokenizer]
    facts += [config.plain(pretrained.model), config.plain(pretrained.head)]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _origin(pretrained: Pretrained) -> dict[str, Any]:
    """Return a model's source, with paths shortened by `model_name`, and the SHA-256 of the model's parameters.

    For vectors of texts, also `vectors_digest`, by which an index knows a file as its model.
    """
    source = {
        key: model_name(str(value)) if key in ("path", "from") else value for key, value in pretrained.source.items()
    }
    vectors = {"vectors_sha256": heads.vectors_digest(pretrained)} if pretrained.head.task_kind == "embedding" else {}
    return source | {"parameters_sha256": tensors.digest(pretrained.params | pretrained.unused)} | vectors


def _describe_tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return a tokenizer's kind, vocabulary file and size, rules, and special tokens with their ids."""
    specials = {name: {"token": tokenizer.token(i), "id": i} for name, i in asdict(tokenizer.specials).items()}
    facts = {"kind": tokenizer.config.kind, "file": tokenizer.file, "entries": tokenizer.vocab_size}
    limits: dict[str, Any] = {"longest_word": LONGEST_WORD} if isinstance(tokenizer, WordPieceTokenizer) else {}
    if isinstance(tokenizer, SentencePieceTokenizer) and not tokenizers.is_unigram(tokenizer.contents):
        limits = {"algorithm": "bpe"}
    return facts | {"normalization": tokenizer.config.normalization, **limits, "specials": specials}


def _calibration_texts(options: ExportOptions) -> tuple[str, ...]:
    """Return the lines of --calibration, or none without it; raises UserError if the file has no usable texts."""
    if (file := options.calibration) is None:
        return ()
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise UserError(f"--calibration={file} is not UTF-8 text. Convert it to UTF-8.") from None
    except OSError as error:
        raise UserError(f"--calibration={file} cannot be read: {error.strerror}. Name another file.") from None
    texts = tuple(line for line in lines if line.strip())
    if not texts:
        raise UserError(f"--calibration={file} is empty. Give texts, one per line.")
    for text in texts:
        if (tabs := text.count("\t")) > 1:
            raise UserError(
                f"--calibration={file} has a line of {tabs + 1} texts, but a row has at most two: {text[:60]!r}. "
                "Remove the further tabs."
            )
    if len(texts) < FEW:
        _LOG.info(f"--calibration={file} has {len(texts)} texts; fewer than {FEW} rarely give good scales")
    return texts


def check_text_model(to: str, pretrained: Pretrained) -> None:
    """Raise UserError if the format `to`, one of TEXT_FORMATS, cannot hold a model."""
    problem = _problem(to, pretrained)
    if problem:
        raise UserError(f"--to={to}: {problem}. Use --to={TEXT_FORMATS[to]}, and tokenise in the app.")
    labels = pretrained.head.labels if to == "mediapipe" else ()
    for index, label in enumerate(labels):
        if not label.strip() or not {*"\0\r\n"}.isdisjoint(label) or label in labels[:index]:
            raise UserError(
                f"--to=mediapipe: the label {label!r}, at index {index}, is empty, has a line break or "
                "NUL byte, or occurs twice, but MediaPipe needs a line for each label. Rename it in the model's config."
            )


def _problem(to: str, pretrained: Pretrained) -> str:
    """Return why a format cannot hold a model, as a clause; empty if it can."""
    head, tokenizer = pretrained.head, pretrained.tokenizer and pretrained.tokenizer.config
    if not head.probabilities:
        return (
            f"the results of the head {head.kind} refer to tokens, which an app that passes a text does not see; only "
            "classifiers and embeddings take texts"
        )
    if not isinstance(tokenizer, WordPiece):
        return f"the tokenizer must be WordPiece, but the model has {tokenizer.kind if tokenizer else 'none'}"
    if to != "mediapipe":
        return ""
    if head.task_kind == "regression":
        return "this model predicts a number, but MediaPipe's classifier predicts labels"
    task = pretrained.source.get("task")
    if (task in GLUE and GLUE[task].pair) or pretrained.source.get("own", {}).get("text_b"):
        return "the model's task has pairs of texts, but MediaPipe takes one text"
    return "" if tokenizer.lowercase else "MediaPipe lower-cases every text, but this tokenizer keeps upper case"
