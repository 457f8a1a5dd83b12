# pyright: reportMissingImports=false
"""A stage of MobileBERT's progressive transfer, its twelfth layer under IB-BERT's, for train_step.py: ours, and one
built in PyTorch of Hugging Face's layers.

Both run the teacher and the student as far as that layer, the teacher without gradients. The student's layers so far
learn, those below at a tenth of the rate, from the layer's states (mean squared errors of the normalised states and of
their means, absolute error of their variances) and from its attention (Kullback-Leibler divergence).
"""

import copy
import tempfile
from typing import Any

import numpy as np

from benchmarks.lib import processes
from benchmarks.lib.processes import Setting, Step

LAYER, LAYERS = 12, 24
LOWER = 0.1  # rate of the layers below; as bertzoo.runs.configs, which the other side's process must not import
TINY = 1e-30  # keeps the logarithm of a probability of 0 finite
WEIGHTS = {"feature": 100.0, "mean": 5000.0, "variance": 5.0, "attention": 1.0}  # as in bertzoo.objectives


def recipe_of(rows: int, length: int, predictions: int, dtype: str = "float32") -> Any:
    """mobilebert_transfer in a number format, without a sentence head."""
    from bertzoo.core import config
    from bertzoo.runs.configs import Transfer

    values = {"transfer.batch_size": rows, "transfer.max_length": length, "transfer.max_predictions": predictions}
    values |= {"distillation.0.batch_size": rows, "distillation.0.max_length": length}
    values |= {"compute.dtype": dtype, "knowledge.dtype": dtype}
    values |= {"objective.sentence": "none", "teacher_objective.sentence": "none"}
    return config.load(Transfer, ["mobilebert_transfer"], [(key, str(value)) for key, value in values.items()])


def our_step(setting: Setting, adamw: Any, rows: int, length: int, predictions: int) -> Step:
    """A step of the stage under an AdamW; call `limit_jax` first."""
    from bertzoo.runs import experiments

    recipe = recipe_of(rows, length, predictions, setting.dtype)
    built = experiments.build_experiment(recipe)
    setup, frozen = built.setups[LAYER - 1], teacher_parameters(built.frozen_shapes)
    return processes.our_step(setup.objective, adamw, trained=setup.trained, rates=setup.rates, frozen=frozen)


def teacher_parameters(shapes: Any) -> Any:
    """Random parameters of the teacher, of these shapes and mapped from a file, as a run holds them on CPUs."""
    import jax

    from bertzoo.runs import warm_start
    from bertzoo.train.state import name_of

    most = max(leaf.size for leaf in jax.tree.leaves(shapes))
    values = 0.02 * np.random.default_rng(0).standard_normal(most, np.float32)

    def draw(path: tuple, leaf: jax.ShapeDtypeStruct) -> jax.Array:
        array = values[: leaf.size].reshape(leaf.shape) + np.float32(name_of(path[-1:]) == "scale")
        mapped = warm_start.map_array(array.astype(leaf.dtype), file)
        return jax.make_array_from_callback(leaf.shape, leaf.sharding, mapped.__getitem__)

    with tempfile.TemporaryFile() as file:
        return jax.tree.map_with_path(draw, shapes)


def flops(rows: int, length: int, predictions: int) -> int:
    """Model operations of a row in the stage."""
    from bertzoo.runs import experiments

    return experiments.build_experiment(recipe_of(rows, length, predictions)).flops(LAYER - 1)


def their_rate(name: str) -> float:
    """The factor of the rate of a trained parameter of `their_network`."""
    return 1.0 if name.startswith(f"student.encoder.layer.{LAYER - 1}.") else LOWER


def their_loss(student: Any, teacher: Any, student_map: Any, teacher_map: Any) -> Any:
    """The loss of states (B,L,D) and attention maps (B,H,L,M) in which every token counts."""
    from torch.nn import functional

    normal = [functional.layer_norm(states, states.shape[-1:]) for states in (student, teacher)]
    spread = [states.var(-1, correction=0) for states in (student, teacher)]
    logs = teacher_map.clamp_min(TINY).log() - student_map.clamp_min(TINY).log()
    terms = {
        "feature": functional.mse_loss(*normal),
        "mean": functional.mse_loss(student.mean(-1), teacher.mean(-1)),
        "variance": functional.l1_loss(*spread),
        "attention": (teacher_map * logs).sum(-1).mean(),
    }
    return sum(WEIGHTS[name] / LAYERS * term for name, term in terms.items())


def their_network() -> Any:
    """The module whose output is the stage's loss; frozen parameters require no gradient."""
    import torch
    import transformers

    plain = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "attn_implementation": "sdpa"}
    wide = {"intra_bottleneck_size": 1024, "intermediate_size": 4096, "num_feedforward_networks": 1}
    wide |= {"normalization_type": "layer_norm", "key_query_shared_bottleneck": False}
    wide |= {"hidden_act": "gelu_pytorch_tanh"}

    def build(**sizes: Any) -> tuple[Any, list[Any]]:
        """A model of the stage's layers, and the list that its last attention map is put in."""
        config = transformers.MobileBertConfig(num_hidden_layers=LAYER, **plain, **sizes)
        model, maps = transformers.MobileBertModel(config, add_pooling_layer=False), []
        if not model.config.key_query_shared_bottleneck:  # the library makes these maps too narrow for the stream
            for layer in model.encoder.layer:
                inside = layer.attention.self
                inside.query, inside.key = (torch.nn.Linear(config.hidden_size, 1024) for _ in range(2))
        attention = model.encoder.layer[-1].attention.self
        attention.config = copy.copy(config)
        attention.config._attn_implementation = "eager"  # the only one that returns the map
        attention.register_forward_hook(lambda module, inputs, outputs: maps.append(outputs[1]))
        return model, maps

    class Stage(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student, self.student_maps = build()
            self.teacher, self.teacher_maps = build(**wide)
            self.requires_grad_(False)
            self.student.encoder.layer.requires_grad_(True)

        def forward(self, **inputs: Any) -> Any:
            with torch.no_grad():
                target = self.teacher(**inputs).last_hidden_state
            states = self.student(**inputs).last_hidden_state
            return {"loss": their_loss(states, target, self.student_maps.pop(), self.teacher_maps.pop())}

    return Stage()


def inputs(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What Hugging Face's models read of a batch without padding: without a mask they are faster."""
    return {name: batch[name] for name in ("input_ids", "token_type_ids")}
