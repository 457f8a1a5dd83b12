# pyright: reportMissingImports=false
"""A stage of MobileBERT's progressive transfer, its twelfth layer under IB-BERT's: ours, and one built in PyTorch of
Hugging Face's layers, for train_step.py.

Both run the teacher and the student as far as that layer, the teacher without gradients, and learn its parameters alone
from the layer's states (mean squared error of normalised ones) and its attention (Kullback-Leibler divergence).
"""

import copy
import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import sides
import transfer_step
from sides import Step

LAYER = 12


def recipe_of(rows: int, length: int, predictions: int) -> Any:
    """mobilebert_transfer in float32, without a sentence head."""
    from bertzoo import config
    from bertzoo.transfer import Transfer

    sizes = {"transfer.batch_size": rows, "transfer.max_length": length, "transfer.max_predictions": predictions}
    sizes |= {"distillation.0.batch_size": rows, "distillation.0.max_length": length}
    fixed = {"compute.dtype": "float32", "knowledge.dtype": "float32"}
    fixed |= {"objective.sentence": "none", "teacher_objective.sentence": "none"}
    return config.load(Transfer, ["mobilebert_transfer"], [(key, str(value)) for key, value in (sizes | fixed).items()])


def our_step(threads: int, adamw: Any, rows: int, length: int, predictions: int) -> Step:
    """One step of the stage, under an AdamW."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    from bertzoo import phases

    recipe = recipe_of(rows, length, predictions)
    phase = phases.of(recipe)[LAYER - 1]
    frozen = transfer_step.teacher_parameters(recipe)
    return sides.our_step(phase.objective, adamw, trained=phase.trained, rates=phase.rates, frozen=frozen)


def flops(rows: int, length: int, predictions: int) -> int:
    """Model operations of one row of the stage."""
    from bertzoo import phases

    return phases.model_flops(recipe_of(rows, length, predictions), LAYER - 1)


def their_network() -> Any:
    """The module whose output has the stage's loss; what it does not learn asks for no gradient."""
    import torch
    import transformers
    from torch.nn import functional

    plain = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "attn_implementation": "sdpa"}
    wide = {"intra_bottleneck_size": 1024, "intermediate_size": 4096, "num_feedforward_networks": 1}
    wide |= {"normalization_type": "layer_norm", "hidden_act": "gelu", "key_query_shared_bottleneck": False}

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
            self.student.encoder.layer[-1].requires_grad_(True)

        def forward(self, **given: Any) -> Any:
            with torch.no_grad():
                wanted = self.teacher(**given).last_hidden_state
            found = self.student(**given).last_hidden_state
            states = [functional.layer_norm(each, each.shape[-1:]) for each in (found, wanted)]
            mine, theirs = self.mine.pop(), self.theirs.pop()
            divergence = (theirs * (theirs.clamp_min(1e-9).log() - mine.clamp_min(1e-9).log())).sum(-1).mean()
            return SimpleNamespace(loss=functional.mse_loss(*states) + divergence)

    return Lesson()


def batch(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What Hugging Face's models read of a batch."""
    return {name: given[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
