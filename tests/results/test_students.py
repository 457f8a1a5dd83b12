"""`benchmarks learning.students`: shapes, and the width that fills a time."""

import pytest

from benchmarks.learning import students


@pytest.mark.parametrize("family", students.FAMILIES)
def test_every_width_and_depth_is_a_model(family: str):
    for width in range(4 * students.STEP, 1024, 5 * students.STEP):
        for layers in students.LAYERS.values():
            assert students.build(family, width, layers).hidden_size == width


@pytest.mark.parametrize("power", [1.0, 1.7, 2.0])
def test_the_width_fills_the_time_of_a_power_law(power: float):
    times = [(width / 100) ** power for width in students.PROBES]
    for budget in (1.0, 6.0, 40.0):
        width = students.fitting(budget, students.PROBES, times)
        assert (width / 100) ** power <= budget * 1.0001 < ((width + students.STEP) / 100) ** power * 1.0002


def test_a_gain_is_marked_where_the_seeds_overlap():
    def spread(least: float, median: float, greatest: float) -> dict[str, float]:
        return {"median": median, "least": least, "greatest": greatest}

    rows = [
        {"student": name, "ms at most": 3, "Spearman": spread(*scores), "Spearman, int8": spread(70, 71, 72)}
        for name, scores in {"bert": (79, 80, 81), "convbert": (80.5, 81, 82), "mobilebert": (81.5, 82, 83)}.items()
    ]
    gains = {row["student"]: row.get("3 ms") for row in students.ranks(rows)}
    assert gains["convbert"] == "+1.0 (overlap)"
    assert gains["mobilebert"] == "+2.0"


def test_a_student_grows_until_the_next_width_takes_too_long():
    times = {128: 2.0}
    assert students.widest(3.0, times) == (128, 136)
    assert students.widest(3.0, times | {184: 2.99}) == (184, 184)
    assert students.widest(3.0, times | {184: 2.0, 192: 3.5}) == (184, 192)


def test_a_student_shrinks_until_it_fits():
    assert students.widest(3.0, {128: 4.0, 256: 9.0}) == (128, 120)
    assert students.widest(3.0, {8: 4.0}) == (8, 8)
