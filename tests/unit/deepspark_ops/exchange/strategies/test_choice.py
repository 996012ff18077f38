"""Strategy auto by a table whose best are known, and by the package's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deepspark_ops.exchange.strategies.base import find_strategy
from deepspark_ops.exchange.strategies.choice import choose_strategy
from deepspark_ops.exchange.strategies.measured import measured_near, measured_rows
from tests.unit.deepspark_ops.exchange.strategies.measured_table import measured_table


@pytest.fixture
def table(tmp_path: Path) -> Iterator[None]:
    rows = [
        ("a", "easgd", 4, 0.0, 1.0, 2.9),
        ("b", "easgd", 4, 0.0, 0.5, 3.0),
        ("a", "sync", 4, 0.0, 0.0, 3.9),
        ("b", "sync", 4, 0.0, 0.0, 3.5),
        ("a", "local_sgd", 4, 0.0, 0.1, 3.1),
        ("b", "local_sgd", 4, 0.0, 0.1, 3.1),
        ("a", "easgd", 16, 0.0, 2.0, 9.0),
        ("a", "downpour", 16, 0.0, 2.0, 9.5),
        ("a", "sync", 16, 0.0, 9.0, None),
        ("a", "easgd", 4, 0.125, 1.0, 2.5),
        ("a", "sync", 4, 0.125, 0.0, 1.4),
    ]
    with measured_table(tmp_path, rows):
        yield


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("n_workers", "uneven", "share", "expected"),
    [
        (1, False, None, "easgd"),
        (4, False, None, "sync"),
        (9, False, None, "sync"),  # the nearest below
        (4, False, 0.3, "easgd"),  # local_sgd is faster, but by less than seeds differ
        (4, True, None, "easgd"),
        (64, False, None, "easgd"),  # downpour likewise
        (2, False, None, "sync"),  # the least that was measured
    ],
)
def test_the_fastest_is_taken_if_it_clearly_is(
    n_workers: int, uneven: bool, share: float | None, expected: str
) -> None:
    assert choose_strategy(n_workers, uneven=uneven, exchange_share=share).name == expected


@pytest.mark.usefixtures("table")
def test_the_reason_has_the_numbers() -> None:
    assert choose_strategy(6, uneven=False).reason == (
        "strategy sync: 6 workers that are equally fast; with 4 it was 3.7 times as fast as one worker to its accuracy"
        " less two points, and it ended 0.0 points below one worker at the same clock"
    )


def test_where_nothing_comes_near_one_worker_the_usual_is_taken(tmp_path: Path) -> None:
    with measured_table(tmp_path, [("a", "easgd", 16, 0.0, 3.0, None), ("a", "sync", 16, 0.0, 2.5, None)]):
        choice = choose_strategy(32, uneven=False)
    assert choice.name == "easgd"
    assert "with 16 nothing came within two points of one worker, and it ended 3.0 points below" in choice.reason


def test_one_that_was_not_measured_on_all_nets_is_not_taken(tmp_path: Path) -> None:
    rows = [
        ("small", "easgd", 8, 0.0, 1.0, 2.0),
        ("small", "softsync", 8, 0.0, 1.0, 4.0),
        ("small", "sync", 8, 0.0, 1.0, 2.5),
        ("large", "easgd", 8, 0.0, 1.0, 3.0),
        ("large", "sync", 8, 0.0, 1.0, 4.0),
    ]
    with measured_table(tmp_path, rows):
        assert choose_strategy(8, uneven=False).name == "sync"
    with measured_table(tmp_path, rows[:-1]):
        assert choose_strategy(8, uneven=False).name == "easgd"


def test_a_strategy_near_one_worker_replaces_the_usual_strategy(tmp_path: Path) -> None:
    with measured_table(tmp_path, [("a", "easgd", 16, 0.0, 3.0, None), ("a", "sync", 16, 0.0, 1.5, 2.0)]):
        assert choose_strategy(16, uneven=False).name == "sync"


def test_nothing_measured_is_the_usual(tmp_path: Path) -> None:
    with measured_table(tmp_path, []):
        choice = choose_strategy(4, uneven=True)
    assert choice == ("easgd", "strategy easgd: 4 workers that may be unequally fast; nothing was measured for them")


def test_the_packages_table_names_strategies_that_exist() -> None:
    rows = measured_rows()
    assert {row.strategy for row in rows} >= {"easgd", "downpour", "sync", "local_sgd"}
    for name in {row.strategy for row in rows}:
        assert find_strategy(name).name == name
    assert {row.stragglers for row in rows} == {0.0, 0.125}
    assert measured_near("easgd", 8)
    for n_workers in (2, 4, 8, 16, 1000):
        for uneven in (False, True):
            assert "points below one worker at" in choose_strategy(n_workers, uneven=uneven).reason
