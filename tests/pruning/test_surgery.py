"""A cut model has the outputs of the masked one, and is an ordinary model."""

from types import SimpleNamespace

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import unflatten_dict
from tiers import quick
from zoo import CASES, LAYERS, SIZES, inputs, pretrained

from bertzoo.core import config
from bertzoo.heads import MaskedLanguageModel, NoHead, parameter_shapes
from bertzoo.models import Bert, Compute, Model, SchuBert, SqueezeBert
from bertzoo.nn import dense
from bertzoo.pruning.structure import cut, cuttable, declare, fold
from bertzoo.runs.configs import Pretrain

BERT = Bert(**SIZES, **LAYERS, initializer_range=0.3)
HEAD = MaskedLanguageModel(sentence=True)


def run(model, head, params):
    """Return the model's outputs except attention maps; a cut model has fewer of them."""
    more = [np.array([[1, 3], [2, 2], [0, 1]])] if head.kind == "masked" else []
    apply = head.build(model, Compute()).apply
    # A new function each time, because `statistics` changes what is traced.
    output = jax.jit(lambda *given: apply(*given))({"params": unflatten_dict(params, sep="/")}, *inputs(), *more)
    return {name: value for name, value in output._asdict().items() if name != "attentions" and value is not None}


def some(structure, letters, seed=0):
    """Return a random half of the elements of every dimension with one of the letters, equally many per group."""
    random, kept = np.random.default_rng(seed), {}
    for name, dimension in structure.dimensions.items():
        if dimension.letter in letters:
            each = dimension.size // dimension.groups
            chosen = [random.choice(each, max(1, each // 2), replace=False) for _ in range(dimension.groups)]
            kept[name] = np.sort(np.concatenate([g * each + one for g, one in enumerate(chosen)]))
    return kept


def masked(structure, params, kept):
    vectors = {}
    for name, indices in kept.items():
        vectors[name] = np.zeros(structure.dimensions[name].size, np.float32)
        vectors[name][indices] = 1.0
    return fold(structure, params, vectors)


def cut_some(model, head, letters):
    """Cut a random half; return the kept indices, the masked parameters, the smaller model and its parameters."""
    structure = declare(model, head, tuple(letters))
    kept = some(structure, letters)
    hidden = masked(structure, pretrained(model, head).params, kept)
    return kept, hidden, *cut(structure, hidden, kept)


def difference(a, b):
    """The largest difference of all outputs, as a share of the largest number."""
    ours, theirs = jax.tree.leaves(a), jax.tree.leaves(b)
    return max(np.abs(x - y).max() / np.abs(y).max() for x, y in zip(ours, theirs, strict=True))


CUTS = [
    *(("schubert", letter) for letter in "fakv"),
    *(("bert", letters) for letters in ("fakv", "k")),
    *((case, "f") for case in CASES if case not in ("bert", "schubert", "convbert-joint-span")),
]


EACH_KIND = ("schubert", "mobilebert", "convbert-span", "squeezebert", "electra-discriminator")


@pytest.mark.parametrize(("case", "letters"), quick(CUTS, ("bert", "fakv"), *((case, "f") for case in EACH_KIND)))
def test_cut_equals_masked(case, letters):
    model, head = CASES[case]
    params, (_, hidden, smaller, fewer) = pretrained(model, head).params, cut_some(model, head, letters)
    assert sum(p.size for p in fewer.values()) < sum(p.size for p in params.values())
    ours, theirs, whole = run(smaller, head, fewer), run(model, head, hidden), run(model, head, params)
    assert difference(ours, theirs) < 1e-5
    assert difference(theirs, whole) > 1e-2


UNEVEN = ["squeezebert", "squeezebert-uneven", "convbert-span", "mobilebert", "modernbert-grouped"]


@pytest.mark.parametrize("case", quick(UNEVEN, "squeezebert-uneven"))
def test_every_layer_has_a_feed_forward_size_of_its_own(case):
    model, head = CASES[case]
    params, structure = pretrained(model, head).params, declare(model, head, ("f",))
    kept = some(structure, "f")
    for name, dimension in structure.dimensions.items():  # of the first layer one unit in each group
        if "layers_0/" in name:
            kept[name] = np.arange(0, dimension.size, dimension.size // dimension.groups)
    hidden = masked(structure, params, kept)
    smaller, fewer = cut(structure, hidden, kept)
    groups = structure.dimensions[next(iter(kept))].groups
    assert smaller.feed_forward_size == (groups, len(kept[next(name for name in kept if "layers_1/" in name)]))
    assert difference(run(smaller, head, fewer), run(model, head, hidden)) < 1e-5
    again = declare(smaller, head)
    assert again.sizes == {name: len(indices) for name, indices in kept.items()} | {
        name: size for name, size in again.sizes.items() if name == "e"
    }


@pytest.mark.parametrize("case", ["bert", "schubert", "squeezebert", "convbert-span", "mobilebert"])
def test_vectors_of_ones_change_nothing(case):
    model, head = CASES[case]
    params, structure = pretrained(model, head).params, declare(model, head)
    everything = {name: np.arange(size) for name, size in structure.sizes.items()}
    same, whole = cut(structure, masked(structure, params, everything), everything)
    assert same == model
    chex.assert_trees_all_equal(whole, params)


def test_vectors_multiply_where_tables_4_and_5_put_them():
    structure, params = declare(BERT, HEAD), pretrained(BERT, HEAD).params
    random = np.random.default_rng(2)
    vectors = {name: random.normal(size=size).astype(np.float32) for name, size in structure.sizes.items()}
    folded, layer = fold(structure, params, vectors), "encoder/layers_1"
    h, (a, k, v) = vectors["h"], (vectors[f"{layer}/attention/{letter}"] for letter in "akv")
    f = vectors[f"{layer}/feed_forward/f"]
    expected = {
        "attention/query": ("hak,h,a,k->hak", h, a, k),
        "attention/key": ("hak,h,a,k->hak", h, a, k),
        "attention/value": ("hav,h,a,v->hav", h, a, v),
        "attention/output": ("avh,a,v,h->avh", a, v, h),
        "feed_forward/intermediate": ("hf,h,f->hf", h, f),
        "feed_forward/output": ("fh,f,h->fh", f, h),
    }
    for part, (equation, *given) in expected.items():
        path = f"{layer}/{part}/kernel"
        np.testing.assert_allclose(folded[path], np.einsum(equation, params[path], *given), rtol=1e-5, atol=1e-7)
    untouched = {path for path in params if not (path.startswith("encoder/layers_") and path.endswith("kernel"))}
    for path in untouched:
        np.testing.assert_array_equal(folded[path], params[path])


def test_inputs_of_a_grouped_kernel_belong_to_their_group():
    model = SqueezeBert(**SIZES, **LAYERS | {"feed_forward_size": 24}, intermediate_groups=2, output_groups=4)
    structure, params = declare(model, NoHead()), pretrained(model, NoHead()).params
    name = "encoder/layers_0/feed_forward/f"
    assert structure.dimensions[name].groups == 4
    vector = np.random.default_rng(3).normal(size=24).astype(np.float32)
    path = "encoder/layers_0/feed_forward/output/kernel"
    folded = fold(structure, params, {name: vector})[path]
    assert folded.shape == (1, 6, 24)
    for output in range(24):  # of 24 outputs of 4 groups, the sixth part reads inputs 6·group to 6·group + 5
        own = vector[6 * (output // 6) : 6 * (output // 6) + 6]
        np.testing.assert_allclose(folded[0, :, output], params[path][0, :, output] * own, rtol=1e-6)


@pytest.fixture
def statistics(monkeypatch):
    """Replace the mean in the norms."""

    def take(mean):
        monkeypatch.setattr(dense, "jnp", SimpleNamespace(**vars(jnp) | {"mean": mean}))

    return take


def test_a_cut_of_the_width_changes_the_statistics_of_the_norms(statistics):
    head = NoHead(pooler=False)
    kept, hidden, smaller, fewer = cut_some(BERT, head, "h")
    assert isinstance(smaller, SchuBert) and smaller.hidden_size == 12
    ours = run(smaller, head, fewer)["hidden_states"]

    def kept_of_the_masked():
        return [x[..., kept["h"]] for x in run(BERT, head, hidden)["hidden_states"]]

    assert difference(ours, kept_of_the_masked()) > 0.1
    # With statistics over kept elements only, the masked model equals the cut one.
    statistics(lambda x, **of: jnp.mean(x[..., kept["h"]], **of))
    assert difference(ours, kept_of_the_masked()) < 1e-5


def test_a_cut_of_the_embedding_changes_the_statistics_of_norms_alone(statistics):
    model, head = CASES["convbert-span"]
    kept, hidden, smaller, fewer = cut_some(model, head, "e")
    assert smaller.embedding_size == 5
    ours = run(smaller, head, fewer)
    assert difference(ours, run(model, head, hidden)) > 0.01
    statistics(lambda x, **of: jnp.mean(x[..., kept["e"]] if x.shape[-1] == 10 else x, **of))
    assert difference(ours, run(model, head, hidden)) < 1e-5


@pytest.mark.parametrize(
    "case", ["bert", "squeezebert-uneven", "convbert-span", "mobilebert", "albert", "modernbert-grouped"]
)
def test_the_cut_model_has_an_ordinary_config(case, tmp_path):
    model, head = CASES[case]
    structure = declare(model, head)
    smaller, params = cut(structure, pretrained(model, head).params, some(structure, cuttable(model)))
    file = tmp_path / "model.toml"
    file.write_text(config.dump({"model": smaller}))
    assert config.from_dict(Pretrain, config.read_toml(file) | RECIPE).model == smaller
    assert parameter_shapes(smaller, head) == {path: array.shape for path, array in params.items()}
    assert isinstance(smaller, Model)


RECIPE = {
    "optimizer": {"kind": "lamb", "learning_rate": 1e-3, "schedule": {"warmup_steps": 1}},
    "stages": [{"steps": 5, "batch_size": 8, "max_length": 16, "max_predictions": 2}],
    "data": {"source": "text", "tokenizer": {"kind": "wordpiece", "vocab_size": 61}},
}


def test_a_model_that_was_cut_can_be_cut_again():
    structure, params = declare(BERT, HEAD), pretrained(BERT, HEAD).params
    once, fewer = cut(structure, params, some(structure, "hfakv"))
    again = declare(once, HEAD)
    twice, least = cut(again, fewer, some(again, "hfakv", seed=1))
    assert isinstance(twice, SchuBert) and twice.hidden_size == 6 and twice.heads == (1, 1)
    assert np.isfinite(run(twice, HEAD, least)["masked_logits"]).all()
