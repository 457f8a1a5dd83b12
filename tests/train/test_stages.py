"""Position of a run in its stages, its schedule, and contradictory stages."""

import pytest
from messages import mentioning
from toy import job, stage

from bertzoo.core.errors import ConfigError
from bertzoo.train import experiment as staging
from bertzoo.train.experiment import Group
from bertzoo.train.optim import AdamW, Schedule

BERT = stage(900), stage(100, carry="all"), stage(50, learning_rate=0.5), stage(7, carry="all")


def test_locate_counts_the_steps_of_earlier_stages():
    expected = [(i, k) for i, one in enumerate(BERT) for k in range(one.steps)] + [(len(BERT), 0)]
    assert [staging.locate(BERT, step) for step in range(staging.total_steps(BERT) + 1)] == expected
    with pytest.raises(ConfigError, match=mentioning(1058, 1057)):
        staging.locate(BERT, 1058)


def test_stages_joined_by_all_share_one_schedule():
    first, second = Group(start=0, steps=1000, learning_rate=None), Group(start=1000, steps=57, learning_rate=0.5)
    assert [staging.schedule_group(BERT, i) for i in range(4)] == [first, first, second, second]
    staging.validate(BERT)


def test_wsd_spans_the_stages_of_its_schedule():
    schedule = Schedule(kind="wsd", warmup_share=0.1, decay_share=0.2)
    run = job(stages=BERT[:2], optimizer=AdamW(learning_rate=2.0, schedule=schedule))
    assert [float(run.experiment.learning_rate(0)(done)) for done in (51, 101, 801)] == pytest.approx([1.0, 2.0, 2.0])
    assert [float(run.experiment.learning_rate(1)(done)) for done in (901, 951)] == pytest.approx([1.0, 0.5])


def test_a_masking_share_needs_as_many_predictions_as_its_largest_value():
    assert stage(1, max_length=32, max_predictions=10, masking_share=(0.3, 0.15)).masking_shares == (0.3, 0.15)
    assert stage(1, max_length=32, max_predictions=10, masking_share=0.3).masking_shares == (0.3, 0.3)


@pytest.mark.parametrize(
    ("stages", "named"),
    [
        ((), ("[[stages]]",)),
        ((stage(1, carry="all"),), ('stages.0.carry="all"',)),
        ((stage(1), stage(1, carry="all", learning_rate=0.1)), ('stages.1.carry="all"', "learning_rate=0.1")),
    ],
)
def test_contradictory_stages_raise(stages, named):
    with pytest.raises(ConfigError, match=mentioning(*named)):
        staging.validate(stages)
