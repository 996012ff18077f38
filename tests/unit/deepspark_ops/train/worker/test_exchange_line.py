"""The line about the exchange at the start of a run with several workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deepspark_ops.train.worker.task import exchange_line
from tests.unit.deepspark_ops.train.worker.rates.test_measured_rates import measuring_run


@pytest.mark.parametrize(
    ("options", "begin", "parts"),
    [
        (
            {},
            "strategy easgd, 8 workers; alpha 0.3 of a worker and 0.15 of the center; ",
            [
                "; tau chosen by measured times, at least 1; 0.5 of the momentum from the center; ",
                "; rates of other layers and inner products bounded by measured curvature; ",
                "; inner products up to 8 times the rate; rate_scale 10: ",
            ],
        ),
        (
            {"n_workers": 32},
            "strategy easgd, 32 workers; alpha 0.3 of a worker and 0.075 of the center; ",
            ["rate_scale 36: a minibatch of one of 32 workers moves the whole by 0.0278 of a step; linear"],
        ),
        ({"n_workers": 2}, "strategy easgd, 2 workers; alpha 0.45 of a worker and 0.45 of the center; ", []),
        (
            {"strategy_options": "variant: paper", "comm_period": 4},
            "strategy easgd, 8 workers; alpha 0.113 of a worker and 0.113 of the center; tau 4; rate_scale 1: ",
            ["the strategy takes the solver's rate as it is"],
        ),
        (
            {"comm_period": "2@0 4@50", "moving_rate": "0.2@0 0.4@50"},
            "strategy easgd, 8 workers; alpha 0.2 of a worker and 0.1 of the center at first, as scheduled; tau 2 at",
            [],
        ),
        ({"strategy": "sync"}, "strategy sync, 8 workers; tau 1; rate_scale 4: ", ["at most 4 of 8 by the"]),
        (
            {"overlap": True},
            "strategy easgd, 8 workers; ",
            ["; overlap with tau 1: stable up to 0.56 of the rate of a worker alone; ", "rate_scale 10: "],
        ),
        (
            {"overlap": True, "n_workers": 2, "comm_period": 4, "conv": ""},
            "strategy easgd, 2 workers; ",
            ["; tau 4; overlap with tau 4: stable up to 0.073 of the rate of a worker alone; rate_scale 3: "],
        ),
        (
            {"overlap": True, "n_workers": 2, "solver": 'type: "AdaDelta"'},
            "strategy easgd, 2 workers; ",
            ["; overlap with tau 1: stable up to 0.72 of the rate of a worker alone; "],
        ),
        ({"n_workers": 1}, "rate_scale 1: one worker runs Caffe's own schedule", []),
    ],
)
def test_the_start_says_how_workers_exchange(
    options: dict[str, Any], begin: str, parts: list[str], tmp_path: Path
) -> None:
    line = exchange_line(measuring_run(tmp_path, **options), 0)
    assert line.startswith(begin)
    assert all(part in line for part in parts)
    assert "\n" not in line
    assert ("overlap" in line) == ("overlap" in options)


def test_a_history_that_is_no_movement_has_none_from_the_center(tmp_path: Path) -> None:
    assert "momentum" not in exchange_line(measuring_run(tmp_path, solver='type: "Adam"'), 0).split("rate_scale")[0]
