"""Runs in virtual time, with a net: equal to real runs where the order is certain, and repeatable."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.simulate import VirtualRunConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import strategy_names
from deepspark_ops.simulation.results import VirtualResult
from deepspark_ops.simulation.virtual_run import run_virtual
from deepspark_ops.train.snapshots.snapshot import vector_digest
from tests.integration.train.in_process import CAFFE, run_in_process

pytestmark = pytest.mark.tf

SOLVER = CAFFE / "solvers" / "sgd_mlp" / "solver.prototxt"
STEP_S = 0.05
ALONE_S = {1: 145e-6 * 3 + 6 * 50e-6 + 300e-6, 4: 145e-6 * 2 + 2 * 50e-6 + 300e-6}
"""Time of an exchange without its bytes, which are a few hundred, by number of workers: calls, ways, the worker's loop.

A worker alone waits for three calls. Several wait for one; the server's half of two others holds up everybody.
"""


@pytest.fixture(autouse=True)
def from_caffe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The solver's paths are relative to Caffe's folder."""
    monkeypatch.chdir(CAFFE)


@pytest.fixture(scope="module")
def solver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the recorded solver with a test net: the same net in phase TEST."""
    path = tmp_path_factory.mktemp("solver") / "solver.prototxt"
    path.write_text(SOLVER.read_text().replace("snapshot_prefix", "test_iter: 2 test_interval: 20 snapshot_prefix"))
    return path


def simulate(solver: Path, folder: Path, **options: Any) -> VirtualResult:
    values = {"overrides": "max_iter: 60", "strategy": "easgd", "n_workers": 1, "step_jitter": 0.0, **options}
    values |= {"solver": solver, "step_ms": 1e3 * STEP_S, "result": folder / "result.json"}
    result = run_virtual(parse_config(VirtualRunConfig, values), folder / "run")
    assert not (folder / "run").exists()
    return result


def test_one_virtual_worker_is_a_real_one_bit_for_bit(solver: Path, tmp_path: Path) -> None:
    real = run_in_process(
        TrainConfig(
            solver=solver,
            overrides="max_iter: 60 test_interval: 20",
            run_dir=tmp_path / "real",
            n_workers=1,
            threads_per_worker=1,
        )
    )
    virtual = simulate(solver, tmp_path, step_jitter=0.3)
    assert virtual.digest == vector_digest(real.center)
    tests = {event.clock: event.data["loss"] for event in real.events("evaluation")}
    assert {point.clock: point.value for point in virtual.curve} == tests
    assert list(tests) == [0, 20, 40, 60]


@pytest.mark.parametrize("strategy", ["easgd", "local_sgd"])
def test_the_same_seed_gives_the_same_bits(strategy: str, solver: Path, tmp_path: Path) -> None:
    options = {"n_workers": 4, "strategy": strategy, "step_jitter": 0.2, "speed_spread": 0.2, "stragglers": 0.25}
    first, second, other = (simulate(solver, tmp_path, seed=seed, **options) for seed in (5, 5, 6))
    assert first.model_copy(update={"host_s": 0.0}) == second.model_copy(update={"host_s": 0.0})
    assert first.digest != other.digest
    assert first.slow_workers == 1


@pytest.mark.parametrize(("n_workers", "least"), [(1, 60), (4, 15)])
def test_virtual_time_is_that_of_the_minibatches_and_exchanges(
    n_workers: int, least: int, solver: Path, tmp_path: Path
) -> None:
    result = simulate(solver, tmp_path, n_workers=n_workers, comm_period=1)
    expected = least * (STEP_S + ALONE_S[n_workers])
    assert result.virtual_s == pytest.approx(expected, rel=2e-3)  # the first time all come at once, and queue
    assert result.virtual_s >= expected
    assert result.exchanges == result.clock == 60


def test_tau_of_hosts_follows_the_network(solver: Path, tmp_path: Path) -> None:
    tree = {"overrides": "max_iter: 400", "n_workers": 4, "workers_per_host": 2, "comm_period": 1, "step_jitter": 0.05}

    def tree_run(network: str, options: str = "") -> VirtualResult:
        options = f"center: tree {options}"
        return simulate(solver, tmp_path / network, strategy_options=options, network=network, **tree)

    fast, slow, often = tree_run("10gbit,50us"), tree_run("10gbit,10ms"), tree_run("10gbit,10ms", "root_comm_period: 1")
    # 9 x (a call of 2 x 10 ms, the times of server and worker) in periods of 2 x (step, and the worker's own time).
    root_s, between_s = 0.0205, STEP_S + 0.0003
    assert (fast.root_comm_period, often.root_comm_period) == (1, 1)
    assert slow.root_comm_period == math.ceil(9 * root_s / (2 * between_s)) == 2
    assert slow.exchanges < 0.6 * often.exchanges
    assert slow.virtual_s < often.virtual_s
    flat = simulate(solver, tmp_path, n_workers=4, comm_period=1)
    assert flat.root_comm_period == 0


def test_a_slow_worker_holds_up_a_round_and_no_asynchronous_run(solver: Path, tmp_path: Path) -> None:
    slow = {"n_workers": 4, "stragglers": 0.25, "straggler_factor": 3.0, "comm_period": 1}
    in_rounds, free = (simulate(solver, tmp_path, strategy=strategy, **slow) for strategy in ("sync", "easgd"))
    assert in_rounds.virtual_s == pytest.approx(15 * (3 * STEP_S), rel=0.03)
    assert free.virtual_s == pytest.approx(60 * STEP_S / (3 + 1 / 3), rel=0.05)
    assert in_rounds.exchange_share > 0.4 > 0.1 > free.exchange_share


@pytest.mark.parametrize("strategy", ["easgd", "sync"])
def test_killed_workers_come_back_and_every_minibatch_is_done(strategy: str, solver: Path, tmp_path: Path) -> None:
    disturbed = simulate(solver, tmp_path, strategy=strategy, n_workers=4, deaths=3, restart_s=0.2)
    undisturbed = simulate(solver, tmp_path, strategy=strategy, n_workers=4)
    assert disturbed.clock == undisturbed.clock == 60
    assert disturbed.reissued_grants > 0 == undisturbed.reissued_grants
    assert disturbed.virtual_s > undisturbed.virtual_s


@pytest.mark.parametrize("strategy", strategy_names())
def test_every_strategy_lowers_the_loss(strategy: str, solver: Path, tmp_path: Path) -> None:
    period = {"comm_period": 2} if strategy not in ("sync", "dcasgd") else {}
    result = simulate(solver, tmp_path, strategy=strategy, n_workers=2, **period)
    assert result.figure == "loss"
    assert not result.higher_is_better
    losses = [point.value for point in result.curve]
    assert np.isfinite(losses).all()
    assert result.accuracy == losses[-1] < 0.9 * losses[0]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:overflow:RuntimeWarning")
def test_a_loss_that_is_not_finite_is_told_and_no_crash(solver: Path, tmp_path: Path) -> None:
    result = simulate(solver, tmp_path, overrides="max_iter: 60 base_lr: 1e30", n_workers=2)
    assert result.failure is not None
    assert "loss is" in result.failure
    assert result.accuracy is None


def test_a_solver_without_a_test_net_has_nothing_to_tell(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no test net"):
        simulate(SOLVER, tmp_path)


def test_nothing_moves_on_where_the_rate_falls_to_nothing(solver: Path, tmp_path: Path) -> None:
    # Workers and center meet, and that is all; with the momentum of the rate before the loss would fall by a quarter.
    overrides = 'max_iter: 240 test_interval: 20 test_iter: 5 lr_policy: "multistep" gamma: 0 stepvalue: 100'
    result = simulate(solver, tmp_path, overrides=overrides, n_workers=4, comm_period=1, moving_rate=0.3)
    losses = {point.clock: point.value for point in result.curve}
    assert losses[100] < 0.6 * losses[80]
    assert losses[240] == pytest.approx(losses[100], rel=0.02)


def test_what_is_measured_takes_virtual_time(tmp_path: Path) -> None:
    path = tmp_path / "solver.prototxt"
    recorded = (CAFFE / "solvers" / "sgd_conv" / "solver.prototxt").read_text()
    path.write_text(recorded.replace("snapshot_prefix", "test_iter: 2 test_interval: 20 snapshot_prefix"))
    options = {"n_workers": 4, "comm_period": 1}
    measuring, plain = (simulate(path, tmp_path, rate_scale=scale, **options) for scale in ("auto", 1.0))
    assert plain.virtual_s == pytest.approx(15 * STEP_S, rel=0.05)
    # The gradient, and three rounds of power iteration for each of two groups of layers.
    assert measuring.virtual_s - plain.virtual_s == pytest.approx(7 * STEP_S, rel=0.05)
