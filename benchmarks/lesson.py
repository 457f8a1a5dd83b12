# pyright: reportMissingImports=false
"""A stage of MobileBERT's progressive transfer, its twelfth layer under IB-BERT's: ours, and one built in PyTorch of
Hugging Face's layers, for train_step.py.

Both run the teacher and the student as far as that layer, the teacher without gradients, and learn the student's layers
so far, those below at a tenth of the rate, from the layer's states (the mean squared errors of normalised ones and of
their means, the absolute one of their variances) and its attention (Kullback-Leibler divergence).
"""

import copy
from typing import Any

import numpy as np
import sides
from sides import Setting, Step

LAYER, LAYERS = 12, 24
LOWER = (
    0.1  # of the rate: of the layers below; as in bertzoo.runs.transfer_config, which the other side does not import
)
TINY = 1e-30  # a probability that vanished has a logarithm
WEIGHTS = {"feature": 100.0, "mean": 5000.0, "variance": 5.0, "attention": 1.0}  # as in bertzoo.objectives


def recipe_of(rows: int, length: int, predictions: int, dtype: str = "float32") -> Any:
    """mobilebert_transfer in a number format, without a sentence head."""
    from bertzoo.core import config
    from bertzoo.runs.transfer_config import Transfer

    sizes = {"transfer.batch_size": rows, "transfer.max_length": length, "transfer.max_predictions": predictions}
    sizes |= {"distillation.0.batch_size": rows, "distillation.0.max_length": length}
    fixed = {"compute.dtype": dtype, "knowledge.dtype": dtype}
    fixed |= {"objective.sentence": "none", "teacher_objective.sentence": "none"}
    return config.load(Transfer, ["mobilebert_transfer"], [(key, str(value)) for key, value in (sizes | fixed).items()])


def setup_of(recipe: Any) -> Any:
    """What the stage trains, and by which loss."""
    from bertzoo.runs import phases

    return phases.of(recipe)[LAYER - 1]


def our_step(setting: Setting, adamw: Any, rows: int, length: int, predictions: int) -> Step:
    """One step of the stage, under an AdamW; after `keep_to`."""
    import jax
    import transfer_step  # which imports JAX: not in the other side's process

    recipe = recipe_of(rows, length, predictions, setting.dtype)
    setup = setup_of(recipe)
    frozen = jax.tree.map(lambda leaf: leaf.astype(setting.dtype), transfer_step.teacher_parameters(recipe))
    return sides.our_step(setup.objective, adamw, trained=setup.trained, rates=setup.rates, frozen=frozen)


def flops(rows: int, length: int, predictions: int) -> int:
    """Model operations of one row of the stage."""
    from bertzoo.runs import phases

    return phases.model_flops(recipe_of(rows, length, predictions), LAYER - 1)


def their_rate(name: str) -> float:
    """Of a parameter of `their_network` that learns, as a factor."""
    return 1.0 if name.startswith(f"student.encoder.layer.{LAYER - 1}.") else LOWER


def their_loss(found: Any, wanted: Any, mine: Any, theirs: Any) -> Any:
    """Of states (B,L,D) and attention maps (B,H,L,M) of the student and of the teacher, every token counting."""
    from torch.nn import functional

    normal = [functional.layer_norm(each, each.shape[-1:]) for each in (found, wanted)]
    spread = [each.var(-1, correction=0) for each in (found, wanted)]
    apart = {
        "feature": functional.mse_loss(*normal),
        "mean": functional.mse_loss(found.mean(-1), wanted.mean(-1)),
        "variance": functional.l1_loss(*spread),
        "attention": (theirs * (theirs.clamp_min(TINY).log() - mine.clamp_min(TINY).log())).sum(-1).mean(),
    }
    return sum(WEIGHTS[name] / LAYERS * each for name, each in apart.items())


def their_network() -> Any:
    """The module whose output has the stage's loss; what it does not learn asks for no gradient."""
    import torch
    import transformers

    plain = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "attn_implementation": "sdpa"}
    wide = {"intra_bottleneck_size": 1024, "intermediate_size": 4096, "num_feedforward_networks": 1}
    wide |= {"normalization_type": "layer_norm", "key_query_shared_bottleneck": False}
    wide |= {"hidden_act": "gelu_pytorch_tanh"}

    def looked_into(**sizes: Any) -> tuple[Any, list[Any]]:
        """A model of so many layers, and where its last one puts its attention."""
        config = transformers.MobileBertConfig(num_hidden_layers=LAYER, **plain, **sizes)
        model, seen = transformers.MobileBertModel(config, add_pooling_layer=False), []
        if not model.config.key_query_shared_bottleneck:  # theirs have not the width of the stream that they then read
            for layer in model.encoder.layer:
                inside = layer.attention.self
                inside.query, inside.key = (torch.nn.Linear(config.hidden_size, 1024) for _ in range(2))
        attention = model.encoder.layer[-1].attention.self
        attention.config = copy.copy(config)
        attention.config._attn_implementation = "eager"  # which alone gives the map
        attention.register_forward_hook(lambda module, given, found: seen.append(found[1]))
        return model, seen

    class Lesson(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student, self.mine = looked_into()
            self.teacher, self.theirs = looked_into(**wide)
            self.requires_grad_(False)
            self.student.encoder.layer.requires_grad_(True)

        def forward(self, **given: Any) -> Any:
            with torch.no_grad():
                wanted = self.teacher(**given).last_hidden_state
            found = self.student(**given).last_hidden_state
            return {"loss": their_loss(found, wanted, self.mine.pop(), self.theirs.pop())}

    return Lesson()


def batch(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What Hugging Face's models read of a batch in which every token is real: without a mask they are the faster."""
    return {name: given[name] for name in ("input_ids", "token_type_ids")}
