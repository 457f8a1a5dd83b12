"""The declared dimensions equal the modules'; other dimensions raise an error."""

import pytest
from messages import mentioning
from zoo import CASES, LAYERS, MOBILE, SIZES

from bertzoo.core.errors import ConfigError
from bertzoo.heads import JointSpanExtraction, MaskedLanguageModel, NoHead
from bertzoo.models import Albert, Bert, DistilBert, Electra, MobileBert, SqueezeBert, Static
from bertzoo.pruning.structure import cuttable, declare, resized

BERT = Bert(**SIZES, **LAYERS)


def touched(structure, name):
    return sorted((t.path, t.axis, t.folded) for t in structure.axis_uses if t.dimension == name)


def test_the_dimensions_of_a_bert():
    structure = declare(BERT, MaskedLanguageModel(sentence=True))
    places = {"attention/a": 4, "attention/k": 6, "attention/v": 6, "feed_forward/f": 20}
    sizes = {f"encoder/layers_{i}/{place}": n for i in range(2) for place, n in places.items()}
    assert structure.sizes == {"h": 24, **sizes}
    at = "encoder/layers_1/attention"
    assert touched(structure, f"{at}/a") == [
        *((f"{at}/key/bias", 0, False), (f"{at}/key/kernel", 1, True), (f"{at}/output/kernel", 0, True)),
        *((f"{at}/query/bias", 0, False), (f"{at}/query/kernel", 1, True)),
        *((f"{at}/value/bias", 0, False), (f"{at}/value/kernel", 1, True)),
    ]
    assert touched(structure, f"{at}/k") == [
        *((f"{at}/key/bias", 1, False), (f"{at}/key/kernel", 2, True)),
        *((f"{at}/query/bias", 1, False), (f"{at}/query/kernel", 2, True)),
    ]
    assert touched(structure, f"{at}/v") == [
        *((f"{at}/output/kernel", 1, True), (f"{at}/value/bias", 1, False), (f"{at}/value/kernel", 2, True))
    ]
    inner = "encoder/layers_1/feed_forward"
    assert touched(structure, f"{inner}/f") == [
        *((f"{inner}/intermediate/bias", 0, False), (f"{inner}/intermediate/kernel", 1, True)),
        (f"{inner}/output/kernel", 0, True),
    ]


def test_width_is_multiplied_into_the_kernels_of_the_layers_alone():
    structure = declare(BERT, MaskedLanguageModel(sentence=True), ("h",))
    folded = {t.path.replace("layers_1", "layers_0") for t in structure.axis_uses if t.folded}
    parts = ("attention/query", "attention/key", "attention/value", "attention/output")
    parts += ("feed_forward/intermediate", "feed_forward/output")
    assert folded == {f"encoder/layers_0/{part}/kernel" for part in parts}
    # And every axis as long as the model is wide is in the table: 24 is no other size of this model.
    found = {(t.path, t.axis) for t in structure.axis_uses}
    assert found == {(path, i) for path, shape in structure.shapes.items() for i, n in enumerate(shape) if n == 24}


@pytest.mark.parametrize("case", [name for name in CASES if CASES[name][1].kind != "joint_span"])
def test_the_config_of_other_sizes_makes_the_shapes_that_are_declared(case):
    model, head = CASES[case]
    structure = declare(model, head)
    assert resized(model, structure.sizes) == model
    sizes = {d.name: d.size - 2 * d.groups for d in structure.dimensions.values() if d.size > 2 * d.groups}
    smaller = declare(resized(model, structure.sizes | sizes), head)
    assert smaller.sizes == structure.sizes | sizes
    assert len(structure.dimensions) == (9 if cuttable(model) == ("h", "f", "a", "k", "v") else len(structure.sizes))


@pytest.mark.parametrize(
    ("model", "letter", "says"),
    [
        (SqueezeBert(**SIZES, **LAYERS), "h", ("h, ", "layers", "squeezebert")),
        (Electra(**SIZES, **LAYERS, embedding_size=24), "e", ("e (", "embedding", "kind electra", " f.")),
        (Electra(**SIZES, **LAYERS, embedding_size=10), "a", ("a (", "heads", " e, f.")),
        (MobileBert(**MOBILE), "e", ("e (", "tied", " f.")),
        (DistilBert(**SIZES, **LAYERS), "k", ("k (", "keys", "distilbert")),
        (Static(**SIZES), "h", ("no layers",)),
    ],
)
def test_an_uncuttable_dimension_raises(model, letter, says):
    with pytest.raises(ConfigError, match=mentioning(*says)):
        declare(model, NoHead(), ("f", letter))


def test_a_head_of_another_width_raises():
    with pytest.raises(ConfigError, match=mentioning("h cannot", "joint_span", 14)):
        declare(BERT, JointSpanExtraction(hidden_size=14, beam=3))
    assert declare(BERT, JointSpanExtraction(hidden_size=14, beam=3), ("f",)).sizes


def test_a_layer_passed_many_times_is_cut_once():
    structure = declare(Albert(**SIZES | LAYERS, embedding_size=10), NoHead())
    assert structure.sizes == {"e": 10, "encoder/layers_0/feed_forward/f": 20}
