"""Grids: the papers' are as large as printed, points have names of their own, options take the place of lists."""

from collections.abc import Iterable, Sequence
from itertools import product
from math import prod
from pathlib import Path

import pytest
from messages import mentioning, mentions
from searched import settings

from bertzoo.core import config
from bertzoo.core.errors import ConfigError
from bertzoo.finetuning.settings import Finetune
from bertzoo.jobs import sweep as grid
from bertzoo.jobs.job import CommandJob, JobList, OutputPaths
from bertzoo.pruning.settings import Prune
from bertzoo.train import optim

TASKS = {"MNLI": "mnli", "QQP": "qqp", "QNLI": "qnli", "SST-2": "sst2", "CoLA": "cola", "STS-B": "stsb"}
TASKS |= {"MRPC": "mrpc", "RTE": "rte"}
OPTIONS = {"learning_rate": "optimizer.learning_rate", "final_dropout": "dropout"}
SQUEEZEBERT = {"mnli": 48, "qqp": 48, "qnli": 48, "sst2": 48, "cola": 180, "stsb": 60, "mrpc": 60, "rte": 60}


def arguments(sweep: JobList, point: CommandJob) -> list[str]:
    return sweep.words(point, OutputPaths(folder=Path("runs"), training="runs"))


def settings_of(point: CommandJob) -> dict[str, str]:
    return dict(point.settings or {})


def lists_of(sweep: JobList, task: str) -> dict[str, list[str]]:
    """The values of each setting of a task's points."""
    found: dict[str, list[str]] = {}
    for name, value in (pair for job in sweep.jobs if job.task == task for pair in settings_of(job).items()):
        found.setdefault(name, []).append(value)
    return {name: list(dict.fromkeys(values)) for name, values in found.items()}


def counted(points: Iterable[CommandJob]) -> dict[str, int]:
    points = list(points)
    return {task: sum(point.task == task for point in points) for task in dict.fromkeys(p.task for p in points)}


def test_squeezeberts_grid_is_its_table_4() -> None:
    sweep = grid.load_sweep("squeezebert")
    printed = settings("SqueezeBERT", "4")
    for task, lists in printed.items():
        mine = {name: sorted(map(float, values)) for name, values in lists_of(sweep, TASKS[task]).items()}
        assert mine == {OPTIONS.get(name, name): sorted(map(float, values)) for name, values in lists.items()}, task
    points = sweep.jobs
    assert counted(points) == SQUEEZEBERT  # 3·4·2·2, 3·5·2·2·3 and 3·5·2·2
    assert counted(points) == {TASKS[task]: prod(map(len, printed[task].values())) for task in TASKS}
    assert len({point.name for point in points}) == len(points) == 552
    names = ["alpha", "optimizer.learning_rate", "encoder_dropout", "dropout", "epochs", "batch_size"]
    for task in SQUEEZEBERT:  # in the order of the file
        rows, lists = [settings_of(point) for point in points if point.task == task], lists_of(sweep, task)
        assert list(lists) == names and [tuple(row.values()) for row in rows] == list(product(*lists.values()))


def test_squeezeberts_choices_are_points_of_its_grid() -> None:
    """But for the number of epochs, which is that of the best one."""
    points = grid.load_sweep("squeezebert").jobs
    for printed, lists in settings("SqueezeBERT", "5").items():
        task = TASKS[printed.removesuffix("-m").removesuffix("-mm")]
        chosen = {OPTIONS.get(name, name): float(value) for name, (value,) in lists.items() if name != "epochs"}
        found = [p for p in points if p.task == task and {k: float(settings_of(p)[k]) for k in chosen} == chosen]
        assert len(found) == 1, printed


def test_mobileberts_grid_is_batch_by_rate_by_epochs() -> None:
    sweep = grid.load_sweep("mobilebert")
    assert {job.task for job in sweep.jobs} == set(TASKS.values())
    for lists in (lists_of(sweep, task) for task in TASKS.values()):
        assert {name: list(map(float, values)) for name, values in lists.items()} == {
            "batch_size": [16, 32, 48],
            "optimizer.learning_rate": pytest.approx([n * 1e-5 for n in range(1, 11)]),
            "epochs": list(range(2, 11)),
        }
    assert set(counted(sweep.jobs).values()) == {3 * 10 * 9}


