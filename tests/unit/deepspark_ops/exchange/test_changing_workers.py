"""Workers that join and vanish in the middle of a run: clock, data and progress."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.exchange.local_exchange import LocalExchange, LocalLink
from deepspark_ops.exchange.state.grants import Finished, Grant, Schedule
from deepspark_ops.exchange.state.leases import DatasetOrder, Lease
from deepspark_ops.exchange.strategies.base import configure
from deepspark_ops.train.worker.rates.rate_scale import PresentRateScale, RateScale
from tests.unit.deepspark_ops.exchange.exchange_run import make_settings

N_STEPS, TAU = 3_000, 2
DECAY = 0.002
"""Learning rate times curvature: a step of plain SGD multiplies the distance to the optimum by 1 - DECAY."""
SAMPLES = DatasetOrder((70, 53), order="shuffled", seed=4, piece_samples=7)


@dataclass
class Worker:
    """A scripted worker: a step is one record, and a step of gradient descent on a parabola."""

    link: LocalLink
    scale: PresentRateScale
    local: np.ndarray
    held: list[Grant] = field(default_factory=list)
    lease: Lease | None = None
    n_read: int = 0
    is_finished: bool = False

    @classmethod
    def join(cls, exchange: LocalExchange, worker: int, scale: RateScale) -> Worker:
        link = exchange.link()
        link.join(worker)
        return cls(link, PresentRateScale(scale), link.pull())

    def turn(self, records: Counter[tuple[int, int, int]], live: list[int]) -> None:
        """Take a grant and a record for each step, and exchange; the next turn acknowledges the grant."""
        answer = self.link.request_grant(TAU, done=self.held)
        self.held = []
        self.is_finished = isinstance(answer, Finished)
        if not isinstance(answer, Grant):
            return
        if answer.state_for:
            self.link.send_state(answer.state_for, {}, {})
        self.scale.see(answer.start, answer.live_workers)
        live.append(answer.live_workers)
        for step in range(answer.start, answer.stop):
            self._read(records)
            self.local = self.local * np.float32(1.0 - DECAY * self.scale.at(step))
        if answer.count:
            self.local, _ = self.link.exchange(self.local)
        self.held = [answer]

    def _read(self, records: Counter[tuple[int, int, int]]) -> None:
        """Read a record; a whole piece is counted when the server knows the piece as read."""
        if self.lease is None or self.n_read == self.lease.count:
            read = [self.lease] if self.lease else []
            self.lease, self.n_read = self.link.lease(read=read), 0
            for piece in read:
                records.update((piece.epoch, piece.shard, piece.start + offset) for offset in range(piece.count))
        assert self.lease is not None
        self.n_read += 1


@pytest.mark.parametrize(
    ("name", "most_workers", "expected_progress"),
    [
        ("easgd", 4, 1.0),
        ("easgd", 32, 1.0),
        ("downpour", 4, 1.0),
        ("softsync", 16, 1.0),
        ("async_diloco", 16, 1.0),
        ("dcasgd", 16, (1 + 1 / 4 + 1 / 2) / 3),  # the rate is a share of the solver's: 1 over the present workers
    ],
)
def test_one_worker_then_four_then_two_keep_clock_data_and_progress(
    tmp_path: Path, name: str, most_workers: int, expected_progress: float
) -> None:
    settings = make_settings(
        tmp_path,
        n_params=1,
        n_workers=most_workers,
        schedule=Schedule(N_STEPS),
        datasets={"train": SAMPLES},
        strategy=name,
        watch_rest_s=3600.0,
    )
    calls = itertools.count()
    exchange = LocalExchange(settings, np.ones(1, np.float32), clock=lambda: 0.001 * next(calls))  # steps of equal time
    strategy = configure(name, {}).for_workers(most_workers)
    factors = tuple(strategy.rate_factor(p) for p in range(1, most_workers + 1))
    scale = RateScale(factors[-1], 0, 0, "", of_workers=factors)
    records: Counter[tuple[int, int, int]] = Counter()
    live: list[int] = []
    workers = [Worker.join(exchange, 0, scale)]
    for first, last in [(0, N_STEPS // 3), (N_STEPS // 3, 2 * N_STEPS // 3), (2 * N_STEPS // 3, N_STEPS)]:
        if first == N_STEPS // 3:
            workers += [Worker.join(exchange, worker, scale) for worker in (1, 2, 3)]
        if first == 2 * N_STEPS // 3:
            for worker in workers[2:]:
                worker.link.close()  # with a grant that is exchanged and not acknowledged, and with a piece half read
            del workers[2:]
        while exchange.poll().clock < last or (last == N_STEPS and not all(w.is_finished for w in workers)):
            for worker in workers:
                worker.turn(records, live)

    status = exchange.poll()
    assert (status.clock, status.acknowledged, status.finished) == (N_STEPS, N_STEPS, True)
    assert [number for at, number in enumerate(live) if at == 0 or number != live[at - 1]] == [1, 4, 2]
    assert status.reissued_grants in (2, 3), "a slower worker's grant may be cut"
    whole_epochs = [epoch for epoch in {epoch for epoch, _, _ in records} if epoch < N_STEPS // SAMPLES.n_samples - 1]
    assert len(whole_epochs) > 20
    for epoch in whole_epochs:
        counts = [count for (of, _, _), count in records.items() if of == epoch]
        assert (len(counts), set(counts)) == (SAMPLES.n_samples, {1}), "each record once an epoch"
    progress = math.log(float(exchange.center.vector[0])) / math.log(1.0 - DECAY)
    assert progress / N_STEPS == pytest.approx(expected_progress, rel=0.1), "as far as plain SGD in as many minibatches"


@pytest.mark.parametrize(
    ("n_present", "worker_moves", "center_moves"), [(2, 0.45, 0.45), (4, 0.3, 0.3), (8, 0.3, 0.15), (24, 0.3, 0.1)]
)
def test_the_present_workers_decide_the_moving_rate_and_the_weight_of_the_center(
    tmp_path: Path, n_present: int, worker_moves: float, center_moves: float
) -> None:
    """A run of at most 32 workers: alpha is 0.45 with two, else 0.3; the center weighs 1, 2 or p/8 workers."""
    exchange = LocalExchange(make_settings(tmp_path, n_params=1, n_workers=32), np.zeros(1, np.float32))
    links = [exchange.link() for _ in range(n_present)]
    for worker, link in enumerate(links):
        link.join(worker)
        link.pull()
    local, _ = links[0].exchange(np.ones(1, np.float32))
    assert (1.0 - local[0], exchange.center.vector[0]) == pytest.approx((worker_moves, center_moves))


def test_a_worker_that_leaves_or_vanishes_does_not_count(tmp_path: Path) -> None:
    exchange = LocalExchange(make_settings(tmp_path, n_params=1, n_workers=32), np.zeros(1, np.float32))
    links = [exchange.link() for _ in range(4)]
    for worker, link in enumerate(links):
        link.join(worker)
        link.pull()
    links[3].leave()
    links[2].close()
    local, _ = links[0].exchange(np.ones(1, np.float32))
    assert 1.0 - local[0] == pytest.approx(0.45)
