"""The next batch is on the devices before the host waits for the current step."""

import pytest
import toy

from bertzoo.train import loop
from bertzoo.train.loop import RunSettings
from bertzoo.train.progress import Record


def test_the_next_batch_is_on_the_devices_during_a_step(monkeypatch: pytest.MonkeyPatch):
    order: list[tuple[str, int]] = []
    put = loop.put_batch

    def put_batch(*arguments):
        order.append(("put", 1 + sum(what == "put" for what, _ in order)))
        return put(*arguments)

    class Read:
        def __call__(self, record: Record) -> None:
            if record.get("split") == "train":  # its numbers were waited for
                order.append(("read", record["step"]))

        def close(self) -> None: ...

    monkeypatch.setattr(loop, "put_batch", put_batch)
    loop.run(
        toy.job(
            stages=[toy.stage(6)], config=RunSettings(log_every=1, evaluate_every=0, save_every=0), reporters=[Read()]
        )
    )
    assert len(order) == 12
    for step in range(1, 6):
        assert order.index(("put", step + 1)) < order.index(("read", step))
