"""The page: a row and a curve per group, a band over seeds, nothing from outside."""

from __future__ import annotations

import re

import pytest

from deepspark_ops.simulation.page import mean_curve, render_page
from tests.unit.deepspark_ops.simulation.small_results import result
from tests.unit.deepspark_ops.simulation.test_report import RUNS, simulation_report


def test_curves_are_means_with_the_range_of_the_seeds() -> None:
    (_, four, *_) = simulation_report(RUNS).groups
    curve = mean_curve(four, lambda point: float(point.clock))
    assert curve[2] == pytest.approx((200, 0.81, 0.80, 0.82))
    assert curve[1] == pytest.approx((100, 0.7, 0.6, 0.8))


def test_a_run_that_failed_early_shortens_the_curve() -> None:
    runs = [result("easgd", 4, 1, [0.1, 0.5, 0.9]), result("easgd", 4, 2, [0.3, 0.7])]
    (group,) = simulation_report(runs).groups
    assert [point[1] for point in mean_curve(group, lambda point: point.virtual_s)] == pytest.approx([0.2, 0.6])


def test_the_page_shows_every_group() -> None:
    page = render_page(simulation_report(RUNS, target=0.8))
    for text in (
        "one worker",
        "easgd, 4 workers",
        "sync, 4 workers",
        "80.00 %",
        "seed 2 failed: worker 0: loss is nan",
    ):
        assert text in page
    assert page.count('class="band') == 2 * 4
    assert page.count("<polyline") == 2 * (4 + 1)  # each group and the target, over time and over the clock
    assert not re.search(r'(src|href)="http', page)


def test_words_of_users_are_escaped() -> None:
    runs = [result("easgd", 4, 1, [0.1], failure="<script>", accuracy=None), *RUNS[:1]]
    assert "<script>" not in render_page(simulation_report(runs))


def test_one_seed_has_no_band() -> None:
    assert 'class="band' not in render_page(simulation_report(RUNS[::2][:2]))
