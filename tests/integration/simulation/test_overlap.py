"""Exchanges that overlap the steps of virtual workers: against a slow loop of both equations, and the times."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.simulate import VirtualRunConfig
from deepspark_ops.exchange.local_exchange import LocalLink
from deepspark_ops.exchange.transport.link import ExchangeReport
from deepspark_ops.param_vector import Vector
from deepspark_ops.simulation.results import VirtualResult
from deepspark_ops.simulation.virtual_link import VirtualLink
from deepspark_ops.simulation.virtual_run import run_virtual
from deepspark_ops.train.data.batch_source import Feeds
from deepspark_ops.train.worker.loop.background_exchange import BackgroundExchange
from tests.integration.simulation.followed_run import follow_steps
from tests.integration.simulation.test_papers_algorithm import N_CLASSES, NET, RATE
from tests.integration.train.in_process import CAFFE
from tests.reference.slow_eamsgd import logistic_gradient

pytestmark = pytest.mark.tf

ALPHA, STEP_MS = 0.4, 50.0
PLAIN = "center_weight: 1 momentum_from_center: 0 measured_rates: false"


@dataclass
class SlowWorker:
    """Parameters, handed-over parameters, and the elastic difference of the open exchange."""

    x: np.ndarray
    handed_over: np.ndarray
    difference: np.ndarray


class SlowRun:
    """Steps x' = x - rate * gradient(x); exchanges e = alpha * (handed over - center), at their end x' = x - e."""

    def __init__(self) -> None:
        self.workers: dict[int, SlowWorker] = {}
        self.center = np.zeros(0)
        self.n_late = 0

    def join(self, worker: int, params: Vector) -> None:
        self.workers[worker] = SlowWorker(*(params.astype(np.float64) for _ in range(3)))
        self.center = self.workers[worker].x.copy() if not self.center.size else self.center

    def step(self, worker: int, feeds: Feeds, params: Vector) -> None:
        slow = self.workers[worker]
        for rows, labels in zip(feeds["data"], feeds["label"], strict=True):
            classes = np.asarray(labels).astype(np.int64).ravel()
            numbers = np.asarray(rows, np.float64).reshape(len(classes), -1)
            slow.x = slow.x - RATE * logistic_gradient(slow.x, numbers, classes, N_CLASSES)
        np.testing.assert_allclose(params, slow.x, rtol=0, atol=1e-6)

    def start(self, worker: int) -> None:
        self.workers[worker].handed_over = self.workers[worker].x

    def meet(self, worker: int, center: Vector) -> None:
        slow = self.workers[worker]
        slow.difference = ALPHA * (slow.handed_over - self.center)
        self.center = self.center + slow.difference
        np.testing.assert_allclose(center, self.center, rtol=0, atol=1e-6)

    def finish(self, worker: int, params: Vector) -> None:
        slow = self.workers[worker]
        self.n_late += not np.array_equal(slow.x, slow.handed_over)
        slow.x = slow.x - slow.difference
        np.testing.assert_allclose(params, slow.x, rtol=0, atol=1e-6)


def play_beside(slow: SlowRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the slow loop follow each start, run of steps, push, and begin and end of an exchange."""
    follow_steps(slow, monkeypatch)
    start, exchange, finish = BackgroundExchange.start, LocalLink.exchange, BackgroundExchange.finish

    def started(background: BackgroundExchange, *arguments: Any, **options: Any) -> None:
        slow.start(worker_of(background))
        start(background, *arguments, **options)

    def pushed(link: VirtualLink, local: Vector, **options: Any) -> tuple[Vector, ExchangeReport]:
        result = exchange(link, local, **options)
        slow.meet(link._time.worker, link._center.exchange.center.vector)
        return result

    def finished(background: BackgroundExchange, local: Vector) -> tuple[Vector, ExchangeReport]:
        new_local, report = finish(background, local)
        slow.finish(worker_of(background), new_local)
        return new_local, report

    def worker_of(background: BackgroundExchange) -> int:
        assert isinstance(background._link, VirtualLink)
        return background._link._time.worker

    monkeypatch.setattr(LocalLink, "exchange", pushed)
    monkeypatch.setattr(BackgroundExchange, "start", started)
    monkeypatch.setattr(BackgroundExchange, "finish", finished)


def simulate(folder: Path, **options: Any) -> VirtualResult:
    (folder / "net.prototxt").write_text(NET)
    solver = folder / "solver.prototxt"
    solver.write_text(
        f'net: "{folder}/net.prototxt" base_lr: {RATE} lr_policy: "fixed" max_iter: 60 test_iter: 1 test_interval: 60'
        " random_seed: 3"
    )
    values = {"solver": solver, "strategy": "easgd", "strategy_options": PLAIN, "moving_rate": ALPHA}
    values |= {"rate_scale": "none", "overlap": True, "step_ms": STEP_MS, "result": folder / "r.json", **options}
    result = run_virtual(parse_config(VirtualRunConfig, values), folder / "run")
    assert result.failure is None
    assert result.clock == 60
    return result


@pytest.fixture(autouse=True)
def from_caffe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The net's data are relative to Caffe's folder."""
    monkeypatch.chdir(CAFFE)


@pytest.mark.parametrize(("n_workers", "tau"), [(2, 1), (4, 3)])
def test_every_step_and_exchange_is_the_slow_loops(
    n_workers: int, tau: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowRun()
    play_beside(slow, monkeypatch)
    simulate(tmp_path, n_workers=n_workers, comm_period=tau, speed_spread=0.3, step_jitter=0.3)
    assert slow.n_late > 60 // tau // 2


def test_an_exchange_costs_time_only_where_it_is_longer_than_the_steps(tmp_path: Path) -> None:
    alike = {"n_workers": 4, "comm_period": 1, "step_jitter": 0.0, "network": "10gbit,16ms"}
    overlapped_s, one_after_the_other = (
        simulate(tmp_path, overlap=overlap, **alike).virtual_s for overlap in (True, False)
    )
    ways_s = 2 * 16e-3
    assert one_after_the_other == pytest.approx(15 * (STEP_MS / 1e3 + ways_s), rel=0.05)
    assert overlapped_s == pytest.approx(15 * STEP_MS / 1e3 + ways_s, rel=0.05)
