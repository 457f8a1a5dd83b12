# pyright: reportMissingImports=false
"""Hugging Face -> ours -> Hugging Face, live, every family and head at random odd sizes; run by `make test-all`."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparing import assert_close, assert_output_close, needs

needs("torch", "transformers")

import reference
import torch
import transformers
from safetensors.numpy import load_file
from torch.nn.functional import cross_entropy

import bertzoo
from bertzoo.cli.main import main
from bertzoo.conversion import huggingface, rules, tokenizers
from bertzoo.data.tokenizers.byte_bpe import ByteBpe
from bertzoo.data.tokenizers.sentencepiece import SentencePiece
from bertzoo.runs import load_model

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "##d", "##e", "##f", "the", "model", ".", ","]
TEXT = "The  mödel, abcd. zzz ADE Ω"


SENTENCE_LOGITS = {"AlbertForPreTraining": "sop_logits"} | dict.fromkeys(
    ("BertForPreTraining", "MobileBertForPreTraining"), "seq_relationship_logits"
)


def architectures() -> list[tuple[str, str]]:
    """Every (class, our kind of head) that transformers has for the families here."""
    found = []
    for family in huggingface.FAMILIES:
        found += [(layout.architecture, key) for key, layout in family.heads.items()]
    return found


# What queries, keys and values are read from, and whether there is a pooler (the library's default) where one fits.
SHARED = {"key_query_shared_bottleneck": True}
OWN = {"use_bottleneck_attention": True, "key_query_shared_bottleneck": False}
PLAIN = {"use_bottleneck": False, "key_query_shared_bottleneck": False}
MOBILEBERTS = {
    "MobileBertModel": PLAIN | {"classifier_activation": True},
    "MobileBertForMaskedLM": OWN | {"classifier_activation": False},
    "MobileBertForPreTraining": SHARED | {"classifier_activation": True},
    "MobileBertForSequenceClassification": SHARED | {"classifier_activation": False},
    "MobileBertForTokenClassification": PLAIN | {"classifier_activation": False},
    "MobileBertForQuestionAnswering": OWN | {"classifier_activation": True},
}
# Their embeddings are as wide as their layers, so that nothing stands between.
UNPROJECTED = ("ElectraForPreTraining", "ElectraForMaskedLM", "ConvBertModel")


def random_settings(random: np.random.Generator, name: str, family: str) -> dict[str, Any]:
    """Sizes that share few factors, odd ones but where groups or ConvBERT's two sorts of heads are in the way; labels,
    activation and dropouts that are not the defaults.
    """
    heads = int(random.choice([3, 5]))
    width, inner, layers = heads * (2 * int(random.integers(2, 6)) + 1), 2 * int(random.integers(6, 30)) + 1, 2
    vocabulary, positions = 8 * int(random.integers(5, 12)), int(random.integers(24, 34))
    activation = str(random.choice(["gelu", "gelu_new", "relu"]))
    labels = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}
    if family == "DistilBert":
        sizes = {"dim": width, "n_layers": layers, "n_heads": heads, "hidden_dim": inner, "activation": activation}
        return {**sizes, **labels, "vocab_size": vocabulary, "max_position_embeddings": positions, "dropout": 0.2}
    settings = {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "hidden_act": activation,
        "max_position_embeddings": positions,
        "type_vocab_size": int(random.integers(2, 4)),
        "hidden_dropout_prob": 0.3,
        **labels,
    }
    if family == "ModernBert":
        for lacking in ("type_vocab_size", "hidden_dropout_prob", "hidden_act"):
            del settings[lacking]
        own = {"num_hidden_layers": 4, "hidden_size": heads * (width // heads + 1), "local_attention": 6}
        rates = {"embedding_dropout": 0.1, "mlp_dropout": 0.1, "attention_dropout": 0.2}
        rates |= {"classifier_dropout": 0.3} if name.endswith(("Classification", "Answering")) else {}
        rates |= {"classifier_pooling": "mean"} if name.endswith("SequenceClassification") else {}
        acts = {"hidden_activation": activation, "classifier_activation": activation}
        ids = {
            f"{token}_token_id": index
            for token, index in zip(("pad", "cls", "sep", "bos", "eos"), (0, 2, 3, 2, 3), strict=True)
        }
        settings |= own | rates | acts | ids | {"global_attn_every_n_layers": 2, "global_rope_theta": 500.0}
    if family == "SqueezeBert":
        names = ("q", "k", "v", "post_attention", "intermediate", "output")
        settings |= {f"{part}_groups": int(random.choice([1, 2, 4])) for part in names}
        settings |= {"hidden_size": 4 * width, "intermediate_size": 4 * inner, "embedding_size": 4 * width}
    if family == "ConvBert":
        heads = int(random.choice([2, 4, 6]))
        settings |= {"num_attention_heads": heads, "hidden_size": 4 * heads, "intermediate_size": 2 * inner}
        settings |= {"conv_kernel_size": int(random.choice([3, 5, 9])), "num_groups": int(random.choice([1, 2]))}
        settings["pad_token_id"] = 0  # as in the releases; the library's default is another
    if family == "MobileBert":
        plain = "use_bottleneck" in MOBILEBERTS[name]
        settings |= MOBILEBERTS[name] | {"intra_bottleneck_size": width, "hidden_size": width + (0 if plain else 2)}
        settings["num_feedforward_networks"] = 1 if plain else int(random.integers(1, 4))
    if family in ("Electra", "Albert", "ConvBert", "MobileBert"):
        settings["embedding_size"] = 2 * int(random.integers(2, 6)) + 1
    if name in UNPROJECTED:
        settings["embedding_size"] = settings["hidden_size"]
    return settings


def make_theirs(name: str, folder: Path, seed: int) -> tuple[Any, dict[str, Any]]:
    """A random model of the class, saved with a tokenizer; the model in float64, and a padded batch."""
    random = np.random.default_rng([seed, *name.encode()])
    family = name.split("For")[0].removesuffix("Model")
    settings = random_settings(random, name, family)
    pieces = None
    if family == "Albert":
        pieces = SentencePiece(vocab_size=90).train(lambda: iter([TEXT.rstrip("Ω"), "the model, a model."] * 9))
        settings["vocab_size"] = pieces.vocab_size
    if family == "ModernBert":
        pieces = ByteBpe(vocab_size=300).train(lambda: iter([TEXT, "the model, a model."] * 9))
        settings["vocab_size"] = pieces.vocab_size
    if name in ("ElectraForMaskedLM", "ConvBertForMaskedLM"):
        settings["hidden_act"] = "gelu"  # its head has nothing else
    if name.endswith("TokenClassification") and family in ("Bert", "ConvBert", "Electra", "MobileBert"):
        settings["classifier_dropout"] = 0.15  # elsewhere it is the model's own
    config = getattr(transformers, f"{family}Config")(**settings)
    model = getattr(transformers, name)._from_config(config, attn_implementation="eager")
    reference.randomise(model, random)
    model.float().save_pretrained(folder)
    model.double()
    model.get_input_embeddings().padding_idx = None  # with it torch drops the gradient of a row, which ours has
    if family == "ModernBert":
        sizes = SimpleNamespace(max_positions=settings["max_position_embeddings"], token_types=0)
        tokenizers.write_tokenizer(pieces, folder, sizes)
    elif pieces is not None:
        sizes = SimpleNamespace(max_positions=0, token_types=2, vocab_size=pieces.vocab_size)
        tokenizers.write_tokenizer(pieces, folder, sizes)
    else:
        fillers = [f"word{number}" for number in range(settings["vocab_size"] - 3 - len(WORDS))]
        (folder / "vocab.txt").write_text("\n".join(WORDS + fillers) + "\n")
    # transformers has NaN where padding would see padding alone
    lengths = (11, 13, 12) if family == "ModernBert" else (7, 13, 10)
    return model, reference.random_batch(random, settings["vocab_size"], lengths=lengths)


def outputs(name: str, model: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """All that a class of theirs gives: hidden states, every kind of logits, and the loss of some labels."""
    ids, rest = reference.inputs(batch)
    if "DistilBert" in name or "ModernBert" in name:
        del rest["token_type_ids"]
    out = model(ids, **rest, output_hidden_states=True, output_attentions=True)
    found: dict[str, Any] = {"hidden_states": torch.stack(tuple(out.hidden_states))}
    attentions = torch.stack(tuple(out.attentions))
    found["attentions"] = attentions.softmax(-1) if "Squeeze" in name else attentions
    if getattr(out, "pooler_output", None) is not None:
        found["pooled"] = out.pooler_output
    rows, positions = torch.arange(len(ids))[:, None], torch.tensor(batch["masked_positions"]).long()
    if "MaskedLM" in name or name in SENTENCE_LOGITS:
        logits = out.logits if "MaskedLM" in name else out.prediction_logits
        found["masked_logits"] = logits[rows, positions]
        loss = cross_entropy(logits.flatten(0, 1), reference.mlm_labels(batch).flatten())
        if name in SENTENCE_LOGITS:
            found["sentence_logits"] = getattr(out, SENTENCE_LOGITS[name])
            loss = loss + cross_entropy(found["sentence_logits"], torch.tensor(batch["sentence_label"]).long())
    elif "QuestionAnswering" in name:
        found["logits"] = torch.stack((out.start_logits, out.end_logits), -1)
        loss = (found["logits"] ** 2).mean()
    elif name == "ElectraForPreTraining":
        found["logits"] = out.logits
        loss = (out.logits**2).mean()
    elif name.endswith("Model"):
        loss = (out.last_hidden_state**2).mean()
    else:
        found["logits"] = out.logits
        loss = (out.logits**2).mean()
    found["loss"] = loss
    return found


def our_outputs(model: Any, params: Any, batch: dict[str, Any]) -> tuple[jax.Array, Any]:
    inputs = [batch[name] for name in ("input_ids", "token_type_ids", "attention_mask")]
    masked = "masked_head" in params
    output = model.apply({"params": params}, *inputs, *([batch["masked_positions"]] if masked else []))
    if not masked:
        values = output.hidden_states[-1] if output.logits is None else output.logits
        return jnp.mean(values**2), output

    def mean(logits: jax.Array, labels: Any, weights: Any) -> jax.Array:
        losses = -jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.asarray(labels)[..., None], -1)[..., 0]
        return jnp.sum(losses * weights) / np.sum(weights)

    loss = mean(output.masked_logits, batch["masked_ids"], batch["masked_weights"])
    if output.sentence_logits is not None:
        loss += mean(output.sentence_logits, batch["sentence_label"], batch["row_weight"])
    return loss, output


def test_no_class_is_left_out() -> None:
    assert len(architectures()) == len(set(architectures())) == 44


@pytest.mark.parametrize("name,key", architectures(), ids=lambda value: value)
def test_round_trip(name: str, key: str, tmp_path: Path) -> None:
    theirs, batch = make_theirs(name, tmp_path / "theirs", 0)
    assert main(["convert", str(tmp_path / "theirs"), str(tmp_path / "ours"), "--to=bertzoo"]) == 0
    assert main(["convert", str(tmp_path / "ours"), str(tmp_path / "back"), "--to=huggingface"]) == 0

    expected = outputs(name, theirs, batch)
    expected["loss"].backward()
    model, params, tokenizer = bertzoo.load(tmp_path / "ours")
    (loss, output), gradients = jax.jit(jax.value_and_grad(lambda p: our_outputs(model, p, batch), has_aux=True))(
        params
    )
    assert_close(loss, expected.pop("loss").detach(), "loss")
    for field, value in expected.items():
        assert_output_close(getattr(output, field), value.detach(), field)

    check_gradients(name, key, theirs, gradients, tmp_path / "ours")
    check_files(tmp_path / "theirs", tmp_path / "back")
    check_back(name, theirs, batch, tokenizer, tmp_path / "back")


def check_gradients(name: str, key: str, theirs: Any, gradients: Any, ours: Path) -> None:
    """Their gradients under our names are ours."""
    family = next(f for f in huggingface.FAMILIES if f.heads.get(key) and f.heads[key].architecture == name)
    found = load_model.read_model(ours)
    grads = {n: np.zeros(p.shape) if p.grad is None else p.grad.numpy() for n, p in theirs.named_parameters()}
    plain = {n.removeprefix(family.prefix): g.astype(np.float32) for n, g in grads.items()}
    model_rules = huggingface.model_rules(family, found.model, found.head, prefix="")
    shapes = {path: array.shape for path, array in found.params.items()}
    expected = rules.to_ours(model_rules, family.split(plain), shapes, "gradients")
    flat, _ = jax.tree_util.tree_flatten_with_path(gradients)
    have = {jax.tree_util.keystr(p, simple=True, separator="/"): leaf for p, leaf in flat}
    assert have.keys() == expected.keys()
    for path, gradient in expected.items():
        scale = np.abs(expected[path.replace("key/bias", "query/bias")]).max()  # a key's bias has none on paper
        assert_close(have[path], gradient, path, float(scale), 1e-4)


def check_files(theirs: Path, back: Path) -> None:
    """The same tensors to the bit, and the same config in all fields with an effect."""
    first, second = load_file(theirs / "model.safetensors"), load_file(back / "model.safetensors")
    assert first.keys() == second.keys()
    for name, array in first.items():
        assert array.dtype == second[name].dtype and array.tobytes() == second[name].tobytes(), name
    old, new = (transformers.AutoConfig.from_pretrained(path).to_dict() for path in (theirs, back))
    for unread in ("_name_or_path", "transformers_version"):
        old.pop(unread), new.pop(unread)
    if not any(name in old["architectures"][0] for name in ("Sequence", "Token")):
        for unread in ("id2label", "label2id"):  # without a head that has labels
            old.pop(unread), new.pop(unread)
    assert old == new


def check_back(name: str, theirs: Any, batch: dict[str, Any], ours: Any, back: Path) -> None:
    """transformers reads what we wrote: nothing missing, nothing unexpected, the same numbers; the tokenizer too."""
    again, report = getattr(transformers, name).from_pretrained(
        back, attn_implementation="eager", output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"], report
    auto = "Auto" + name[name.index("For") :] if "For" in name else "AutoModel"
    made = {"AutoForPreTraining": "AutoModelForPreTraining"}.get(auto, auto.replace("AutoFor", "AutoModelFor"))
    assert type(getattr(transformers, made).from_pretrained(back)).__name__ == name
    expected, found = outputs(name, theirs, batch), outputs(name, again.double().eval(), batch)
    for field, value in expected.items():
        assert torch.equal(value, found[field]), field
    tokenizer, text = transformers.AutoTokenizer.from_pretrained(back), TEXT
    specials = ours.specials
    ids = [specials.cls, *ours.encode_batch([text])[0].tolist(), specials.sep]
    encoded = tokenizer(text, return_tensors="pt")
    assert encoded["input_ids"][0].tolist() == ids and tokenizer.mask_token_id == specials.mask
    assert len(set(ids)) > 7 and (specials.unk in ids or "Modern" in name)  # no text is unknown to bytes
    again(**encoded)
    original = transformers.AutoTokenizer.from_pretrained(back.parent / "theirs")
    assert original(text, "a b")["input_ids"] == tokenizer(text, "a b")["input_ids"]
    longest = json.loads((back / "tokenizer_config.json").read_text())["model_max_length"]
    assert longest == theirs.config.max_position_embeddings
