"""The planted faults of ``make mutants`` name places that exist. Planting them takes minutes and is not done here."""

from __future__ import annotations

import pytest

from tests.mutants.fault import FAULTS, Fault
from tests.paths import ROOT


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_names_one_place_and_tests_that_exist(fault: Fault) -> None:
    assert fault.count() == 1, f"{fault.file} has the text {fault.count()} times: {fault.old!r}"
    assert fault.new != fault.old
    assert [test for test in fault.tests if not (ROOT / test).exists()] == []
