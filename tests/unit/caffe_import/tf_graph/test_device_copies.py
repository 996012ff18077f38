"""Values stay on a device from call to call; the device is a second logical CPU device of a separate process."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.processes import answer_of_module

pytestmark = pytest.mark.tf


each_solver = pytest.mark.parametrize("solver", [pytest.param("sgd", marks=pytest.mark.long), "adam"])


@cache
def found_of(solver: str) -> dict[str, Any]:
    return answer_of_module("tests.unit.caffe_import.tf_graph.steps_on_a_device", solver)


@each_solver
def test_a_device_gives_the_numbers_of_the_host(solver: str) -> None:
    assert found_of(solver)["is_same"]
    assert found_of(solver)["n_traces"] == 3  # run, gradient, apply


@each_solver
def test_from_call_to_call_batches_alone_go_to_the_device(solver: str) -> None:
    ran = found_of(solver)
    # Rates of ten steps, number in the staging area, count of updates, clock, key of random draws.
    small = [40, 8, 8, 8, 8]
    assert sorted(ran["later_to_device"]) == sorted(2 * (small + ran["feed_bytes"]))
    # The first call brings parameters and history, too.
    assert sum(ran["first_to_device"]) > sum(ran["feed_bytes"]) + 2 * ran["param_bytes"]


@each_solver
def test_parameters_and_history_are_read_by_who_asks_for_them_alone(solver: str) -> None:
    ran = found_of(solver)
    assert ran["stays"]
    assert max(ran["reports_to_host"]) == 40  # losses, norms and outputs of ten steps
    assert ran["read_by_a_snapshot"][0] == ran["param_bytes"]
    assert sum(ran["read_by_a_snapshot"]) == ran["param_bytes"] * (3 if solver == "adam" else 2)


@each_solver
def test_within_a_call_nothing_goes_from_one_device_to_another(solver: str) -> None:
    assert found_of(solver)["sent"] == []


def test_an_array_is_copied_once_and_may_be_written_then() -> None:
    assert found_of("adam")["arrays"] == {
        "is_there": True,
        "is_own_memory": True,
        "is_moved_once": True,
        "is_read_only": True,
    }