def recipes(name: str) -> dict[str, list[Finetune]]:
    """The config of every point of a shipped sweep, by task."""
    found: dict[str, list[Finetune]] = {}
    for point in grid.load_sweep(name).jobs:
        recipe = config.load(Finetune, [point.config[0]], [("task", point.task), *point.options.items()])
        found.setdefault(point.task, []).append(recipe)
    return found


def test_convberts_recipes_are_its_codes() -> None:
    """finetune/ of its code, which is ELECTRA's: 3 epochs, 10 of STS-B and RTE, 2 of SQuAD; rates of small."""
    epochs = {**dict.fromkeys(TASKS.values(), 3), "stsb": 10, "rte": 10, "squad1": 2, "squad2": 2}
    found = recipes("convbert")
    assert {task: recipe.epochs for task, (recipe,) in found.items()} == epochs
    for task, (recipe,) in found.items():
        squad = task.startswith("squad")
        assert (recipe.seeds, recipe.batch_size, recipe.max_length) == (9, 32, 512 if squad else 128)
        assert (recipe.layer_decay, recipe.reduction, recipe.select) == (0.8, "sum", "last")
        assert (recipe.squad.joint, recipe.dropout) == ((True, 0.0) if squad else (False, 0.1))
        assert recipe.double_unordered == (task in ("mrpc", "stsb")) and recipe.scale == (5 if task == "stsb" else 1)
        optimizer = recipe.optimizer
        assert (optimizer.kind, optimizer.weight_decay, optimizer.clip_norm) == ("bert_adam", 0.01, 1.0)
        rate = optim.schedule_of(optimizer, 1000)
        for step in (0, 50, 99, 100, 700, 1000):
            expected = 3e-4 * (1 - step / 1000) * min(1, step / 100)
            assert float(rate(step)) == pytest.approx(expected, rel=1e-5, abs=1e-12)


def test_mobileberts_squad_grid_has_its_readmes_point() -> None:
    found = recipes("mobilebert_squad")
    points = {
        task: {(r.batch_size, round(r.optimizer.learning_rate, 7), r.epochs) for r in found[task]} for task in found
    }
    grid_of_glue = product((16, 32, 48), [round(n * 1e-5, 7) for n in range(1, 11)], range(2, 11))
    assert points["squad1"] == points["squad2"] == set(grid_of_glue)
    assert (32, 4e-5, 5) in points["squad1"]
    for recipe in found["squad1"] + found["squad2"]:
        assert (recipe.max_length, recipe.squad.stride, recipe.optimizer.weight_decay) == (384, 128, 0.01)
        assert float(optim.schedule_of(recipe.optimizer, 100)(100)) == pytest.approx(
            1e-4 * recipe.optimizer.learning_rate
        )


def test_schuberts_recipes_are_berts() -> None:
    """Devlin et al. 2019, §4.1 to §4.3: tasks of schuBERT's average."""
    found = {
        task: {(r.optimizer.learning_rate, r.epochs, r.batch_size, r.max_length) for r in rows}
        for task, rows in recipes("schubert").items()
    }
    glue = {(rate, 3, 32, 128) for rate in (2e-5, 3e-5, 4e-5, 5e-5)}
    squad = {"squad1": {(5e-5, 3, 32, 384)}, "squad2": {(5e-5, 2, 48, 384)}}
    assert found == {**dict.fromkeys(("mnli", "mrpc", "sst2", "rte"), glue), **squad}


def test_schuberts_search_prunes_with_every_combination() -> None:
    points = grid.load_sweep("schubert_search").jobs
    found = [config.load(Prune, [point.config[0]], list(point.options.items())) for point in points]
    assert all(
        point.verb == "prune" and recipe.tuning[0].steps == 2_000 for point, recipe in zip(points, found, strict=True)
    )
    assert {(recipe.weigh.gamma, recipe.weigh.learning_rate, recipe.weigh.steps) for recipe in found} == {
        *product((0.03, 0.1, 0.3), (5e-4, 1e-3), (1_000, 2_000))
    }


