"""A whole run of replaced token detection on ELECTRA's rows by the command line: pretrained, resumed, looked at."""

import json

import pytest
import tiny
import tomli_w
from messages import mentions
from tiny import records

from bertzoo.cli.main import main

pytestmark = pytest.mark.usefixtures("one_device")

MODEL = {"kind": "electra", "embedding_size": 8, "hidden_size": 16, "layers": 1, "heads": 2, "feed_forward_size": 32}
CONFIG = {
    "model": MODEL | {"vocab_size": 256, "max_positions": 32},
    "objective": {"kind": "replaced", "generator_width": 0.5},
    "optimizer": {"kind": "bert_adam", "learning_rate": 0.01},
    "stages": [{"steps": 6, "batch_size": 16, "max_length": 32, "max_predictions": 4}],
    "run": {"log_every": 1, "evaluate_every": 3, "save_every": 3},
}
DATA = {
    "heldout": 0.2, "sentences": "lines", "tokenizer": {"vocab_size": 250}, "packing": {"kind": "electra"},
    "masking": {"mask_share": 0.85, "random_share": 0.0},
}  # fmt: skip


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    directory = tmp_path_factory.mktemp("text")
    path = directory / "replaced.toml"
    source = str(tiny.write_text(directory / "text.txt"))
    path.write_text(tomli_w.dumps(CONFIG | {"data": DATA | {"source": source}}))
    return str(path)


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory):
    run = tmp_path_factory.mktemp("finished") / "run"
    assert main(["pretrain", config, f"--run_dir={run}"]) == 0
    return run


@pytest.mark.slow
def test_both_models_are_logged_apart(finished):
    rows = records(finished)
    train, heldout = ([row for row in rows if row.get("split") == split] for split in ("train", "heldout"))
    assert [row["step"] for row in train] == list(range(1, 7)) and [row["step"] for row in heldout] == [3, 6]
    for row in train + heldout:
        assert row["loss"] == pytest.approx(row["mlm_loss"] + 50 * row["rtd_loss"], rel=1e-5)
        assert {"mlm_accuracy", "rtd_accuracy", "rtd_recall", "rtd_auc"} <= row.keys()


@pytest.mark.slow
def test_evaluate_and_predict(finished, capsys):
    capsys.readouterr()
    assert main(["evaluate", str(finished), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    last = records(finished)[-2]
    # There are fewer held-out rows than evaluate_rows, and each is corrupted the same way in any batch.
    assert last["split"] == "heldout"
    for name in ("loss", "mlm_loss", "rtd_loss", "rtd_auc", "rtd_accuracy"):
        assert figures[name] == pytest.approx(last[name], rel=1e-5), name
    assert main(["predict", str(finished), "--top=3", "--json", "one [MASK] two"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert [len(blank) for blank in answer["blanks"]] == [3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--objective.kind=masked", "--objective.sentence=sop"], ("sentence",)),
        (["--objective.sentence=sop"], ("objective.sentence",)),
        (["--objective.generator_width=0"], ("generator_width = 0.0",)),
        (["--objective.generator_width=0.001"], ("0.001", "hidden_size", 16)),
        (["--stages.0.max_length=4", "--stages.0.max_predictions=1"], ("data.packing.kind = electra",)),
        (["--data.packing.single_share=2"], ("single_share = 2.0",)),
    ],
)
def test_impossible_options_raise_before_a_step(config, tmp_path, capsys, options, message):
    run = tmp_path / "run"
    assert main(["pretrain", config, f"--run_dir={run}", *options]) == 2
    assert mentions(capsys.readouterr().err, *message)
    assert not (run / "metrics.jsonl").exists()
