"""The planted faults of ``make mutants`` name places that exist. Planting them takes minutes and is not done here."""

from __future__ import annotations

from tests.mutants.fault import FAULTS
from tests.paths import ROOT


def test_each_fault_names_one_place_and_tests_that_exist() -> None:
    n_places = {fault.name: fault.count() for fault in FAULTS}
    assert {name: count for name, count in n_places.items() if count != 1} == {}, "places that have the text"
    assert [fault.name for fault in FAULTS if fault.new == fault.old] == []
    assert [(fault.name, test) for fault in FAULTS for test in fault.tests if not (ROOT / test).exists()] == []