def test_every_shipped_sweep_has_a_command_and_an_expectation() -> None:
    for name, path in config.shipped("sweeps").items():
        header = path.read_text(encoding="utf-8").split("\n[")[0]
        assert f"bertzoo sweep {name} " in header and "Expected" in header and "Source" in header
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 60
    assert set(config.shipped("sweeps")) == {
        *("squeezebert", "mobilebert", "mobilebert_squad", "convbert", "schubert", "schubert_search", "demo", "budget")
    }
    assert not set(config.shipped("sweeps")) - {"squeezebert", "mobilebert", "demo"} & set(config.shipped())


def test_random_points_are_deterministic_and_nested() -> None:
    def drawn(random: int, seed: int | None = None) -> Sequence[CommandJob]:
        return grid.load_sweep("squeezebert", random=random, seed=seed).jobs

    few, more = drawn(20, 1), drawn(30, 1)
    assert counted(few) == dict.fromkeys(SQUEEZEBERT, 20) and few == drawn(20, 1)
    assert {point.name for point in few} < {point.name for point in more}
    assert {point.name for point in few} != {point.name for point in drawn(20, 2)}
    assert counted(drawn(50)) == {task: min(points, 50) for task, points in SQUEEZEBERT.items()}
    # Whatever else is swept, the points of a task are the same.
    alone = grid.load_sweep("squeezebert", tasks=["cola"], random=20, seed=1).jobs
    assert list(alone) == [point for point in few if point.task == "cola"]
    # About a third of each alpha: the draw is not from one corner.
    alphas = [settings_of(point)["alpha"] for point in drawn(60) if point.task == "cola"]
    assert min(alphas.count(alpha) for alpha in ("0.8", "0.9", "1.0")) >= 10


def test_an_option_takes_the_place_of_a_list_and_the_points_keep_their_names() -> None:
    whole = {point.name: point for point in grid.load_sweep("squeezebert").jobs}
    narrow = grid.load_sweep("squeezebert", [("alpha", "1.0"), ("data_dir", "glue"), ("tasks.cola.from", "m")])
    options = narrow.identity["options"]
    assert "alpha" not in options and options["data_dir"] == "glue"
    points = narrow.jobs
    assert counted(points)["mnli"] == 16 and counted(points)["cola"] == 60
    assert {point.name for point in points if point.task != "cola"} < set(whole)
    assert all(("--from=m" in arguments(narrow, point)) == (point.task == "cola") for point in points)
    over = grid.load_sweep("squeezebert", [("tasks.cola.alpha", "0.5"), ("alpha", "1.0")])  # in any order
    assert {settings_of(point)["alpha"] for point in over.jobs if point.task == "cola"} == {"0.5"}


def test_a_points_command() -> None:
    sweep = grid.load_sweep("squeezebert", [("teacher", "t/{task}"), ("seeds", "3")], ["rte"])
    points = {settings_of(point)["alpha"]: point for point in sweep.jobs}
    lines = {alpha: arguments(sweep, point) for alpha, point in points.items()}
    assert lines["0.8"][:4] == ["finetune", "finetune", "--task=rte", f"--run_dir=runs/{points['0.8'].name}"]
    assert {"--teacher=t/rte", "--seeds=3", "--alpha=0.8", "--optimizer.weight_decay=0.0"} < set(lines["0.8"])
    assert not any("teacher" in word for word in lines["1.0"])  # which would have no share


def test_a_list_among_the_options_is_passed_as_a_list(tmp_path: Path) -> None:
    (path := tmp_path / "s.toml").write_text(GOOD + '[options]\nown.labels = ["a", "b"]\n')
    sweep = grid.load_sweep(path, tasks=["rte"])
    (point,) = sweep.jobs
    assert '--own.labels=["a", "b"]' in arguments(sweep, point)


