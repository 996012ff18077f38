from __future__ import annotations

import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.events import append_event, make_event
from deepspark_ops.planning.step_time import run_step_time


def test_step_time_of_a_run(tmp_path):
    run = tmp_path / "run"
    with pytest.raises(ConfigError, match=": no such folder"):
        run_step_time(run, 100)
    run.mkdir()
    with pytest.raises(ConfigError, match="holds no worker's second loss line"):
        run_step_time(run, 100)
    for worker in (0, 1):
        # The first line is slow: it compiles. Then 20 minibatches of 100 in 0.9 s, 0.1 s of data, 0.25 s of exchanges.
        for compute_s, images_per_s in ((9.0, 50.0), (0.9, 1600.0), (0.9, 1600.0)):
            numbers = {"compute_s": compute_s, "data_s": 0.1, "exchange_s": 0.25, "images_per_s": images_per_s}
            append_event(run / "events.jsonl", make_event("loss", worker=worker, **numbers))
    assert run_step_time(run, 100) == pytest.approx(1.0 / 20)
    # Of a call that is longer than a display, several lines have a share of what the first call of the model took.
    for _ in range(9):
        slow = {"compute_s": 9.0, "data_s": 0.1, "exchange_s": 0.25, "images_per_s": 50.0, "first_call": True}
        append_event(run / "events.jsonl", make_event("loss", worker=0, **slow))
    assert run_step_time(run, 100) == pytest.approx(1.0 / 20)
