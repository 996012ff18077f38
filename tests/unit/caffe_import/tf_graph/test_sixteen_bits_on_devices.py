"""16-bit steps on several devices and with recomputed segments: the same steps made and skipped, the same numbers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.processes import answer_of_module

pytestmark = pytest.mark.tf

MODULE = "tests.unit.caffe_import.tf_graph.sixteen_bits_on_devices"
PLANS = ("recompute", "replicas", "placement", "split")


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return answer_of_module(MODULE, "float16", "bfloat16:replicas")


@pytest.fixture(scope="module")
def bfloat16_results() -> dict[str, Any]:
    return answer_of_module(MODULE, "bfloat16")


@pytest.mark.parametrize(("precision", "plan"), [*(("float16", plan) for plan in PLANS), ("bfloat16", "replicas")])
def test_a_plan_changes_no_number(results: dict[str, Any], precision: str, plan: str) -> None:
    assert_no_number_is_changed(results[precision][plan], plan)


@pytest.mark.long
@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_changes_no_number_in_bfloat16(bfloat16_results: dict[str, Any], plan: str) -> None:
    assert_no_number_is_changed(bfloat16_results["bfloat16"][plan], plan)


def assert_no_number_is_changed(ran: dict[str, Any], plan: str) -> None:
    # A split layer's bottom gets the sum of two gradients, each rounded to 16 bits.
    rounding = 2.0**-8 if plan == "split" else 1e-6
    assert ran["difference"] <= rounding
    assert ran["losses"] <= rounding


@pytest.mark.parametrize("plan", PLANS)
def test_the_same_steps_are_skipped(results: dict[str, Any], plan: str) -> None:
    ran, plain = results["float16"][plan], results["float16"]["plain"]
    assert plain["made"].count(False) > 2, "some steps must be skipped"
    assert plain["made"].count(True) == plain["updates"] > 1
    assert [ran[key] for key in ("begun", "made", "updates")] == [plain[key] for key in ("begun", "made", "updates")]


def test_a_skipped_step_leaves_the_statistics_of_every_replica(results: dict[str, Any]) -> None:
    assert results["float16"]["replicas"]["is_unmoved"]
    assert not results["bfloat16"]["replicas"]["is_unmoved"]
