"""The table of docs/one_machine.md: the smallest `accumulate` of each stage with which the bound fits one GPU."""

import re
from pathlib import Path

import pytest

from bertzoo.core import config
from bertzoo.planning import chips, estimate
from bertzoo.runs.configs import Pretrain

TEXT = (Path(__file__).parents[2] / "docs" / "one_machine.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(\w+)` \| ([\d, ]+) \| ([\d, ]+) \| ([\d.e]+) \| ([\d.]+) \|$", TEXT, re.MULTILINE)
SHARE = 0.85  # of the memory


@pytest.mark.slow
@pytest.mark.parametrize("name", [row[0] for row in ROWS])
def test_the_batch_fits_and_half_the_parts_do_not(name):
    (row,) = (row for row in ROWS if row[0] == name)
    _, *columns, operations, days = row
    plan = estimate.make_plan(config.load(Pretrain, [name]), chips.parse_topology("v5e:1x1"))
    for gigabytes, column in zip((24, 80), columns, strict=True):
        for stage, accumulate in zip(plan.stages, map(int, column.split(",")), strict=True):
            memory, rows = stage.estimated, stage.batch_size // accumulate
            assert rows * accumulate == stage.batch_size
            # Every activation of a part of the batch at once; parameters, moments and gradients twice.
            row_bytes = (memory.activations + memory.batch) / stage.batch_size
            room = SHARE * gigabytes * 2**30 - 2 * (memory.parameters + memory.optimizer + memory.gradients)
            assert rows * row_bytes <= room < 2 * rows * row_bytes or accumulate == 1
    assert f"{plan.model_flops:.2e}".replace("+", "") == operations
    assert round(plan.model_flops / 50e12 / 86_400, 1) == float(days)
