from __future__ import annotations

import numpy as np
import pytest

from caffe_import.parity.findings import Findings, members_under, relative_error


@pytest.mark.parametrize(
    ("values", "reference", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.1, 2.0], [1.0, 2.0], 0.1),
        ([0.01, 2.0], [0.0, 2.0], 0.05),  # against a tenth of the largest, 0.2
        ([0.5], [0.0], 0.5),  # only zeros: absolute
        ([np.inf, 1.0], [np.inf, 1.0], 0.0),
        ([np.nan], [np.nan], 0.0),
        ([np.nan], [1.0], np.inf),
        ([1.0], [np.inf], np.inf),
        ([1.0, 1.0], [1.0], np.inf),
    ],
)
def test_relative_error(values: list[float], reference: list[float], error: float) -> None:
    assert relative_error(np.array(values), np.array(reference)) == pytest.approx(error)


def test_compare_records_the_error_and_faults_above_the_bound() -> None:
    findings = Findings()
    findings.compare("a", np.float32([1.0]), np.float32([1.0]), 1e-5)
    findings.compare("b", np.float32([1.1]), np.float32([1.0]), 1e-5)
    findings.compare("c", np.zeros((1, 2)), np.zeros((2, 1)), 1e-5)
    assert findings.faults == [
        "b: relative error 0.1, bound 1e-05",
        "c: shape (1, 2), Caffe has (2, 1)",
    ]
    assert findings.worst == pytest.approx(0.1)


def test_a_value_that_is_not_a_number_is_a_fault() -> None:
    findings = Findings()
    findings.compare("a", np.float32([np.nan]), np.float32([1.0]), 1e-5)
    assert findings.faults == ["a: relative error inf, bound 1e-05"]


def test_facts_count_and_fault() -> None:
    findings = Findings()
    findings.agree("iter", 10, 10)
    findings.agree("name", "a", "b")
    findings.hold(claim=False, otherwise="no")
    assert findings.faults == ["name: 'a', Caffe has 'b'", "no"]
    assert findings.n_compared == 3


def test_members_are_named_without_their_prefix() -> None:
    archive = {"param/ip/0": np.zeros(1), "parameter/x": np.zeros(2), "loss": np.zeros(3)}
    assert list(members_under(archive, "param")) == ["ip/0"]
