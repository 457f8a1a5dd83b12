"""Batches from other processes equal those of this one."""

import os
import pickle
import subprocess
import sys
import time

import chex
import numpy as np
import psutil
import pytest
from messages import mentioning

from bertzoo.core.errors import CorpusError
from bertzoo.data.corpus import workers
from bertzoo.data.mask import LinearShare, Masking
from bertzoo.data.pack import SentencePacking, plan_rows
from bertzoo.data.pipeline import Batches, parallel_batches


@pytest.fixture(scope="module")
def batches(corpus, tmp_path_factory):
    rows = plan_rows(
        corpus,
        "train",
        SentencePacking(),
        sentence="sop",
        max_length=64,
        seed=3,
        directory=tmp_path_factory.mktemp("plans"),
    )
    share = LinearShare(0.15, 0.05, 20)
    return Batches(corpus, "train", rows, Masking(), max_length=64, max_predictions=10, seed=5, share=share)


def assert_equal(ours, theirs):
    chex.assert_trees_all_equal(ours, theirs, strict=True)


def spawned():
    children = (child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE)
    return [child for child in children if "spawn_main" in str(child.cmdline())]


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_they_are_the_batches_of_this_process_in_order(batches, count):
    before, rows = len(spawned()), np.array([0, 3, 5])
    made = parallel_batches(batches, 8, 4, 13, rows, workers=count)
    for step in range(4, 13):
        assert_equal(next(made), batches.batch(step, 8, rows))
        assert len(spawned()) - before == count
    assert next(made, None) is None
    assert len(spawned()) == before


def test_a_copy_is_small_and_opened_once(batches):
    pickled = pickle.dumps(batches)
    assert len(pickled) < 2000
    copy = pickle.loads(pickled)
    assert copy is not batches and pickle.loads(pickled) is copy
    assert_equal(copy.batch(7, 16), batches.batch(7, 16))


@pytest.mark.slow
def test_an_error_of_a_worker_is_raised_in_the_parent(batches):
    made = parallel_batches(batches, batches.rows + 1, 0, 3, workers=1)
    with pytest.raises(CorpusError, match=mentioning(f"{batches.rows:,}", f"{batches.rows + 1:,}")):
        next(made)


@pytest.mark.slow
def test_a_consumer_that_stops_early_leaves_no_process(batches):
    before = len(spawned())
    made = parallel_batches(batches, 8, 0, 1000, workers=1)
    next(made)
    made.close()
    assert len(spawned()) == before


def test_a_worker_is_ended_by_its_parent_and_by_no_other():
    """A preempted machine signals every process of a run, and the process that saves still needs its batches."""
    with workers.worker_pool(1, apart=True) as submit:
        number = submit(os.getpid).result()
        worker = psutil.Process(number)
        subprocess.run([sys.executable, "-c", f"import os; os.kill({number}, 15)"], check=True)
        time.sleep(0.2)
        assert submit(os.getpid).result() == number
        os.kill(number, 15)
        _, alive = psutil.wait_procs([worker], timeout=20)
        assert not alive
