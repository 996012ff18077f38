"""Advice on accuracy by a table of measured runs whose figures are known."""

from __future__ import annotations

from pathlib import Path

from deepspark_ops.planning.accuracy import accuracy_of
from tests.unit.deepspark_ops.exchange.strategies.measured_table import measured_table

ROWS = [
    ("a", "easgd", 4, 0.0, 0.2, 3.0),
    ("b", "easgd", 4, 0.0, 0.4, 3.0),
    ("a", "easgd", 16, 0.0, 3.0, None),
    ("b", "easgd", 16, 0.0, 2.0, None),
    ("a", "sync", 4, 0.0, -0.1, 3.0),
    ("a", "sync", 16, 0.0, 1.0, 9.0),
    ("b", "downpour", 16, 0.0, 1.8, 2.0),  # easier than "a", and no better there than easgd by more than noise
    ("c", "local_sgd", 16, 0.0, 0.0, 9.0),  # a net that easgd was not tried on
    ("a", "sync", 16, 0.125, 0.0, 4.0),
]


def test_losses_and_what_lost_less(tmp_path: Path) -> None:
    with measured_table(tmp_path, ROWS):
        few, of_64 = accuracy_of("eamsgd", [1, 4, 64])  # an alias
    assert (few.workers, few.measured_workers, few.lost_points, few.better) == (4, 4, {"a": 0.2, "b": 0.4}, None)
    assert few.text == "4 workers: after as many minibatches as one worker 0.2 points less (a), 0.4 points less (b)"
    assert (of_64.workers, of_64.measured_workers, of_64.better) == (64, 16, "sync")
    assert of_64.text == (
        "64 workers (measured with 16): after as many minibatches as one worker 3.0 points less (a), 2.0 points less"
        " (b); a longer run makes up for it; sync lost 2.0 points less"
    )


def test_a_strategy_that_was_not_measured_has_none(tmp_path: Path) -> None:
    with measured_table(tmp_path, ROWS):
        assert list(accuracy_of("lbfgs", [4])) == []
