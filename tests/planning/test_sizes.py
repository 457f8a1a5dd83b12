"""`bertzoo models`: the counts of the published architectures, and the peak of live values by hand."""

import dataclasses
import itertools
import json

import jax
import jax.numpy as jnp
import pytest

from bertzoo.cli.main import main
from bertzoo.core.kinds import shipped
from bertzoo.models import Bert
from bertzoo.nn.flops import peak_beside_results, peak_bytes
from bertzoo.objectives import Masked, Replaced
from bertzoo.planning import sizes
from bertzoo.planning.sizes import measure

# Millions of parameters and, if printed, 10^9 operations, by paper and config. Sources:
# SqueezeBERT's Table 2: BERT-base, ALBERT, DistilBERT, SqueezeBERT, and the operations of the released MobileBERT.
# SqueezeBERT's Table 3: BERT with 6 layers, and the operations of ELECTRA-small.
# MobileBERT's Table 4: BERT with 4 and 3 layers, TinyBERT. Its Table 1: BERT-large. Its Tables 1, 4 and 7: MobileBERT
# and IB-BERT. ConvBERT's Tables 1 and 3: the sizes of ConvBERT, BERT-small and ELECTRA. schuBERT's tables: schuBERT and
# BERT with 9 layers. ALBERT's Table 3, the row of embedding size 64: ALBERT-e.
PRINTED: dict[str, dict[str, tuple[float] | tuple[float, float]]] = {
    "Lan et al. 2020": {"albert_base": (12, 22.5), "albert_e": (87,)},
    "Sun et al. 2019": {"bert_3l": (45.3, 5.7), "bert_4l": (52.2, 7.6), "bert_6l": (67.0, 11.3)},
    "Khetan and Karnin 2020": {"bert_9l": (88,), **{f"schubert_{n}m": (n,) for n in (33, 43, 55, 66, 77, 88, 99)}},
    "Devlin et al. 2019": {"bert_base": (109, 22.5), "bert_large": (334,)},
    "Jiang et al. 2020": {
        **{"bert_small": (14,), "convbert_base": (106,), "convbert_small": (14,), "convbert_medium_small": (17,)},
        "electra_medium_small": (26,),
    },
    "Sanh et al. 2019": {"distilbert": (66, 11.3)},
    "Clark et al. 2020": {"electra_base": (110,), "electra_small": (14, 2.62)},
    "Sun et al. 2020": {
        **{"ib_bert_large": (293,), "mobilebert": (25.3, 5.36), "mobilebert_tiny": (15.1, 3.1)},
        **dict.fromkeys(("mobilebert_layernorm", "mobilebert_paper"), (25.3, 5.7)),
    },
    "Iandola et al. 2020": {"squeezebert": (51.1, 7.42)},
    "Jiao et al. 2020": {"tinybert": (14.5, 1.2)},
    "Warner et al. 2024": {"modernbert_base": (149,)},
    "Weller et al. 2025": {"ettin_17m": (17,), "ettin_32m": (32,), "ettin_68m": (68,)},
}
PUBLISHED = {name: numbers for configs in PRINTED.values() for name, numbers in configs.items()}
# Closed-form counts: encoder with embeddings, with pooler, pretraining model with its sentence head or generator, if it
# has one, and GFLOPs at length 128.
EXACT = {
    "albert_base": (11_092_992, 11_683_584, 11_813_810, 22.374),
    # Tables of 30000 + 512 + 2 rows, a projection and BERT-base's 12 layers of 7,087,872 parameters; no pooler.
    "albert_e": (87_057_408, 87_057_408, 87_138_290, 22.36),
    "bert_3l": (45_100_800, 45_691_392, 46_315_580, 5.588),
    "bert_4l": (52_188_672, 52_779_264, 53_403_452, 7.45),
    "bert_6l": (66_364_416, 66_955_008, 67_579_196, 11.17),
    "bert_9l": (87_628_032, 88_218_624, 88_842_812, 16.76),
    "bert_base": (108_891_648, 109_482_240, 110_106_428, 22.348),
    "bert_large": (334_092_288, 335_141_888, 336_226_108, 78.922),
    "bert_small": (13_483_008, 13_483_008, 13_546_682, 2.6256),
    "convbert_base": (105_680_520, 105_680_520, 115_836_059, 21.235),
    "convbert_medium_small": (17_475_888, 17_475_888, 18_539_191, 3.598),
    "convbert_small": (13_143_768, 13_143_768, 14_019_903, 2.442),
    "distilbert": (66_362_880, 66_362_880, 66_985_530, 11.174),
    "electra_base": (108_891_648, 108_891_648, 119_386_427, 22.347),
    "electra_medium_small": (25_315_968, 25_315_968, 26_861_851, 5.7504),
    "electra_small": (13_483_008, 13_483_008, 14_196_219, 2.6256),
    # 50368·h + h of the embedding, and in each of n layers 4·h² + 3·h·f and two norms of h: the first layer has no
    # norm before its attention, and the last the final norm. The masked head has h² + h + 50368.
    "ettin_17m": (16_797_440, 16_797_440, 16_913_600, 1.1157),
    "ettin_32m": (31_883_136, 31_883_136, 32_081_344, 3.4603),
    "ettin_68m": (68_144_640, 68_144_640, 68_457_664, 11.476),
    "ib_bert_large": (294_205_184, 294_467_840, 306_483_516, 75.75),
    "mobilebert": (24_581_888, 24_581_888, 36_597_564, 5.3855),
    "mobilebert_layernorm": (24_581_888, 24_581_888, 36_597_564, 5.3855),
    "mobilebert_paper": (25_359_104, 25_359_104, 37_374_780, 5.5868),
    "mobilebert_tiny": (15_485_696, 15_485_696, 27_501_372, 3.0702),
    "modernbert_base": (149_014_272, 149_014_272, 149_655_232, 29.343),
    "schubert_33m": (33_222_780, 33_277_770, 33_364_220, 7.23),
    "schubert_43m": (43_141_920, 43_234_640, 43_359_100, 9.21),
    "schubert_55m": (55_328_292, 55_480_782, 55_665_356, 11.65),
    "schubert_66m": (66_097_644, 66_315_266, 66_565_276, 13.8),
    "schubert_77m": (77_150_400, 77_446_880, 77_776_060, 16.01),
    "schubert_88m": (87_912_450, 88_484_742, 89_090_582, 17.02),
    "schubert_99m": (98_304_728, 98_895_320, 99_519_508, 19.61),
    "squeezebert": (50_503_680, 51_094_272, 51_716_928 + 1_538, 7.3999),
    "tinybert": (14_252_592, 14_350_248, 14_479_676, 1.2475),
}
# Configs whose printed size fits none of the three counts; docs/fidelity.md has a point about each.
UNEXPLAINED = {"bert_3l", "electra_base", "electra_medium_small", "ib_bert_large", "mobilebert", "mobilebert_layernorm"}
UNEXPLAINED |= {"mobilebert_paper", "mobilebert_tiny"}
UNEXPLAINED_OPERATIONS = {"mobilebert_layernorm"}
# Within a layer's gelu: half of its input, erfc's argument and value; and the layer's residual.
PEAKS = {"bert_base": 4 * 128 * (3 * 3072 + 768), "bert_large": 4 * 128 * (3 * 4096 + 1024)}


