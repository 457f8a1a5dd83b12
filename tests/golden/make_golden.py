# pyright: reportMissingImports=false
"""Make the golden files: `python tests/golden/make_golden.py` in the environment of `make test-all`.

Each file holds a tiny random Hugging Face model (every tensor randomised, biases and norms too) under our names and in
our layouts, one padded batch of pairs, and what Hugging Face and torch make of them in float64: hidden states,
attention probabilities, logits, losses, gradients, and the parameters after one step of torch's AdamW and of Google's
LAMB.
"""

import json
from pathlib import Path

import layouts
import numpy as np
import reference
import torch

HERE = Path(__file__).parent

# Epsilons far above a float32 gradient's rounding: Adam's first step is g/(|g|+eps), and the gradient of a key bias is
# zero on paper (a softmax does not see a constant), so that a small eps would compare the signs of rounding errors.
ADAMW = {"learning_rate": 2e-2, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.1}
LAMB = {"learning_rate": 2e-2, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-4, "weight_decay": 0.1, "clip_norm": 1.0}

WIDTHS = {
    "vocab_size": 97,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 56,
}
WIDTHS |= {"max_position_embeddings": 13, "type_vocab_size": 2}
GROUPS = {"q_groups": 2, "k_groups": 3, "v_groups": 4, "post_attention_groups": 1, "intermediate_groups": 4}
GROUPS |= {"output_groups": 2, "embedding_size": WIDTHS["hidden_size"]}
# Hugging Face's DistilBERT has names of its own.
DISTILBERT = {"vocab_size": 97, "dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 56, "max_position_embeddings": 13}
EMBEDDING = {"embedding_size": 10}
# As released, but for the sizes: shared bottleneck, no_norm, relu, no pooler; every width is another one.
MOBILEBERT = WIDTHS | {"embedding_size": 10, "intra_bottleneck_size": 12, "intermediate_size": 20}
MOBILEBERT |= {"num_feedforward_networks": 2, "classifier_activation": False}
# Half of the heads attend, 2 of size 6; embeddings of another width than the layers; windows of 5 in rows of 6 to 11.
CONVOLUTION = {"num_attention_heads": 4, "embedding_size": 20, "conv_kernel_size": 5, "head_ratio": 2, "num_groups": 2}
GENERATOR = {"hidden_size": 12, "num_attention_heads": 1, "intermediate_size": 48}  # of half the width


def excluded(path: str) -> bool:
    """Whether neither weight decay nor the trust ratio touches a leaf: biases and the norms' scales."""
    return path.rsplit("/", 1)[1] in ("bias", "scale")


def adamw_step(model: torch.nn.Module, hyper: dict[str, float]) -> None:
    """One step of `torch.optim.AdamW`, in place, without decay on biases and norms."""
    named = list(model.named_parameters())
    plain = [p for name, p in named if name.endswith("bias") or "norm" in name.lower()]
    decayed = [p for name, p in named if not (name.endswith("bias") or "norm" in name.lower())]
    groups = [{"params": decayed, "weight_decay": hyper["weight_decay"]}, {"params": plain, "weight_decay": 0.0}]
    betas = (hyper["beta1"], hyper["beta2"])
    torch.optim.AdamW(groups, lr=hyper["learning_rate"], betas=betas, eps=hyper["epsilon"]).step()


def lamb_step(params: layouts.Tensors, grads: layouts.Tensors, hyper: dict[str, float]) -> layouts.Tensors:
    """One step of LAMB from zero moments as Google released it: no bias correction, global-norm clip before it."""
    norm = np.sqrt(sum(np.square(g).sum() for g in grads.values()))
    scale = hyper["clip_norm"] / max(norm, hyper["clip_norm"])
    new = {}
    for path, w in params.items():
        g = grads[path] * scale
        m, v = (1 - hyper["beta1"]) * g, (1 - hyper["beta2"]) * g**2
        update, ratio = m / (np.sqrt(v) + hyper["epsilon"]), 1.0
        if not excluded(path):
            update = update + hyper["weight_decay"] * w
            w_norm, u_norm = np.linalg.norm(w), np.linalg.norm(update)
            ratio = w_norm / u_norm if w_norm > 0 and u_norm > 0 else 1.0
        new[path] = w - hyper["learning_rate"] * ratio * update
    return new


def golden(kind: str, settings: dict, seed: int, epsilon: float = 1e-3) -> dict[str, np.ndarray]:
    """Everything there is to compare of one tiny model, flat, float32; `epsilon` is AdamW's."""
    hyper = ADAMW | {"epsilon": epsilon}
    model = reference.MODELS[kind](settings)
    reference.randomise(model, np.random.default_rng(seed))
    batch = reference.random_batch(np.random.default_rng(seed + 1), settings["vocab_size"], lengths=(11, 8, 6))
    out = model(batch)
    out["loss"].backward()
    convert = getattr(layouts, kind)
    heads = settings.get("num_attention_heads") or settings["n_heads"]
    params = convert({n: p.detach().numpy().copy() for n, p in model.model.named_parameters()}, heads)
    grads = convert({n: p.grad.numpy().copy() for n, p in model.model.named_parameters()}, heads)
    adamw_step(model.model, hyper)
    stepped = convert({n: p.detach().numpy() for n, p in model.model.named_parameters()}, heads)
    trees = {"params": params, "gradients": grads, "adamw": stepped, "lamb": lamb_step(params, grads, LAMB)}
    flat = {
        f"{tree}/{path}": array.astype(np.float32) for tree, leaves in trees.items() for path, array in leaves.items()
    }
    flat |= {f"outputs/{name}": value.detach().numpy().astype(np.float32) for name, value in out.items()}
    flat |= {f"batch/{name}": array for name, array in batch.items()}
    return flat | {"settings": np.array(json.dumps({"model": settings, "adamw": hyper, "lamb": LAMB}))}


def replaced(settings: dict, generator: dict, weight: float, seed: int) -> dict[str, np.ndarray]:
    """As `golden`, of a discriminator and its generator, without steps of the optimisers."""
    model = reference.Electra(settings, settings | generator, weight)
    reference.randomise(model, np.random.default_rng(seed))
    random = np.random.default_rng(seed + 1)
    batch = reference.random_batch(random, settings["vocab_size"], lengths=(11, 8, 6))
    batch["drawn"] = reference.drawn(random, batch, settings["vocab_size"])
    out = model(batch)
    out["loss"].backward()
    heads = settings["num_attention_heads"], generator["num_attention_heads"]
    named = dict(model.named_parameters())
    trees = {
        "params": layouts.electra({n: p.detach().numpy() for n, p in named.items()}, *heads),
        "gradients": layouts.electra({n: p.grad.numpy() for n, p in named.items()}, *heads),
        "outputs": {name: value.detach().numpy() for name, value in out.items()},
    }
    flat = {
        f"{tree}/{path}": leaf.astype(np.float32) for tree, leaves in trees.items() for path, leaf in leaves.items()
    }
    flat |= {f"batch/{name}": array for name, array in batch.items()}
    return flat | {"settings": np.array(json.dumps({"model": settings, "weight": weight}))}


def grouped(cases: dict[str, dict[str, int]], seed: int) -> dict[str, np.ndarray]:
    """torch's Conv1d in our layout, (B, L, I) x (W, I/G, O): output, and gradients of <output, cotangent>."""
    random, flat = np.random.default_rng(seed), {}
    for name, case in cases.items():
        conv = torch.nn.Conv1d(**case).double()
        reference.randomise(conv, random)
        x = torch.tensor(random.normal(size=(2, 9, case["in_channels"])).astype(np.float32)).double().requires_grad_()
        y = conv(x.transpose(1, 2)).transpose(1, 2)
        cotangent = torch.tensor(random.normal(size=y.shape).astype(np.float32)).double()
        dx, dkernel, dbias = torch.autograd.grad((y * cotangent).sum(), [x, conv.weight, conv.bias])
        tensors = {"x": x, "kernel": conv.weight.permute(2, 1, 0), "bias": conv.bias, "cotangent": cotangent, "y": y}
        tensors |= {"dx": dx, "dkernel": dkernel.permute(2, 1, 0), "dbias": dbias}
        flat |= {f"{name}/{key}": value.detach().numpy().astype(np.float32) for key, value in tensors.items()}
        flat[f"{name}/case"] = np.array(json.dumps(case))
    return flat


def conv_case(inputs: int, outputs: int, window: int, groups: int, **more: int) -> dict[str, int]:
    """The arguments of `torch.nn.Conv1d` for one case."""
    return {"in_channels": inputs, "out_channels": outputs, "kernel_size": window, "groups": groups, **more}


GROUPED = {
    "window1_groups4": conv_case(24, 56, 1, 4),
    "window1_dense": conv_case(10, 6, 1, 1),
    "window3_groups2": conv_case(8, 12, 3, 2, padding=1),
    "window3_valid": conv_case(8, 12, 3, 2),
    "window3_stride2": conv_case(6, 9, 3, 3, stride=2, padding=1),
    "window3_dilation2": conv_case(6, 4, 3, 2, dilation=2, padding=2),
    "window4_even": conv_case(6, 4, 4, 2, padding=3, stride=3, dilation=2),
    "depthwise": conv_case(10, 10, 3, 10, padding=1),
    "depthwise_multiplier2": conv_case(5, 10, 9, 5, padding=4),
}


if __name__ == "__main__":
    # A step divides by a gradient's size: of elements that are mostly rounding, epsilon has to be the larger.
    files = {"bert": golden("bert", WIDTHS, seed=1, epsilon=1e-2)}
    # A seed without gradients that are small differences of large terms, as sentence_head/bias can be with three rows:
    # that would compare the rounding of one processor with that of another.
    files["squeezebert"] = golden("squeezebert", WIDTHS | GROUPS, seed=10, epsilon=1e-2)
    # The shared layer's gradients are sums over its passes, and round the more.
    albert = WIDTHS | EMBEDDING | {"hidden_act": "gelu_new"}
    files["albert"] = golden("albert", albert, seed=4, epsilon=1e-2)
    files["distilbert"] = golden("distilbert", DISTILBERT, seed=5)
    # The embedding's gradients have come through every stacked feed-forward, without a norm, and round the more too.
    files["mobilebert"] = golden("mobilebert", MOBILEBERT, seed=6, epsilon=1e-2)
    files["electra"] = replaced(WIDTHS | EMBEDDING, GENERATOR, weight=50.0, seed=6)
    # An element of its token types' gradient is 5e-7, no larger than the rounding of its neighbours.
    files["convbert"] = golden("convbert", WIDTHS | CONVOLUTION, seed=6, epsilon=1e-2)
    files["grouped"] = grouped(GROUPED, seed=3)
    for name, arrays in files.items():
        np.savez_compressed(HERE / f"{name}.npz", allow_pickle=False, **arrays)
        print(name, (HERE / f"{name}.npz").stat().st_size, "bytes")
