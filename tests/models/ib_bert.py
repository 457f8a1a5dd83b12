"""IB-BERT, and MobileBERT as its paper's Table 1 counts it, in plain numpy and float64, from the equations of its §3
and the authors' order of the trigram.

It shares no code with the package, takes the parameters by their documented names, and loops over what the package
computes at once: rows, heads, tokens and their neighbours.
"""

from collections.abc import Callable

import numpy as np

Params = dict[str, np.ndarray]
Norm = Callable[[Params, str, np.ndarray, float], np.ndarray]
Activation = Callable[[np.ndarray], np.ndarray]


def gelu(x: np.ndarray) -> np.ndarray:
    """The tanh approximation, which the authors' code has."""
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def dense(p: Params, name: str, x: np.ndarray) -> np.ndarray:
    return x @ p[f"{name}/kernel"] + p[f"{name}/bias"]


def layer_norm(p: Params, name: str, x: np.ndarray, epsilon: float) -> np.ndarray:
    deviation = np.sqrt(x.var(axis=-1, keepdims=True) + epsilon)
    return (x - x.mean(axis=-1, keepdims=True)) / deviation * p[f"{name}/scale"] + p[f"{name}/bias"]


def no_norm(p: Params, name: str, x: np.ndarray, epsilon: float) -> np.ndarray:
    """§3.4.1: elementwise and linear."""
    return p[f"{name}/scale"] * x + p[f"{name}/bias"]


def embed(p: Params, ids: np.ndarray, types: np.ndarray, mask: np.ndarray, masked: bool) -> np.ndarray:
    """(L,) -> (L,D), before the norm; `masked`: whether the neighbours that are padding are zeros."""
    words = p["embedding/word/embedding"][ids]
    if masked:
        words = words * mask[:, None]
    zero, rows = np.zeros(words.shape[1]), []
    for t in range(len(ids)):
        following = words[t + 1] if t + 1 < len(ids) else zero
        previous = words[t - 1] if t > 0 else zero
        kernel = p["embedding/transformation/kernel"]
        row = following @ kernel[0] + words[t] @ kernel[1] + previous @ kernel[2] + p["embedding/transformation/bias"]
        rows.append(row + p["embedding/position/embedding"][t] + p["embedding/token_type/embedding"][types[t]])
    return np.array(rows)


def layer(
    p: Params, name: str, x: np.ndarray, mask: np.ndarray, epsilon: float, norm: Norm, activation: Activation
) -> tuple[np.ndarray, np.ndarray]:
    """(L,D) -> (L,D) and the probabilities (H,L,M): queries, keys and values read the wide stream."""
    b = norm(p, f"{name}/bottleneck/norm", dense(p, f"{name}/bottleneck/dense", x), epsilon)
    heads, attended = [], np.zeros_like(b) + p[f"{name}/attention/output/bias"]
    for h in range(p[f"{name}/attention/query/kernel"].shape[1]):
        q, k, v = (
            x @ p[f"{name}/attention/{part}/kernel"][:, h] + p[f"{name}/attention/{part}/bias"][h]
            for part in ("query", "key", "value")
        )
        scores = np.where(mask > 0, q @ k.T / np.sqrt(q.shape[1]), -np.inf)
        heads.append(np.array([softmax(row) for row in scores]))
        attended += heads[-1] @ v @ p[f"{name}/attention/output/kernel"][h]
    b = norm(p, f"{name}/attention_norm", b + attended, epsilon)
    for j in range(sum(path.startswith(f"{name}/feed_forward_norm_") for path in p) // 2):  # a scale and a bias each
        inner = activation(dense(p, f"{name}/feed_forward_{j}/intermediate", b))
        b = norm(p, f"{name}/feed_forward_norm_{j}", b + dense(p, f"{name}/feed_forward_{j}/output", inner), epsilon)
    return norm(p, f"{name}/output_norm", x + dense(p, f"{name}/output", b), epsilon), np.array(heads)


def forward(
    p: Params,
    batch: dict,
    layers: int,
    masked: bool,
    epsilon: float,
    norm: Norm = layer_norm,
    activation: Activation = gelu,
) -> dict[str, np.ndarray]:
    """Hidden states (N+1,B,L,D), attentions (N,B,H,L,M), pooled, logits of both heads, and the MLM loss.

    Without a pooler the first token itself is the pooled one; the masked head has a true LayerNorm in any case.
    """
    out: dict[str, list] = {
        name: [] for name in ("hidden_states", "attentions", "pooled", "masked_logits", "sentence_logits")
    }
    loss = weight = 0.0
    for row, ids in enumerate(batch["input_ids"]):
        mask = batch["attention_mask"][row]
        embedded = embed(p, ids, batch["token_type_ids"][row], mask, masked)
        states, attentions = [norm(p, "embedding/norm", embedded, epsilon)], []
        for n in range(layers):
            x, probabilities = layer(p, f"encoder/layers_{n}", states[-1], mask, epsilon, norm, activation)
            states.append(x)
            attentions.append(probabilities)
        z = states[-1][batch["masked_positions"][row]]
        z = layer_norm(p, "masked_head/norm", activation(dense(p, "masked_head/dense", z)), epsilon)
        table = np.hstack([p["embedding/word/embedding"], p["masked_head/extra/kernel"].T])
        logits = z @ table.T + p["masked_head/bias"]
        for slot, used in enumerate(batch["masked_weights"][row]):
            loss -= used * np.log(softmax(logits[slot])[batch["masked_ids"][row][slot]])
            weight += used
        pooled = np.tanh(dense(p, "pooler", states[-1][0])) if "pooler/kernel" in p else states[-1][0]
        found = states, attentions, pooled, logits, dense(p, "sentence_head", pooled)
        for name, value in zip(out, found, strict=True):
            out[name].append(np.array(value))
    arrays = {name: np.array(rows) for name, rows in out.items()}
    arrays |= {name: arrays[name].swapaxes(0, 1) for name in ("hidden_states", "attentions")}
    return arrays | {"masked_loss": np.array(loss / weight)}
