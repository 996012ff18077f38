from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.local_exchange import LocalExchange
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.rounds.solver_step import CenterSolver, SolvedBlob
from deepspark_ops.exchange.strategies.base import find_strategy
from tests.reference.slow_strategies import slow_sync
from tests.reference.slow_training import SlowSolver
from tests.unit.deepspark_ops.exchange.exchange_run import make_settings

N_WORKERS, N_PARAMS, N_STEPS = 3, 6, 12
SOLVERS = [
    SlowSolver(momentum=0.9, weight_decay=0.01),
    SlowSolver(clip_gradients=0.5, iter_size=2),
    SlowSolver("Nesterov", momentum=0.9),
    SlowSolver("AdaGrad"),
    SlowSolver("RMSProp", rms_decay=0.9),
    SlowSolver("AdaDelta", momentum=0.9, delta=1e-3),
    SlowSolver("Adam", momentum=0.9, weight_decay=0.01),
]


def center_solver(slow: SlowSolver, n_params: int = N_PARAMS) -> CenterSolver:
    constants = (slow.momentum, slow.momentum2, slow.rms_decay, slow.delta, slow.weight_decay)
    blobs = (SolvedBlob(0, n_params, 1.0, 1.0),)
    return CenterSolver(slow.type, *constants, slow.regularization_type, slow.clip_gradients, slow.iter_size, blobs)


@pytest.mark.parametrize("slow", SOLVERS, ids=lambda slow: f"{slow.type}-{slow.clip_gradients:g}")
def test_workers_make_the_solvers_updates_by_their_mean_gradient(tmp_path: Path, slow: SlowSolver) -> None:
    rng = np.random.default_rng(2)
    targets = rng.standard_normal((N_WORKERS, N_PARAMS)).astype(np.float32)
    initial = rng.standard_normal(N_PARAMS).astype(np.float32)
    settings = make_settings(
        tmp_path, n_params=N_PARAMS, n_workers=N_WORKERS, chunk=4, strategy="sync", solver=center_solver(slow)
    )
    exchange = LocalExchange(settings, initial)
    links = [exchange.link() for _ in range(N_WORKERS)]
    ends: dict[int, np.ndarray] = {}
    for worker, link in enumerate(links):
        link.join(worker)  # all join before the first push: a round waits for all present workers

    def work(worker: int) -> None:
        local = links[worker].pull()
        for step in range(1, N_STEPS + 1):
            gradient = slow.iter_size * (local - targets[worker])  # the sum over passes of equal data
            note = RoundNote(0.0, slow.base_lr, step, is_first=step == 1)
            local, _ = links[worker].exchange(gradient, note=note)
        ends[worker] = local

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(N_WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    expected = slow_sync(initial.tolist(), targets.tolist(), N_STEPS, slow)
    np.testing.assert_allclose(exchange.center.vector, expected, rtol=1e-4, atol=1e-5)  # float32 over 12 steps
    for local in ends.values():
        assert np.array_equal(local, exchange.center.vector)


def test_rates_of_a_round_are_averaged_and_the_highest_update_counts(tmp_path: Path) -> None:
    solver = center_solver(SlowSolver("Adam", momentum=0.9), 2)
    settings = make_settings(tmp_path, n_params=2, strategy="sync", solver=solver)
    exchange = LocalExchange(settings, np.zeros(2, np.float32))
    closer = settings.running_strategy().closer(solver)
    gradient = np.float32([3.0, -2.0])
    contents_of = exchange.coordinator.updates.round_contents
    exchange.center.extras[0][:] = 2 * gradient
    exchange.center.counts[:] = 2
    notes = {0: RoundNote(1.0, 0.1, 7, is_first=False), 1: RoundNote(1.0, 0.3, 2, is_first=True)}
    closer.close(contents_of(notes))
    # m = 0.1 g, v = 0.001 g^2; the step is rate sqrt(1 - b2^7) / (1 - b1^7) m / sqrt(v), the same for every number.
    step = 0.2 * (1 - 0.999**7) ** 0.5 / (1 - 0.9**7) * 0.1 / 0.001**0.5
    np.testing.assert_allclose(exchange.center.vector, [-step, step], rtol=1e-5)
    assert not exchange.center.extras[0].any()
    assert not exchange.center.counts.any()


def test_history_is_of_the_snapshot_and_survives_settings(tmp_path: Path) -> None:
    solver = center_solver(SlowSolver("Adam", momentum=0.9), 2)
    settings = make_settings(tmp_path, n_params=2, strategy="sync", solver=solver)
    assert settings.center_shape().server_vectors == 3  # the sum, m and v
    assert type(settings).from_json(settings.to_json()) == settings
    with pytest.raises(ConfigError, match="solver=None: strategy sync solves at the center; give the solver"):
        make_settings(tmp_path, n_params=2, strategy="sync")


def test_sync_needs_comm_period_one() -> None:
    strategy = find_strategy("sync")
    assert strategy.comm_period_one
    assert strategy.progress_per_step(4) == 0.25
