"""Options that `bertzoo finetune` rejects: each with one error that names them, and no files."""

from pathlib import Path
from string import Template
from typing import Any

import embedding_runs
import planted
import pytest
import quiz
from embedding_runs import NEW_MODEL
from messages import mentions

# By kind of run, the function that starts one and the fixture with its files.
RUNS: dict[str, Any] = {
    "labels": (planted.finetune, "folder"),
    "answers": (quiz.finetune, "quiz_folder"),
    "vectors": (embedding_runs.finetune, "place"),
}
JOINT = ["--task=squad2", "--squad.joint=true"]
LABELS = [
    (["--task=cole"], ("'cole'", "cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, squad")),
    (["--task="], ("--task", "cola, sst2")),
    (["--alpha=0.5"], ("alpha = 0.5", "--teacher")),
    (["--teacher=$run"], ("alpha = 1 ", "--teacher=$run")),
    (["--alpha=0.5", "--teacher=$folder/model"], ("head", "labels")),
    (["--max_length=64"], ("max_length = 64", " 32 ")),
    (["--train_rows=500"], ("train_rows = 500", " 240 ")),
    (["--double_unordered=true"], ("double_unordered", "pairs")),
    (["--layer_decay=0"], ("layer_decay = 0",)),
    (["--patience=2", "--select=last"], ("patience = 2",)),
    (["--own.dev="], ("task = own", "development")),
    (["--seeds=0"], ("seeds = 0",)),
    (["--seed=-1"], ("seed = -1",)),
    (["--scale=5"], ("scale = 5.0", "own", "classification")),
    (["--own.kind=tokens", "--pooler=false"], ("pooler = False", "own", "tokens")),
    (["--own.test=none.csv"], ("none.csv", "exist")),
    (["--own.unlabelled=new.jsonl"], ("own.unlabelled", "new.jsonl", "--teacher")),
    (["--own.kind=tokens", "--own.unlabelled=new.jsonl"], ("unlabelled", "tokens")),
    (["--min_precision=0.9"], ("min_precision", "threshold")),
    (["--threshold=precision", "--min_precision=1"], ("min_precision", "1")),
    (["--per_class=8", "--train_rows=20"], ("per_class", "train_rows")),
    (["--per_class=-1"], ("per_class", "-1")),
    (["--class_weights=[1, 0]"], ("class_weights", "0")),
    (["--class_weights=[1, 2, 3]"], ("class_weights", "3 weights", "0, 1")),
    (["--own.kind=regression", "--calibrate=true"], ("calibrate", "regression")),
    (["--own.kind=regression", '--own.metrics=["mse"]'], ("mse", "pearson")),
    (["--own.kind=texts", "--head=embedding", "--per_class=8"], ("per_class", "embedding")),
]
ANSWERS = [
    (["--task=squad1", "--double_unordered=true"], ("double_unordered = True", "squad1")),
    ([*JOINT, "--hidden=relu"], ("hidden = 'relu'", "squad.joint")),
    (["--task=squad1", "--threshold=f1"], ("threshold", "span")),
    (["--task=squad1", "--alpha=0.9"], ("alpha = 0.9", "squad1")),
    (["--task=squad1", "--teacher=$quiz/model"], ("--teacher=", "squad1")),
    (["--task=squad1", "--squad.threshold=1"], ("squad.threshold = 1.0", "squad1")),
    ([*JOINT, "--dropout=0.1"], ("dropout = 0.1", "squad.joint")),
    (["--task=squad2", "--head=joint_span"], ("head = 'joint_span'", "Set squad.joint = true and remove head")),
    (["--task=squad2", "--head=joint_span", "--dropout=0"], ("Set squad.joint = true and remove head",)),
    ([*JOINT, "--head=span", "--dropout=0"], ("head = 'span'", "squad.joint")),
    (["--task=squad2", "--head=sequence_classification"], ("sequence_classification", "squad2", "span")),
    (["--task=squad2", "--head=other"], ("task, sequence_classification, token_classification, span, embedding.",)),
    (["--task=squad1", "--own.kind=span"], ("own.kind = 'span'", "task = own")),
    (["--task=cola", "--squad.longest=3"], ("squad.stride = 8", "cola")),
    (["--task=squad1", "--data_dir=$quiz/train-v1.1.json"], ("data_dir", "train-v1.1.json", "one file")),
    (["--task=squad2", "--data_dir=$quiz/model"], ("train-v2.0.json", "exist")),
    (["--task=squad1", "--train_rows=81"], ("train_rows = 81", " 80 ")),
    (["--task=squad1", "--max_length=7"], ("max_length = 7", "max_question")),
    (["--task=squad1", "--squad.heldout=1"], ("heldout = 1.0",)),
    (["--task=own", "--own.kind=span", "--own.train=own.jsonl"], ("own.dev", "development")),
    (["--task=own", *quiz.OWN, "--own.test=none.csv"], ("none.csv", "exist")),
    (["--task=own", "--own.kind=span", "--own.label=x"], ("label = 'x'", "kind = 'span'")),
    (["--task=own", "--own.question=x"], ("question = 'x'", "kind = 'classification'")),
]
RELATIONS = ["--embedding.directions=0", "--embedding.relations=1"]
VECTORS = [
    (["--own.kind=classification"], ("own.kind", "texts", "classification")),
    (["--head=task"], ("texts", "head")),
    (["--head=task", "--own.kind=classification", "--embedding.pooling=max"], ("embedding.pooling", "max")),
    (["--embedding.loss=cosine"], ("cosine", "contrastive")),
    (["--own.text_b="], ("dev", "teacher")),
    (['--own.negatives=["text"]', "--own.text_b="], ("negatives", "text_b")),
    (["--accumulate=3"], ("accumulate", 3, "batch_size", 8)),
    (["--embedding.sizes=[99]"], (99, 16)),
    (["--task=mrpc"], ("mrpc", "stsb")),
    (["--own.label=partner"], ("partner",)),
    (["--scale=5"], ("scale", 5, "similarities", "label")),
    (["--alpha=0.5", "--teacher=$vectors/run", "--embedding.projection=5"], (5, 16, "embedding.projection")),
    (
        ["--own.text_b=", "--alpha=0", "--teacher=$vectors/run", "--embedding.projection=5", *RELATIONS],
        (5, 16, "embedding.projection", "dev"),
    ),
    (["--alpha=0.5", "--teacher=$vectors/model"], ("head for embeddings",)),
    (["--own.text_b=", "--alpha=0.5", "--teacher=$vectors/run"], ("encoder_dropout",)),
    ([*NEW_MODEL, "--from=$vectors/run", "--model.embedding_size=99"], ("99", "Use at most as many")),
    ([*NEW_MODEL, "--from=$vectors/run", "--model.vocab_size=9"], ("vocabulary", "9")),
    ([*NEW_MODEL, "--from=$vectors/run", "--keep_head=true"], ("keep_head", "[model]")),
    ([*NEW_MODEL, "--from=$vectors/run", "--head=task"], ("head = 'task'", "[model]")),
    ([*NEW_MODEL, "--from=$vectors/run", "--model.max_positions=8"], ("max_length = 12", "8 positions of [model]")),
    ([*NEW_MODEL], ("$vectors/model", "gives texts no vectors")),
]


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (kind, options, message)
        for kind, cases in zip(RUNS, (LABELS, ANSWERS, VECTORS), strict=True)
        for options, message in cases
    ],
)
def test_impossible_options_print_one_error(
    kind: str, options: list[str], message: tuple[Any, ...], request: pytest.FixtureRequest, tmp_path: Path, capsys
) -> None:
    names = {"folder": "folder", "run": "finished", "quiz": "quiz_folder", "vectors": "place"}
    places = {name: request.getfixturevalue(fixture) for name, fixture in names.items()}
    finetune, files = RUNS[kind]
    options = [Template(option).substitute(places) for option in options]
    capsys.readouterr()
    assert finetune(request.getfixturevalue(files), tmp_path / "run", *options) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("bertzoo: ")]
    assert mentions(line, *(Template(str(part)).substitute(places) for part in message))
    assert not (tmp_path / "run").exists()
