"""Rules for formats whose files take texts: the heads, labels, tasks and tokenizers that such a file can have."""

from collections.abc import Sequence

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core.errors import UserError
from bertzoo.data.tokenizers.wordpiece import WordPiece
from bertzoo.export.options import TEXT_FORMATS
from bertzoo.tasks.glue import GLUE


def check_text_model(to: str, pretrained: Pretrained) -> None:
    """Raise UserError if the format `to`, one of TEXT_FORMATS, cannot hold a model."""
    problem = _problem(to, pretrained)
    if problem:
        raise UserError(f"--to={to}: {problem}. Use --to={TEXT_FORMATS[to]}, and tokenise in the app.")
    if to == "mediapipe":
        _check_labels(getattr(pretrained.head, "labels", ()))


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


def _check_labels(labels: Sequence[str]) -> None:
    """Raise UserError for labels that labels.txt cannot hold as one line each, or that are equal."""
    for place, label in enumerate(labels):
        if not label.strip() or not {*"\0\r\n"}.isdisjoint(label) or label in labels[:place]:
            raise UserError(
                f"--to=mediapipe: the label {label!r}, at index {place}, is empty, has a line break or "
                "NUL byte, or occurs twice, but MediaPipe needs a line for each label. Rename it in the model's config."
            )
