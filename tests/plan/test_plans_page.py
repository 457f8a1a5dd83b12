"""docs/plans.md, which `make plans` writes: what it holds, and that it is of today's estimate."""

import re
from pathlib import Path

import pytest

from bertzoo import config
from bertzoo.kinds import shipped
from bertzoo.plan import chips, estimate, page
from bertzoo.recipe import Pretrain

PAGE = Path(__file__).parents[2] / "docs" / "plans.md"
ESTIMATED, COMPILED, QUOTIENT = 4, 5, 6  # the columns of page.HEAD


def read() -> list[list[str]]:
    """The cells of the first table."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = lines.index(f"| {' | '.join(page.HEAD)} |")
    table = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    return table


@pytest.fixture(scope="module")
def rows() -> list[list[str]]:
    return read()


def mib(text: str) -> int:
    return int(text.replace(",", ""))


def test_every_shipped_config_has_a_row_for_every_stage(rows):
    on_v5e = {(row[0], row[2]) for row in rows if row[1].startswith("v5e:")}
    recipes = {name: config.load(Pretrain, [name], []) for name in shipped(Pretrain)}
    assert on_v5e == {(name, str(stage)) for name, recipe in recipes.items() for stage in range(len(recipe.stages))}
    for slice_ in ("v4:4x4x8", "tpu7x:4x4x4"):
        assert len({row[0] for row in rows if row[1] == slice_}) == 3


def test_the_kinds_of_memory_sum_to_the_estimate(rows):
    for row in rows:
        kinds, total = row[ESTIMATED].split(" = ")
        assert len(kinds.split(" + ")) == 8
        assert sum(map(mib, kinds.split(" + "))) == pytest.approx(mib(total), abs=4)  # each is rounded


def test_the_estimate_is_within_15_percent_of_what_was_compiled(rows):
    fitting = [row for row in rows if row[QUOTIENT]]
    assert len(fitting) >= 20
    for row in fitting:
        estimated, made = mib(row[ESTIMATED].split(" = ")[1]), mib(row[COMPILED])
        # Of a few MiB the compiler's own tables are the most.
        assert abs(estimated - made) <= max(0.15 * made, 32), row[:3]
    said = f"of the {len(fitting)} of these that fit, the estimate is within 15 % or 32 MiB of {len(fitting)}"
    assert said in PAGE.read_text(encoding="utf-8")


def same(rows: list[list[str]], name: str, slice_: str) -> None:
    """Compare the columns of a plan that no compiler has a part in, and those of time where none had."""
    recipe = config.load(Pretrain, [name], [])
    made = list(page.rows(name, estimate.make(recipe, chips.parse(slice_))))
    shown = [row for row in rows if row[:2] == [name, slice_]]
    assert len(made) == len(shown)
    compiled = any(row[COMPILED] != "not yet" for row in shown)
    for new, old in zip(made, shown, strict=True):
        for column in (2, 3, ESTIMATED, 8, 9, *(() if compiled else (10, 11, 12))):
            assert new[column] == old[column], page.HEAD[column]


@pytest.mark.parametrize(("name", "slice_"), [("demo", "v5e:4x8"), ("demo_replaced", "v5e:8x8")])
def test_the_page_is_of_the_estimate_as_it_is(rows, name, slice_):
    same(rows, name, slice_)


# A test each, as the file with the most tests is begun first.
@pytest.mark.slow
@pytest.mark.parametrize(("name", "slice_"), dict.fromkeys((row[0], row[1]) for row in read()))
def test_every_row_is_of_the_estimate_as_it_is(rows, name, slice_):
    same(rows, name, slice_)


def test_how_many_are_compiled_is_said_as_it_is(rows):
    done = sum(row[COMPILED] != "not yet" for row in rows)
    assert re.search(rf"\b{done} of {len(rows)} steps have been compiled", PAGE.read_text(encoding="utf-8"))