def decimals(figure: float) -> int:
    """The digits after the point of a figure as it is written."""
    return len(str(figure).partition(".")[2])


def test_every_model_that_a_paper_prints_is_counted():
    ours = {name for name in shipped("pretrain") if name.startswith("demo") or name.endswith("_mini")}
    assert set(EXACT) == set(PUBLISHED) == set(shipped("pretrain")) - ours


@pytest.mark.slow
def test_all_models_as_json(capsys):
    assert main(["models", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == shipped("pretrain")
    rows = [row for row in rows if row["name"] in EXACT]
    assert [row["name"] for row in rows] == list(EXACT)
    for row in rows:
        *counts, gflops = EXACT[row["name"]]
        found = [row["params_encoder"], row["params_with_pooler"], row["params_pretraining"]]
        assert (row["name"], found) == (row["name"], counts)
        assert round(row["gflops_128"], decimals(gflops)) == gflops
        params, *operations = PUBLISHED[row["name"]]
        fits = any(round(count / 1e6, decimals(params)) == params for count in found)
        assert fits != (row["name"] in UNEXPLAINED), row["name"]
        # Papers count elementwise operations as well, up to 2 % of the products, and print two or three digits.
        fits = operations in ([], [pytest.approx(gflops, rel=0.04)])
        assert fits != (row["name"] in UNEXPLAINED_OPERATIONS), row["name"]
        assert row["activation_bytes"] == PEAKS.get(row["name"], row["activation_bytes"]) > 4 * 128 * 300


def test_models_as_a_table(capsys, monkeypatch):
    before = []  # the output before a model is counted
    monkeypatch.setattr(sizes, "measure", lambda *tables: before.append(capsys.readouterr().out) or measure(*tables))
    assert main(["models", "squeezebert", "demo"]) == 0
    head, squeezebert, demo = lines = [*before, capsys.readouterr().out]
    assert [text.split()[0] for text in lines] == ["name", "squeezebert", "demo"]
    assert [text.count("\n") for text in lines] == [1, 1, 1]
    columns = head.split()
    assert len(columns) == len(set(columns)) == 6
    ends = [head.index(column) + len(column) for column in columns[1:]]
    found = [squeezebert[start:end].strip() for start, end in itertools.pairwise([len("squeezebert"), *ends])]
    assert found[:4] == ["50.5 M", "51.1 M", "51.7 M", "7.40"] and found[4].endswith("MiB")
    assert len(demo.rstrip("\n")) == len(squeezebert.rstrip("\n")) == ends[-1]


def test_models_as_json_come_one_by_one(capsys, monkeypatch):
    before = []
    monkeypatch.setattr(sizes, "measure", lambda *tables: before.append(capsys.readouterr().out) or measure(*tables))
    assert main(["models", "squeezebert", "demo", "--json"]) == 0
    text = "".join([*before, capsys.readouterr().out])
    assert not before[0] and [row["name"] for row in json.loads(f"{before[1]}]")] == ["squeezebert"]
    assert [row["name"] for row in json.loads(text)] == ["squeezebert", "demo"]


def test_a_model_is_counted_alike_under_every_objective():
    """With its pooler, though replaced token detection leaves that out."""
    model = Bert(vocab_size=50, hidden_size=8, layers=1, heads=2, feed_forward_size=8, max_positions=128)
    masked, replaced = (measure(model, objective) for objective in (Masked(), Replaced(generator_width=0.5)))
    assert replaced.params_with_pooler == replaced.params_encoder + 8 * 9
    assert dataclasses.replace(replaced, params_pretraining=masked.params_pretraining) == masked


def test_an_unknown_model_raises(capsys):
    assert main(["models", "squezebert"]) == 2
    assert "squeezebert" in capsys.readouterr().err


X = jax.ShapeDtypeStruct((10,), jnp.float32)
W = jax.ShapeDtypeStruct((10, 50), jnp.float32)


@pytest.mark.parametrize(
    ("function", "floats"),
    [
        (lambda w, x: x + 1, 10),  # an argument is not counted, its successor is
        (lambda w, x: ((x + 1) * 2) - 3, 20),  # an operation's operand lives until its result is there
        (lambda w, x: x @ w, 50),
        (lambda w, x: (x @ (w * 2)).sum(), 51),  # values that depend on parameters alone do not count
        (lambda w, x: (x + 1, (x * 2) * 3)[1], 20),  # nor do values that no output needs
        (lambda w, x: jax.jit(lambda x: jnp.tanh(x + 1) * 2)(x), 20),  # inside a function
        (lambda w, x: (lambda a, b: a * b)(x + 1, x + 2), 30),
    ],
)
def test_peak_of_live_values(function, floats):
    assert peak_bytes(function, W, X) == 4 * floats


@pytest.mark.parametrize("wrap", [lambda function: function, jax.jit])
def test_values_that_depend_on_no_argument_count_in_a_step(wrap):
    """As a dropout mask from a fixed key does, also inside a function."""
    step = wrap(lambda x: x + jnp.tanh(jnp.arange(50.0)).sum())
    assert peak_beside_results(jax.make_jaxpr(step)(X).jaxpr) == 4 * 100
