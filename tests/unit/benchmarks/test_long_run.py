"""The minutes of a training, from events."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest

from deepspark_ops.events import Event, make_event

SCRIPT = "long_run"


def loss_at(second: float, worker: int, images_per_s: float, exchange_s: float = 0.01) -> Event:
    seconds = {"compute_s": 0.98 - exchange_s, "data_s": 0.02, "exchange_s": exchange_s}
    event = make_event(
        "loss", clock=1, worker=worker, images_per_s=images_per_s, memory_bytes=worker * 2**20, **seconds
    )
    return replace(event, time=1000.0 + second)


def test_a_minute_has_the_rate_of_all_workers_and_shares_of_their_time(script: ModuleType) -> None:
    first = [loss_at(second, worker, 100.0 * (1 + worker)) for second in (0, 59) for worker in (0, 1)]
    second = [loss_at(60, 1, 400.0, exchange_s=0.1), loss_at(119, 0, 200.0)]
    cut_off = [loss_at(120, 0, 1.0)]
    minutes = script.minutes_of([make_event("note", clock=0, text="a start"), *first, *second, *cut_off], 2)
    assert minutes == [script.Minute(300.0, 0.01, 0.02, 1.0), script.Minute(600.0, 0.055, 0.02, 1.0)]


@pytest.mark.parametrize(
    ("last", "keeps"),
    [((95.0, 0.0199, 0.0099), True), ((94.0, 0.0, 0.0), False), ((99.0, 0.02, 0.0), False), ((99.0, 0.0, 0.01), False)],
)
def test_a_training_is_judged_from_the_second_minute(script: ModuleType, last: tuple[float, ...], keeps: bool) -> None:
    minutes = [script.Minute(10.0, 0.5, 0.5, 1.0), script.Minute(100.0, 0.0, 0.0, 1.0), script.Minute(*last, 1.0)]
    assert script.keeps_bars(minutes) is keeps
