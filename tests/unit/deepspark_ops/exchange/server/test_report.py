from __future__ import annotations

import numpy as np

from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.chunks import Chunks
from deepspark_ops.exchange.center.lost_updates import LostUpdates
from deepspark_ops.exchange.center.memory import CenterShape
from deepspark_ops.exchange.center.pushes import exchange_in_memory
from deepspark_ops.exchange.server.report import REPORT_EVERY_S, ServerReport
from deepspark_ops.exchange.strategies.base import find_strategy
from deepspark_ops.param_vector import StatisticBlobs

N_PARAMS = 100


class Bench:
    """Two workers at a center, and a clock moved by tests."""

    def __init__(self, rest_steps: int = 0) -> None:
        self.now = 50.0
        self.chunks = Chunks(N_PARAMS, N_PARAMS, find_strategy("easgd"), StatisticBlobs())
        self.center = Center.in_memory(np.zeros(N_PARAMS, np.float32), CenterShape(N_PARAMS, 2, 1))
        watch = LostUpdates(self.center, self.chunks, rest_steps=rest_steps)
        self.report = ServerReport(self.center, watch, lambda: self.now)

    def exchange(self, worker: int) -> None:
        local = np.full(N_PARAMS, 3.0, np.float32)
        new_local, push = np.empty_like(local), np.empty_like(local)
        context = self.center.begin(worker, 0.5)
        exchange_in_memory(
            self.center, self.chunks, worker, (0,), context, local, new_local, local, push, measure_distance=False
        )
        self.center.end(worker, context, 800)


def test_report_says_what_was_exchanged_since_the_last_one() -> None:
    bench = Bench(rest_steps=1)
    for worker in (0, 1, 0):
        bench.exchange(worker)
    bench.now += 1.5
    assert bench.report.next() == {
        "exchanges": 3,
        "seconds": 1.5,
        "exchanges_per_s": 2.0,
        "bytes_per_s": 1600,
        "moved_bytes": 2400,
        "overlaps": 0,
        "staleness": round(1 / 3, 3),  # worker 0 knows the center from before worker 1's exchange
    }
    bench.now += 1.5
    assert bench.report.next() is None
    bench.exchange(1)
    bench.now += 2.0
    report = bench.report.next()
    assert report is not None
    assert (report["exchanges"], report["seconds"], report["moved_bytes"]) == (1, 2.0, 3200)


def test_report_says_what_the_watch_found() -> None:
    bench = Bench()
    for lost, share in ((False, 0.0), (True, 0.5)):
        old_center = bench.center.snapshot()
        bench.exchange(0)
        if lost:
            bench.center.vector[:] = old_center  # as if another process had written back what it read
            bench.exchange(1)
        bench.now += 1.0
        report = bench.report.next()
        assert report is not None
        assert (report["lost_updates"], report["watched_chunk"], report["watched_pushes"]) == (share, 0, 1 + lost)
        assert (abs(report["deviation"]) > report["rounding"]) is lost
        bench.report.watch()


def test_it_is_due_after_a_while() -> None:
    bench = Bench()
    assert not bench.report.is_due
    bench.now += REPORT_EVERY_S
    assert bench.report.is_due
    bench.report.next()
    assert not bench.report.is_due
