"""BERT (Devlin et al. 2019), https://arxiv.org/abs/1810.04805."""

from dataclasses import dataclass
from typing import Literal

from bertzoo.models.compute import ACTIVATIONS, Activation, Compute
from bertzoo.models.parts import Pretraining, bert_like, check_divides, check_sizes, leaves
from bertzoo.nn import Dropout, FeedForward, SelfAttention


@dataclass(frozen=True, kw_only=True)
class Bert:
    """Sizes of BERT; the defaults are BERT-base (§3)."""

    kind: Literal["bert"] = "bert"
    vocab_size: int = 30522
    hidden_size: int = 768
    layers: int = 12
    heads: int = 12
    feed_forward_size: int = 3072
    max_positions: int = 512
    token_types: int = 2
    activation: Activation = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    initializer_range: float = 0.02
    norm_epsilon: float = 1e-12

    def __post_init__(self):
        check_sizes(self)
        check_divides("hidden_size", self.hidden_size, heads=self.heads)

    def pretraining(self, compute: Compute, sentence: bool) -> Pretraining:
        """The pretraining model; `sentence` adds the two-way sentence head."""
        make = leaves(compute, self.initializer_range, self.norm_epsilon)
        split = (self.heads, self.hidden_size // self.heads)

        def attention():
            return SelfAttention(
                query=make.dense(split, "model", "heads", "head_size"),
                key=make.dense(split, "model", "heads", "head_size"),
                value=make.dense(split, "model", "heads", "head_size"),
                output=make.dense(self.hidden_size, "heads", "head_size", "model"),
                dropout=Dropout(self.attention_dropout),
            )

        def feed_forward():
            return FeedForward(
                intermediate=make.dense(self.feed_forward_size, "model", "feed_forward"),
                output=make.dense(self.hidden_size, "feed_forward", "model"),
                activation=ACTIVATIONS[self.activation],
            )

        return bert_like(self, make, attention, feed_forward, sentence)
