"""Summary of many results: means, target, speed-up, advice, tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.simulate import SimulateConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.planning.net_size import NetSize
from deepspark_ops.simulation.page import render_page
from deepspark_ops.simulation.report import SimulationReport, choose_target
from deepspark_ops.simulation.results import VirtualResult
from deepspark_ops.simulation.simulate import make_report
from deepspark_ops.simulation.view import group_line, simulation_view
from tests.unit.deepspark_ops.simulation.small_results import result

SIZE = NetSize("LeNet", 431_080, 64, 10**9, 1_438, ("the data are not here",))
RUNS = [
    result("easgd", 1, 1, [0.1, 0.6, 0.80]),
    result("easgd", 1, 2, [0.1, 0.7, 0.82]),
    result("easgd", 4, 1, [0.1, 0.6, 0.80]),
    result("easgd", 4, 2, [0.1, 0.8, 0.82]),
    result("easgd", 8, 1, [0.1, 0.6, 0.75], center_load=0.97),
    result("easgd", 8, 2, [0.1, 0.5, 0.81]),
    result("sync", 4, 1, [0.1, 0.2, 0.3], staleness=0.0, exchange_share=0.4, slow_workers=1),
    result("sync", 4, 2, [0.1, 0.2, 0.3], staleness=0.0, accuracy=None, failure="worker 0: loss is nan at minibatch 3"),
]


def simulation_report(results: list[VirtualResult], **options: object) -> SimulationReport:
    config = parse_config(SimulateConfig, {"solver": Path("lenet.prototxt"), **options})
    return make_report(config, SIZE, 0.05, "given", results, [])


def test_the_target_is_a_point_below_one_worker() -> None:
    assert choose_target(RUNS) == pytest.approx(0.80)
    assert choose_target(RUNS[2:]) == pytest.approx(0.81)  # of the best, without one worker
    losses = [run.model_copy(update={"figure": "loss"}) for run in RUNS]
    assert choose_target(losses[2:]) == pytest.approx(0.303)
    assert choose_target([RUNS[-1]]) is None


def test_groups_are_means_over_seeds() -> None:
    single, four, eight, sync = simulation_report(RUNS, target=0.8).groups
    assert (single.strategy, single.workers, single.speedup) == ("single_worker", 1, 1.0)
    assert (four.accuracy, four.lowest, four.highest) == pytest.approx((0.81, 0.80, 0.82))
    assert single.time_to_target == 10.0
    assert four.time_to_target == pytest.approx((2.5 + 1.25) / 2)
    assert four.speedup == pytest.approx(10.0 / 1.875)
    assert eight.time_to_target is None, "one seed did not reach it"
    assert eight.speedup is None
    assert sync.accuracy == sync.highest == 0.3


def test_table_and_page_tell_the_same_of_a_group() -> None:
    first = result("easgd", 4, 1, [0.1], bytes=2_000_000, comm_period=1, staleness=2.0, center_load=0.5)
    second = result("easgd", 4, 2, [0.1], bytes=4_000_000, staleness=4.0, exchange_share=0.25)
    report = simulation_report([first, second])
    (group,) = report.groups
    assert (group.bytes, group.comm_period, group.staleness) == (3_000_000, 3, 3.0)
    assert (group.center_load, group.exchange_share) == (0.5, 0.25)
    console = Console(width=160)
    with console.capture() as shown:
        console.print(simulation_view(report))
    assert "2.9 MiB" in shown.get()
    assert '<td class="number">2.9 MiB</td>' in render_page(report)


def test_a_log_has_a_line_of_a_group() -> None:
    report = simulation_report(RUNS, target=0.8)
    single, four, eight, sync = (group_line(report, group) for group in report.groups)
    assert single == "one worker: accuracy 81.00 % (80.00 % to 82.00 %), 10 s of virtual time, 10 s to 80.00 %"
    assert four.startswith("easgd, 4 workers, tau 3: accuracy 81.00 % (80.00 % to 82.00 %), 2.5 s of virtual time")
    assert four.endswith(" to 80.00 %, 5.33 times as fast as one worker")
    assert eight.endswith("1.25 s of virtual time"), eight
    assert "accuracy 30.00 % (30.00 % to 30.00 % (1 failed))" in sync


def test_a_slower_target_of_some_seeds_is_no_time() -> None:
    rows = simulation_report(RUNS, target=0.7).rows
    assert [row.time_to_target for row in rows] == [10.0, 5.0, 2.5, 1.25, 1.25, 1.25, None, None]


def test_advice_has_its_reasons() -> None:
    texts = {advice.text: advice.reason for advice in simulation_report(RUNS, target=0.8).advice}
    assert texts["take easgd with 4 workers"].startswith("first at 80.00 %, after 1.88 s, 5.3 times faster")
    assert texts["easgd: from 8 workers on, give the run more minibatches for its accuracy"].startswith("3.0 points")
    assert "busy 97 %" in texts["easgd with 8 workers: take a longer tau or fewer workers"]
    waits = texts["sync: with 4 workers, an asynchronous strategy wastes less time"]
    assert waits == "workers spend 40 % of their time waiting and exchanging, 1 of them slow"
    failed = texts["do not take sync with 4 workers with these options"]
    assert failed == "1 of 2 seeds: worker 0: loss is nan at minibatch 3"


def test_more_workers_must_pay() -> None:
    slow = [*RUNS[:4], result("easgd", 16, 1, [0.1, 0.6, 0.8, 0.8, 0.8, 0.8, 0.8], virtual_s=9.0)]
    assert "easgd: stay at 4 workers" not in [advice.text for advice in simulation_report(slow, target=0.8).advice]
    slow[-1] = result("easgd", 16, 1, [0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.8])  # 1.875 s
    texts = {advice.text: advice.reason for advice in simulation_report(slow, target=0.8).advice}
    assert texts["easgd: stay at 4 workers"] == "4 times as many reach the target 1 times as fast"


def test_nothing_reaches_a_target_that_is_too_high() -> None:
    report = simulation_report(RUNS, target=0.99)
    assert report.advice[0].reason == "nothing with several workers reached 99.00 %"
    assert all(group.time_to_target is None for group in report.groups)


def test_runs_without_tests_tell_nothing() -> None:
    with pytest.raises(ConfigError, match="no run was tested; set test_interval"):
        simulation_report([RUNS[0].model_copy(update={"figure": "", "curve": ()})])


def test_an_end_without_a_test_is_noted() -> None:
    late = RUNS[0].model_copy(update={"clock": 250})
    assert simulation_report([late]).notes[-1].startswith("the last test is at minibatch 200 of 250")


def test_the_table_has_a_line_per_group() -> None:
    console = Console(width=200, record=True, file=None, quiet=False)
    with console.capture() as capture:
        console.print(simulation_view(simulation_report(RUNS, target=0.8)))
    text = capture.get()
    (four,) = [line.split() for line in text.splitlines() if line.split()[:2] == ["easgd", "4"]]
    assert " ".join(four) == "easgd 4 3 81.00 % 80.00 % to 82.00 % 2.5 s 1.88 s 5.33 1.0 10 % 976.6 KiB"
    assert "one worker" in text
    assert "(1 failed)" in text
    assert "note: the data are not here" in text
