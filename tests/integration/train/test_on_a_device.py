"""A worker on a device moves the parameters at an exchange, and at no other time.

The device is a second logical device of the CPU, in a separate process: TensorFlow treats the device like a GPU.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.processes import answer_of_module

pytestmark = pytest.mark.tf

STARTS = 2
"""The compilation tries the step on zeros; then the first parameters come."""


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    result = answer_of_module("tests.integration.train.runs_on_a_device")
    for run in ("plain", "device", "overlap"):
        assert set(result[run]["endings"]) == {"finished"}, result[run]["messages"]
    return result


def test_a_device_gives_the_hosts_losses_center_and_snapshots(results: dict[str, Any]) -> None:
    assert results["same"] == {"center": True, "losses": True, "snapshots": True}
    assert len(results["device"]["losses"]) == 40


def test_an_exchange_copies_the_parameters_once_each_way_and_steps_do_not(results: dict[str, Any]) -> None:
    run = results["device"]
    assert (run["n_exchanges"], run["n_tests"]) == (4, 2)
    assert run["vectors_to_host"] == run["n_exchanges"]
    # What the last exchange gives is used no more; a test takes the center's parameters once for all its batches.
    assert run["vectors_to_device"] == STARTS + run["n_exchanges"] - 1 + run["n_tests"]
    assert run["sent"] == []


def test_an_overlapped_exchange_reads_the_device_in_its_own_thread(results: dict[str, Any]) -> None:
    assert "exchange" in results["overlap"]["vector_readers"]
    assert "exchange" not in results["device"]["vector_readers"]


def test_batches_are_copied_ahead_of_time_by_a_thread_of_their_own(results: dict[str, Any]) -> None:
    assert results["device"]["batch_movers"] == ["device-batches"]


def test_on_the_host_nothing_is_copied(results: dict[str, Any]) -> None:
    run = results["plain"]
    assert (run["vectors_to_device"], run["vectors_to_host"], run["sent"]) == (0, 0, [])
