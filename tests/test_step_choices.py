"""benchmarks/step_choices.py: every choice changes the step's program, and no other does."""

import sys
from typing import Any

import numpy as np
import pytest
from scripts import loaded

from bertzoo.models import SqueezeBert
from bertzoo.nn import attention, dropout
from bertzoo.objectives import Masked
from bertzoo.train import step as steps

MAKE = steps.make_train_step


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = loaded("step_choices", monkeypatch)
    monkeypatch.setattr(made.sides, "keep_to", lambda setting: None)
    for place, name in (
        (dropout, "random_bits"),
        (attention, "attend"),
        (steps, "put_batch"),
        (made.train_step, "DROPOUT"),
    ):
        monkeypatch.setattr(place, name, getattr(place, name))  # so that it is put back

    def small(model: str, compute: Any) -> Any:
        rate = made.train_step.DROPOUT
        sizes = {"hidden_size": 16, "heads": 4, "layers": 1, "feed_forward_size": 32, "vocab_size": 50}
        return Masked().build(SqueezeBert(**sizes, dropout=rate, attention_dropout=rate), compute)

    monkeypatch.setattr(made.train_step, "objective", small)
    return made


def program(script: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a step computes."""
    seen: list[str] = []

    def told(*given: Any, **more: Any) -> Any:
        made: Any = MAKE(*given, **more)

        def step(state: Any, frozen: Any, batch: Any) -> Any:
            seen.append(str(made.trace(state, frozen, batch).jaxpr))
            return state, {"terms": {}}

        return step

    monkeypatch.setattr(steps, "make_train_step", told)
    script.step_of(name)(script.train_step.random_batch(8, 16, 3, seed=0))
    return seen[0]


@pytest.mark.slow
def test_each_changes_the_program(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    as_it_is = program(script, "", monkeypatch)
    assert as_it_is == program(script, "", monkeypatch)
    for choice in script.CHOICES:
        with monkeypatch.context() as patch:
            for place, name in ((dropout, "random_bits"), (attention, "attend"), (script.train_step, "DROPOUT")):
                patch.setattr(place, name, getattr(place, name))
            if not choice.name.startswith(("huge pages", "a batch")):
                beside = program(script, choice.beside, patch) if choice.beside else as_it_is
                assert program(script, choice.name, patch) != beside, choice.name


def test_a_batch_is_put_once(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put: list[Any] = []
    monkeypatch.setattr(steps, "put_batch", lambda batch, mesh: put.append(batch))
    monkeypatch.setattr(
        script.sides, "our_step", lambda objective, settings: lambda batch: steps.put_batch(batch, "mesh")
    )
    step = script.step_of("a batch that stays on the device")
    step({"a": 1})
    step({"a": 2})
    assert put == [{"a": 1}]


def test_every_token_but_the_first_is_predicted(script: Any) -> None:
    batch = script.train_step.random_batch(2, 8, 3, seed=0)
    wide = script.everywhere(batch)
    np.testing.assert_array_equal(wide["masked_ids"], batch["input_ids"][:, 1:])
    assert wide["masked_positions"].tolist() == [list(range(1, 8))] * 2 and wide["masked_weights"].sum() == 14


def test_the_page_and_the_pages_of_memory(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the process with huge pages is started under the variable, which is as it was afterwards."""
    started: list[tuple[str, str | None]] = []

    class Side:
        def __init__(self, make: Any, name: str) -> None:
            started.append((name, script.os.environ.get("GLIBC_TUNABLES")))

    monkeypatch.setattr(script, "Side", Side)
    monkeypatch.setattr(script, "take_turns", lambda pair, batches: None)
    monkeypatch.setattr(script, "ratio", lambda plain, other, column, warmup: 1.25)
    written: list[str] = []
    monkeypatch.setattr(script, "write_section", lambda name, text, page: written.append(text))
    monkeypatch.setenv("GLIBC_TUNABLES", "mine")
    monkeypatch.setattr(sys, "argv", ["step_choices.py"])
    script.main()
    assert {value for name, value in started if not name.startswith("huge")} == {"mine"}
    assert [name for name, _ in started].count("no dropout") == 2, "what has none is compared with what has none"
    assert [value for name, value in started if name.startswith("huge")] == [script.PAGES]
    assert script.os.environ["GLIBC_TUNABLES"] == "mine"
    assert "| LAMB | AdamW | 1.03 | 1.25 |" in written[0] and written[0].count("| 1.25 |") == len(script.CHOICES)
