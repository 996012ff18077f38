"""The factors on the rates of groups of layers, on slopes whose curvature is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from caffe_import.devices.compute_plan import ComputePlan
from caffe_import.files.prototxt import parse_net, parse_solver
from caffe_import.net.net_spec import build_net_spec
from caffe_import.net.param_layout import ParamEntry
from caffe_import.solver.solver_spec import solver_spec
from deepspark_ops.config.base import parse_config
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.exchange.comm_period import CommPeriod
from deepspark_ops.param_vector import Vector
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.train.data.data_binding import DataBinding
from deepspark_ops.train.setup.run import Run
from deepspark_ops.train.worker.rates.measured_rates import MeasuredRates, RateGroup, rate_groups
from deepspark_ops.train.worker.rates.stabiliser import stabiliser_plan
from deepspark_ops.train.worker.task import loop_plan, with_state

N_OTHERS, N_OWN = 4, 6
MOMENTUM, RATE = 0.9, 0.01
BEARS = 2 * (1 + MOMENTUM) / RATE
"""The curvature at which steps of the rate no longer shrink."""
NET = """
layer {{ name: "data" type: "Input" top: "data" top: "label"
  input_param {{ shape {{ dim: 2 dim: 1 dim: 5 dim: 5 }} shape {{ dim: 2 }} }} }}
{conv}
layer {{ name: "ip" type: "InnerProduct" bottom: "{below}" top: "ip" param {{ lr_mult: 1 }} param {{ lr_mult: {bias} }}
  inner_product_param {{ num_output: 3 }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""
CONV = """
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" param { lr_mult: %g } param { lr_mult: %g }
  convolution_param { num_output: 2 kernel_size: 3 } }"""


def slope(largest: float, seed: int = 0) -> Callable[[Vector], Vector]:
    """Return the steps on a slope whose own part has eigenvalues up to ``largest``; the others' part is far steeper."""
    rng = np.random.default_rng(seed)
    turned, _ = np.linalg.qr(rng.normal(size=(N_OWN, N_OWN)))
    own_block = turned @ np.diag(np.linspace(0.1, 1.0, N_OWN) ** 2 * largest) @ turned.T
    hessian = np.zeros((N_OTHERS + N_OWN, N_OTHERS + N_OWN))
    hessian[:N_OTHERS, :N_OTHERS] = 1e4 * np.eye(N_OTHERS)
    hessian[N_OTHERS:, N_OTHERS:] = own_block
    hessian[:N_OTHERS, N_OTHERS:] = 3.0
    hessian[N_OTHERS:, :N_OTHERS] = 3.0
    lowest = rng.normal(size=N_OTHERS + N_OWN)
    return lambda params: (hessian @ (params - lowest)).astype(np.float32)


def measures(most: float = 4.0, **changes: Any) -> MeasuredRates:
    entries = (ParamEntry("ip", 0, N_OTHERS, (2, 2)), ParamEntry("ip", 1, N_OTHERS + 4, (2,)))
    return MeasuredRates([RateGroup("inner products", entries, most)], **{"momentum": MOMENTUM, **changes})


def factor(rates: MeasuredRates, rate: float = RATE, solver_rate: float = RATE / 10) -> float:
    (factors,) = rates.factors_at(rate, solver_rate)
    return float(factors)


PARAMS = np.linspace(-1, 1, N_OTHERS + N_OWN).astype(np.float32)


@pytest.mark.parametrize(
    ("largest", "expected"),
    [
        (BEARS / 100, 4.0),
        (BEARS / 8, 4.0),
        (BEARS / 5, 2.5),
        (BEARS / 3, 1.5),
        (BEARS / 2, 1.0),
        (BEARS / 1.2, 1.0),
        (BEARS * 2, 0.45),
        (BEARS * 5, 0.18),
        (BEARS * 100, 0.1),
    ],
)
def test_a_rate_is_raised_to_half_of_momentums_bound_and_lowered_to_nine_tenths(
    largest: float, expected: float
) -> None:
    """At most four times the run's rate, at least the solver's own."""
    rates, params, step_of = measures(), PARAMS.copy(), Mock(side_effect=slope(largest))
    rates.measure(step_of, params)
    assert factor(rates) == pytest.approx(expected, rel=0.12)
    assert np.array_equal(params, PARAMS)
    assert step_of.call_count == 4


def test_a_later_measurement_goes_on_where_the_one_before_has_ended() -> None:
    rates, step_of = measures(most=100.0), Mock(side_effect=slope(BEARS / 20))
    for _ in range(5):
        rates.measure(step_of, PARAMS)
    assert factor(rates) == pytest.approx(10.0, rel=1e-3)
    assert step_of.call_count == 4 + 4 * 3


def test_a_rate_is_raised_by_the_steepest_measurement_and_lowered_by_the_flatter_of_two() -> None:
    """A minibatch that the net has learned is flat, and the next minibatch is as steep as before."""
    rates, factors = measures(), []
    for largest in (BEARS / 3, BEARS / 100, BEARS / 100, BEARS / 3, BEARS * 2, BEARS * 5, BEARS * 5, BEARS / 3):
        rates.measure(slope(largest), PARAMS)
        factors.append(factor(rates))
    assert factors == pytest.approx([1.5, 1.67, 1.85, 1.5, 1.0, 0.45, 0.18, 1.0], rel=0.1)


def test_an_exchange_that_overlaps_lowers_the_bound_by_the_present_tau(tmp_path: Path) -> None:
    rates = measures()
    rates.measure(slope(BEARS * 2), PARAMS)
    assert rates.factors_at(RATE, RATE / 10, stable_share=0.5) == pytest.approx(0.5 * factor(rates))
    period = CommPeriod(1)
    plan = stabiliser_plan(measuring_run(tmp_path, overlap=True), period)
    bound_at_1 = plan.stable_share()
    period.value = 4
    assert 0 < plan.stable_share() < 0.25 * bound_at_1 < 0.25
    assert stabiliser_plan(measuring_run(tmp_path), period).stable_share() == 1.0


def test_measurements_come_four_times_later_each_and_then_every_thousand() -> None:
    rates, at = measures(), []
    for update in range(4_000):
        if rates.is_due():
            rates.measure(slope(1.0), PARAMS)
            at.append(update)
        rates.count(1)
    assert at == [8, 32, 128, 512, 1512, 2512, 3512]


def test_the_factor_follows_the_rate_between_measurements() -> None:
    """A warm-up raises the rate thirteen times while measurements lie four times farther apart each time."""
    rates = measures(most=8.0)
    assert factor(rates) == 1.0, "nothing is known yet"
    rates.measure(slope(BEARS / 16), PARAMS)
    factors = [factor(rates, by * RATE) for by in (0.5, 1, 2, 4, 8, 13, 32)]
    assert factors == pytest.approx([8.0, 8.0, 4.0, 2.0, 1.0, 1.0, 0.45], rel=0.1)
    assert factor(rates, 0.0) == 8.0


def test_each_group_has_the_curvature_of_its_own_blobs() -> None:
    """The others' part has a curvature of 10,000: their rate falls to the solver's own, the inner products' rises."""
    other_blobs = (ParamEntry("conv", 0, 0, (N_OTHERS,)),)
    products = (ParamEntry("ip", 0, N_OTHERS, (N_OWN,)),)
    groups = [RateGroup("other layers", other_blobs), RateGroup("inner products", products, 8.0)]
    rates = MeasuredRates(groups, momentum=MOMENTUM)
    step_of = Mock(side_effect=slope(BEARS / 8))
    rates.measure(step_of, PARAMS)
    assert step_of.call_count == 7
    (steep,), (flat,) = rates.curvatures
    assert (steep, flat) == (pytest.approx(1e4, rel=0.05), pytest.approx(BEARS / 8, rel=0.05))
    bound = 0.9 * 2 * (1 + MOMENTUM) / 1e4
    assert rates.factors_at(RATE, 0.0).tolist() == pytest.approx([bound / RATE, 4.0], rel=0.05)
    assert rates.factors_at(RATE, RATE / 4).tolist() == pytest.approx([0.25, 4.0], rel=0.05)


def test_a_later_life_of_the_run_goes_on_with_what_was_measured() -> None:
    first = measures()
    first.count(40)
    for largest in (BEARS / 3, BEARS / 100):
        first.measure(slope(largest), PARAMS)
    later = measures(state=first.state())
    assert factor(later) == factor(first) == pytest.approx(1.5 / 0.9, rel=0.1)
    assert (later.is_due(), later.state().tolist()) == (False, first.state().tolist())
    later.count(88)
    assert later.is_due()
    later.measure(slope(BEARS / 100), PARAMS)
    assert factor(later) == pytest.approx(1.5 / 0.9**2, rel=0.1), "a steep measurement is forgotten slowly"


def test_a_net_that_begins_trained_has_lowered_rates_alone() -> None:
    """A worker that starts again measures learned minibatches: LeNet's rate rose eightfold, and the run diverged."""
    first = measures(begins_trained=True)
    first.measure(slope(BEARS / 100), PARAMS)
    assert factor(first) == 1.0
    later = measures(state=first.state())
    assert factor(later) == 1.0, "a snapshot keeps it"
    for _ in range(2):
        later.measure(slope(BEARS * 2), PARAMS)
    assert factor(later) == pytest.approx(0.45, rel=0.1)


def test_a_later_start_of_a_worker_begins_trained(tmp_path: Path) -> None:
    plan = loop_plan(measuring_run(tmp_path), 0, 0)
    begins = [with_state(plan, None, attempt=attempt).stabiliser for attempt in (0, 1)]
    assert [stabiliser.begins_trained for stabiliser in begins] == [False, True]


def test_a_state_keeps_a_measurement_of_equal_groups_only() -> None:
    first = measures()
    first.measure(slope(BEARS / 3), PARAMS)
    assert factor(measures(state=first.state())) == pytest.approx(1.5, rel=0.1)
    assert factor(measures(state=np.float32([40, 128, 3.0]))) == 1.0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_leaves_the_nets_own_rate(value: float) -> None:
    rates = measures()
    rates.measure(slope(1.0), PARAMS)
    assert factor(rates) == 4.0
    rates.measure(lambda params: np.full_like(params, value), PARAMS)
    assert factor(rates) == 1.0


def test_a_flat_slope_bears_the_most() -> None:
    rates = measures()
    rates.measure(lambda params: np.zeros_like(params), PARAMS)
    assert factor(rates) == 4.0


def measuring_run(folder: Path, *, conv: str = CONV % (1, 1), bias: float = 2, solver: str = "", **options: Any) -> Run:
    net = build_net_spec(parse_net(NET.format(conv=conv, below="conv" if conv else "data", bias=bias)), phase="TRAIN")
    values = {"solver": folder / "solver.prototxt", "run_dir": folder, "n_workers": 8, "strategy": "easgd", **options}
    spec = solver_spec(parse_solver(f'base_lr: 0.1 momentum: 0.9 lr_policy: "fixed" max_iter: 100 {solver}'))
    config, paths = parse_config(TrainConfig, values), RunPaths(folder)
    return Run(config, paths, spec, net, (), DataBinding(None, folder, stamps={}), ComputePlan())


def entry_names(run: Run) -> dict[str, list[str]]:
    return {group.name: [entry.name for entry in group.entries] for group in rate_groups(run)}


def test_inner_products_beside_convolutions_are_a_group_of_their_own(tmp_path: Path) -> None:
    run = measuring_run(tmp_path)
    assert entry_names(run) == {"other layers": ["conv[0]", "conv[1]"], "inner products": ["ip[0]", "ip[1]"]}
    assert [group.most for group in rate_groups(run)] == [1.0, 8.0]
    plan = stabiliser_plan(run, CommPeriod(1))
    assert plan.groups == rate_groups(run)
    assert plan.momentum == pytest.approx(0.9)
    assert entry_names(measuring_run(tmp_path, bias=0))["inner products"] == ["ip[0]"]


@pytest.mark.parametrize(
    "changes",
    [
        {"n_workers": 1},
        {"n_workers": 2},
        {"strategy": "sync"},
        {"rate_scale": "none"},
        {"rate_scale": 3.0},
        {"strategy_options": "measured_rates: false"},
        {"conv": ""},
        {"conv": CONV % (0, 0)},
        {"solver": "clip_gradients: 5"},
        {"solver": 'type: "Adam"'},
    ],
)
def test_other_runs_measure_no_rates(changes: dict[str, Any], tmp_path: Path) -> None:
    assert rate_groups(measuring_run(tmp_path, **changes)) == ()


@pytest.mark.parametrize("plan", [{"precision": "float16"}, {"precision": "bfloat16"}, {"n_replicas": 2}])
def test_sixteen_bits_and_several_devices_keep_it_too(plan: dict[str, Any], tmp_path: Path) -> None:
    run = replace(measuring_run(tmp_path), plan=ComputePlan(**plan))
    assert rate_groups(run) == ()
