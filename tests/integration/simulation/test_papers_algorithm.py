"""``variant: paper`` of ``easgd`` against a slow loop of the paper's listings, step by step, on a linear classifier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.simulate import VirtualRunConfig
from deepspark_ops.exchange.local_exchange import LocalLink
from deepspark_ops.exchange.transport.link import ExchangeReport
from deepspark_ops.param_vector import Vector
from deepspark_ops.simulation.virtual_link import VirtualLink
from deepspark_ops.simulation.virtual_run import run_virtual
from deepspark_ops.train.data.batch_source import Feeds
from tests.integration.simulation.followed_run import follow_steps
from tests.integration.train.in_process import CAFFE
from tests.reference.slow_eamsgd import PaperWorker, logistic_gradient

pytestmark = pytest.mark.tf

N_CLASSES, RATE, MOMENTUM = 3, 0.1, 0.9
NET = """
name: "classifier"
layer { name: "data" type: "HDF5Data" top: "data" top: "label"
  hdf5_data_param { source: "data/solver_mlp.txt" batch_size: 8 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


class PaperRun:
    """The slow loop beside a run: it takes the run's order and minibatches, and compares all parameters."""

    def __init__(self, n_workers: int, momentum: float) -> None:
        self.alpha, self.momentum = 0.9 / n_workers, momentum
        self.workers: dict[int, PaperWorker] = {}
        self.center = np.zeros(0)
        self.order: list[int] = []
        self.n_steps = 0

    def join(self, worker: int, params: Vector) -> None:
        self.workers[worker] = PaperWorker(params.astype(np.float64), self.momentum)
        self.center = self.workers[worker].x.copy() if not self.center.size else self.center

    def step(self, worker: int, feeds: Feeds, params: Vector) -> None:
        paper = self.workers[worker]
        for rows, labels in zip(feeds["data"], feeds["label"], strict=True):
            classes = np.asarray(labels).astype(np.int64).ravel()
            numbers = np.asarray(rows, np.float64).reshape(len(classes), -1)
            paper.step(logistic_gradient(paper.gradient_point, numbers, classes, N_CLASSES), RATE)
            self.n_steps += 1
        np.testing.assert_allclose(params, paper.gradient_point, rtol=0, atol=1e-6)

    def meet(self, worker: int, x: Vector, center: Vector) -> None:
        self.workers[worker].meet(self.center, self.alpha)
        self.order.append(worker)
        np.testing.assert_allclose(x, self.workers[worker].x, rtol=0, atol=1e-6)
        np.testing.assert_allclose(center, self.center, rtol=0, atol=1e-6)


def play_beside(paper: PaperRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the slow loop follow each start, run of steps and exchange of the virtual workers."""
    follow_steps(paper, monkeypatch)
    exchange = LocalLink.exchange

    def pushed(link: VirtualLink, local: Vector, **options: Any) -> tuple[Vector, ExchangeReport]:
        new_local, report = exchange(link, local, **options)
        paper.meet(link._time.worker, new_local, link._center.exchange.center.vector)
        return new_local, report

    monkeypatch.setattr(LocalLink, "exchange", pushed)


@pytest.mark.parametrize(
    ("solver_type", "momentum", "n_workers", "tau"),
    [("SGD", 0.0, 2, 1), ("SGD", 0.0, 5, 3), ("Nesterov", MOMENTUM, 2, 3), ("Nesterov", MOMENTUM, 5, 1)],
)
def test_every_step_and_exchange_is_the_papers(
    solver_type: str, momentum: float, n_workers: int, tau: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CAFFE)
    (tmp_path / "net.prototxt").write_text(NET)
    solver = tmp_path / "solver.prototxt"
    solver.write_text(
        f'net: "{tmp_path}/net.prototxt" type: "{solver_type}" momentum: {momentum} base_lr: {RATE}'
        " lr_policy: 'fixed' max_iter: 60 test_iter: 1 test_interval: 60 random_seed: 3"
    )
    paper = PaperRun(n_workers, momentum)
    play_beside(paper, monkeypatch)
    values = {"solver": solver, "strategy": "easgd", "strategy_options": "variant: paper", "n_workers": n_workers}
    values |= {"comm_period": tau, "step_ms": 50.0, "speed_spread": 0.3, "step_jitter": 0.3}
    result = run_virtual(parse_config(VirtualRunConfig, {**values, "result": tmp_path / "r.json"}), tmp_path / "run")
    assert result.failure is None
    assert paper.n_steps == 60
    assert len(paper.order) >= 60 // tau
    assert paper.order != sorted(paper.order)
    assert set(paper.order) == set(range(n_workers))