GOOD = '[sweep]\nbase = "finetune"\ntasks = ["cola", "rte"]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sweep = 1", ("sweep", " 1")),
        ("[sweeps]\n", ("table sweeps", "sweep?")),
        ("x = \n", ("TOML",)),
        ("[grid]\nalpha = [1.0]", ("sweep",)),
        ('[sweep]\nbase = "finetune"\ntask = "x"', ("unknown", "sweep.task", "tasks")),
        ('[sweep]\nbase = "finetune"', ("sweep.tasks", "list")),
        ('[sweep]\nbase = "finetune"\ntasks = "cola"', ("sweep.tasks", "list")),
        ('[sweep]\nbase = "finetune"\ntasks = ["a", "a"]', ("sweep.tasks", "['a', 'a']", "twice")),
        (GOOD + "[grid]\nalpha = 1.0", ("grid.alpha", "list", 1.0)),
        (GOOD + "[grid]\nalpha = []", ("grid.alpha", "list", "[]")),
        (GOOD + "[grid]\nalpha = [1.0, 1.0]", ("grid.alpha", "[1.0, 1.0]", "twice")),
        (GOOD + "[grid]\nalpha = [{ a = 1.0 }]", ("grid.alpha.0.a", 1.0)),
        (GOOD + '[grid]\ntask = ["cola"]', ("grid.task",)),
        (GOOD + '[options]\nrun_dir = "x"', ("options.run_dir",)),
        (GOOD + "[options]\nalpha = 1.0\n[grid]\nalpha = [1.0]", ("alpha", "[options]", "[grid]")),
        (GOOD + "[range]\nalpha = 1.0", ("range.alpha", 1.0)),
        (GOOD + '[range]\nalpha = [0, 1, "log"]', ("range.alpha", "'log'", "above 0")),
        (GOOD + "[range]\nalpha = [1, 0.5]", ("range.alpha", "[1, 0.5]")),
        (GOOD + "[range]\nalpha = [1e-5, inf]", ("range.alpha", "[1e-05, inf]", "finite")),
        (GOOD + "[range]\nalpha = [0.5, 1]\n[grid]\nalpha = [1]", ("alpha", "[range]", "[grid]")),
        (GOOD + "[range]\nalpha = [0.5, 1]", ("[range]", "alpha", "--trials=N")),
        (GOOD + "[tasks.colla]\nalpha = [1.0]", ("cola", "[tasks.colla]", "sweep.tasks")),
        (GOOD + "[tasks]\ncola = 1", ("tasks.cola", " 1")),
        (GOOD + "[tasks.cola]\noptimizer.learning_rate = 1.0", ("tasks.cola.optimizer.learning_rate", "list")),
    ],
)
def test_a_wrong_file_raises_one_error(tmp_path: Path, text: str, message: tuple[object, ...]) -> None:
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        grid.load_sweep(tmp_path / "s.toml")
    assert mentions(str(caught.value), *message) and "s.toml" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "tasks", "message"),
    [
        ([("tasks.colla.from", "m")], (), ("--tasks.colla.from", "--tasks.NAME.KEY", "mnli")),
        ([("tasks.cola", "m")], (), ("--tasks.cola ", "--tasks.NAME.KEY")),
        ([("task", "cola")], (), ("--task ",)),
        ([("tasks.cola.run_dir", "x")], (), ("--tasks.cola.run_dir",)),
        ([], ["cola", "colla"], ("--tasks", "colla", "cola?")),
    ],
)
def test_wrong_options_raise(overrides: list[tuple[str, str]], tasks: list[str], message: tuple[object, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        grid.load_sweep("squeezebert", overrides, tasks)
    assert str(caught.value).startswith(str(message[0])) and mentions(str(caught.value), *message)


def test_an_unknown_sweep_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=mentioning("squezebert", "squeezebert")):
        grid.load_sweep("squezebert")
    with pytest.raises(ConfigError, match=mentioning("mobilebert", "squeezebert")):
        grid.load_sweep("bert_base")  # a config of a run
