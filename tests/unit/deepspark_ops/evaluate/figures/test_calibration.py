import re

import numpy as np
import pytest

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.figures.calibration import CalibrationSum
from tests.reference.slow_figures import slow_ece


def confidences_and_hits(n, seed):
    rng = np.random.default_rng(seed)
    confidences = rng.beta(4, 1, n)
    confidences[:4] = [0.0, 0.2, 0.4, 1.0]  # edges of bins
    return confidences, rng.random(n) < confidences**2


@pytest.mark.parametrize("n_bins", [1, 5, 15])
def test_figures_are_those_of_the_definition(n_bins):
    confidences, is_right = confidences_and_hits(250, 1)
    total = CalibrationSum(n_bins)
    for at in range(0, 250, 9):
        total.add(confidences[at : at + 9], is_right[at : at + 9])
    result = total.result()
    ece, largest = slow_ece(confidences.tolist(), is_right.tolist(), n_bins)
    assert result.ece == pytest.approx(ece, abs=1e-12)
    assert result.largest_error == pytest.approx(largest, abs=1e-12)
    assert result.accuracy == is_right.mean()
    assert result.mean_confidence == pytest.approx(confidences.mean(), abs=1e-12)
    assert sum(bin_.count for bin_ in result.bins) == 250


def test_an_edge_belongs_to_the_bin_below():
    total = CalibrationSum(5)
    total.add(np.array([0.2, np.nextafter(0.2, 1)]), np.array([True, True]))
    assert [bin_.count for bin_ in total.result().bins] == [1, 1, 0, 0, 0]


def test_batches_and_processes_do_not_matter():
    confidences, is_right = confidences_and_hits(300, 2)
    total, first, second = CalibrationSum(), CalibrationSum(), CalibrationSum()
    total.add(confidences, is_right)
    order = np.random.default_rng(3).permutation(300)
    first.add(confidences[order[:100]], is_right[order[:100]])
    second.add(confidences[order[100:]], is_right[order[100:]])
    second.merge(first)
    assert second.result() == total.result()


def test_a_bin_without_samples_has_no_share():
    total = CalibrationSum(2)
    total.add(np.array([0.75]), np.array([True]))
    low, high = total.result().bins
    assert (low.count, low.confidence, low.accuracy) == (0, None, None)
    assert (high.count, high.confidence, high.accuracy) == (1, 0.75, 1.0)


def test_nothing_and_no_probability_are_errors():
    with pytest.raises(DataError, match=r"^no sample to measure calibration on$"):
        CalibrationSum().result()
    with pytest.raises(DataError, match=re.escape("sample 11: confidence 1.25; allowed: [0, 1], a probability")):
        CalibrationSum().add(np.array([0.5, 1.25]), np.array([True, True]), start=10)
