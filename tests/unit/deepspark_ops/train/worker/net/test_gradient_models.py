"""Models around a net of a few numbers, with real exchanges in this process, against slow references."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepspark_ops.exchange.local_exchange import LocalExchange
from deepspark_ops.exchange.transport.link import WorkerLink
from deepspark_ops.param_vector import StatisticBlobs, Vector
from deepspark_ops.train.worker.net.gradient_models import AveragingModel, CompensatedModel, model_for
from deepspark_ops.train.worker.net.model import StepReport
from tests.reference.slow_strategies import slow_dcasgd
from tests.unit.deepspark_ops.exchange.exchange_run import make_settings

N_PARAMS = 5
RATE, MOMENTUM, DECAY = 0.05, 0.6, 0.1


class QuarticModel:
    """Loss sum (x - target)^4 / 4 and SGD with momentum; ``meanwhile`` is called while a gradient is computed."""

    def __init__(self, target: Vector, local: Vector) -> None:
        self.statistics, self.n_passes = StatisticBlobs(), 1
        self.meanwhile: Callable[[], object] = lambda: None
        self._target, self._local, self._velocity = target, local, np.zeros_like(target)

    def gradient(self, *, step: int, rate_scale: float, feeds: Any) -> tuple[Vector, StepReport]:
        gradient = (self._local - self._target) ** 3
        self.meanwhile()
        return gradient, StepReport(np.float32([0.0]), np.float32([RATE]))

    def apply(self, gradient: Vector, *, step: int, rate_scale: float) -> None:
        rate, momentum, decay = np.float32([RATE * rate_scale, MOMENTUM, DECAY])
        self._velocity = momentum * self._velocity + rate * (gradient + decay * self._local)
        self._local = self._local - self._velocity

    def local(self) -> Vector:
        return self._local

    def replace_local(self, local: Vector) -> None:
        self._local = local


def exchange_of(folder: Path, initial: Vector, strategy: str, **fields: Any) -> LocalExchange:
    settings = make_settings(folder, n_params=len(initial), n_workers=2, chunk=2, strategy=strategy, **fields)
    return LocalExchange(settings, initial)


def joined_links(exchange: LocalExchange) -> list[WorkerLink]:
    links = [exchange.link() for _ in range(2)]
    for worker, link in enumerate(links):
        link.join(worker)
    return links


@pytest.mark.parametrize("compensation", [0.0, 0.7])
def test_delayed_gradients_are_compensated_as_in_the_slow_reference(tmp_path: Path, compensation: float) -> None:
    rng = np.random.default_rng(5)
    initial = rng.standard_normal(N_PARAMS).astype(np.float32)
    targets = rng.standard_normal((2, N_PARAMS)).astype(np.float32)
    exchange = exchange_of(tmp_path, initial, "dcasgd", options={"compensation": compensation})
    links = joined_links(exchange)
    nets = [QuarticModel(target, link.pull()) for target, link in zip(targets, links, strict=True)]
    models = [model_for(exchange.settings.running_strategy(), net, link) for net, link in zip(nets, links, strict=True)]
    assert all(isinstance(model, CompensatedModel) for model in models)

    def work(worker: int) -> None:
        models[worker].run(step=0, n_steps=1, rate_scale=1.0, feeds={})
        local, _ = links[worker].exchange(models[worker].local())
        models[worker].replace_local(local)

    events: list[tuple[str, int]] = []

    def play(order: Sequence[tuple[int, int]]) -> None:
        """Worker ``slow`` takes its gradient, the other worker makes ``n_quick`` steps meanwhile, then the slow worker
        steps.
        """
        for slow, n_quick in order:
            quick = 1 - slow
            nets[slow].meanwhile = lambda quick=quick, n_quick=n_quick: [work(quick) for _ in range(n_quick)]
            work(slow)
            nets[slow].meanwhile = lambda: None
            events.append(("gradient", slow))
            events.extend([("gradient", quick), ("step", quick)] * n_quick)
            events.append(("step", slow))

    play([(0, 2), (1, 0), (1, 3), (0, 1)])
    expected_locals, center = slow_dcasgd(
        initial.tolist(), targets.tolist(), events, compensation, (RATE, MOMENTUM, DECAY)
    )
    np.testing.assert_allclose(exchange.center.vector, center, rtol=1e-5, atol=1e-6)  # float32, 10 steps
    for model, expected_local in zip(models, expected_locals, strict=True):
        np.testing.assert_allclose(model.local(), expected_local, rtol=1e-5, atol=1e-6)


def test_a_pull_before_the_first_minibatch_leaves_the_first_push_the_first() -> None:
    net = QuarticModel(np.ones(N_PARAMS, np.float32), np.zeros(N_PARAMS, np.float32))
    net.count_update = lambda: 0  # type: ignore[attr-defined]
    model = AveragingModel(net)  # type: ignore[arg-type]
    is_first = []
    for _ in range(2):
        model.replace_local(np.zeros(N_PARAMS, np.float32))
        model.run(step=0, n_steps=1, rate_scale=1.0, feeds={})
        is_first.append(model.round_note().is_first)
    assert is_first == [True, False]


def test_statistics_stay_the_workers_own_until_they_meet(tmp_path: Path) -> None:
    statistics = StatisticBlobs.from_json([[1, 2, 2, 3, 3, 0.5]])
    initial = np.float32([5.0, 6.0, 8.0, 2.0, 1.0])
    exchange = exchange_of(tmp_path, initial, "dcasgd", statistics=statistics)
    link, other = joined_links(exchange)
    net = QuarticModel(initial, np.float32([5.0, 40.0, 90.0, 10.0, 1.0]))
    net.statistics = statistics
    net.apply = lambda *_, **__: None  # type: ignore[method-assign]
    other.exchange(other.pull() + np.float32(1.0))
    link.pull()
    model = model_for(exchange.settings.running_strategy(), net, link)
    model.run(step=0, n_steps=1, rate_scale=1.0, feeds={})
    assert model.local().tolist() == [6.0, 40.0, 90.0, 10.0, 2.0]
