"""Rates of every policy against Caffe's rates, and the counter in the state."""

from __future__ import annotations

import json
from dataclasses import replace
from math import e, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffe_import.files.prototxt import parse_solver, read_solver
from caffe_import.files.solverstate import read_solverstate
from caffe_import.solver.lr_policies import learning_rate, multistep_count, step_counter
from caffe_import.solver.solver_spec import SolverSpec, solver_spec
from tests.paths import FIXTURES

SOLVERS = FIXTURES / "caffe" / "solvers"
RATES: dict[str, list[float]] = json.loads((SOLVERS / "learning_rates.json").read_text())


def spec_of(text: str) -> SolverSpec:
    return solver_spec(parse_solver("base_lr: 0.5 max_iter: 10 " + text))


@pytest.mark.parametrize("case", sorted(RATES))
def test_rates_are_those_caffe_used(case: str) -> None:
    spec = solver_spec(read_solver(SOLVERS / case / "solver.prototxt"))
    rates = [learning_rate(spec, iteration) for iteration in range(len(RATES[case]))]
    assert rates == pytest.approx(RATES[case], rel=3e-6)  # Caffe computes 1 - iter/max_iter in float32


def test_every_policy_is_recorded() -> None:
    policies = {read_solver(SOLVERS / case / "solver.prototxt").lr_policy for case in RATES}
    assert policies == {"fixed", "step", "exp", "inv", "multistep", "poly", "sigmoid"}


def slow_count(stepvalues: list[int], iterations: int, count: int, since: int) -> list[int]:
    """GetLearningRate's own loop: asked once per iteration, at most one step forward each time."""
    counts = []
    for iteration in range(since, since + iterations):
        if count < len(stepvalues) and iteration >= stepvalues[count]:
            count += 1
        counts.append(count)
    return counts


@given(st.lists(st.integers(0, 20), max_size=6), st.integers(0, 10), st.data())
def test_multistep_count_is_caffes_counter(stepvalues: list[int], since: int, data: st.DataObject) -> None:
    restored = data.draw(st.integers(0, len(stepvalues)))
    counts = [multistep_count(stepvalues, since + i, current_step=restored, since=since) for i in range(30)]
    assert counts == slow_count(stepvalues, 30, restored, since)


def test_restored_counter_decides_the_rate() -> None:
    spec = spec_of('lr_policy: "multistep" gamma: 0.5 stepvalue: 3 stepvalue: 100')
    assert learning_rate(spec, 20) == 0.25
    assert learning_rate(replace(spec, restored_step=0, restored_at=20), 20) == 0.25
    assert learning_rate(replace(spec, restored_step=2, restored_at=20), 20) == 0.125


def test_multistep_without_a_step_is_a_constant_rate() -> None:
    spec = spec_of('lr_policy: "multistep" gamma: 0.5')
    assert [learning_rate(spec, iteration) for iteration in (0, 1, 999)] == [0.5] * 3


@pytest.mark.parametrize("case", ["snap_multistep", "snap_adam"])
def test_step_counter_is_the_one_in_caffes_state(case: str) -> None:
    spec = solver_spec(read_solver(SOLVERS / case / "solver.prototxt"))
    state = read_solverstate(SOLVERS / case / "snap_iter_10.solverstate")
    assert step_counter(spec, state.iteration) == state.current_step


def test_step_counter_of_step_is_of_the_last_update() -> None:
    spec = spec_of('lr_policy: "step" gamma: 0.5 stepsize: 5')
    assert [step_counter(spec, finished) for finished in (0, 1, 5, 6, 10, 11)] == [0, 0, 0, 1, 1, 2]


def test_a_sigmoid_with_a_negative_gamma_falls_from_the_base_rate_to_zero() -> None:
    spec = spec_of('lr_policy: "sigmoid" gamma: -0.5 stepsize: 20')
    rates = [learning_rate(spec, iteration) for iteration in (0, 18, 20, 22, 40)]
    # base_lr 0.5; exponents 0.5 * (iteration - 20)
    assert rates == pytest.approx([0.5 / (1 + e**power) for power in (-10, -1, 0, 1, 10)])


def test_extreme_values_end_in_infinity_or_zero_not_in_an_error() -> None:
    assert learning_rate(spec_of('lr_policy: "exp" gamma: 1e30'), 10**6) == inf
    assert learning_rate(spec_of('lr_policy: "exp" gamma: 0.5'), 10**6) == 0
    assert learning_rate(spec_of('lr_policy: "poly" power: 2'), 99) == 0
    assert learning_rate(spec_of('lr_policy: "sigmoid" gamma: 100 stepsize: 1000'), 0) == pytest.approx(0, abs=1e-200)
