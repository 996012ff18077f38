import re

import numpy as np
import pytest
from scipy.stats import pearsonr

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.figures.regression import MAX_HISTOGRAMS, SHOWN_BARS, RegressionSum
from tests.reference.slow_figures import slow_regression
from tests.unit.deepspark_ops.evaluate.figures.batched_sum import sum_in_batches


def predictions(n, n_outputs, seed, *, offset=0.0):
    rng = np.random.default_rng(seed)
    true = (rng.standard_normal((n, n_outputs)) + offset).astype(np.float32)
    return (true + 0.3 * rng.standard_normal((n, n_outputs)) + 0.1).astype(np.float32), true


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_figures_are_those_of_the_definitions(offset):
    predicted, true = predictions(150, 2, 1, offset=offset)
    result = sum_in_batches(RegressionSum(true.shape[1], worst=3), predicted, true).result(["width"])
    assert [output.name for output in result.outputs] == ["width", "1"]
    for at, output in enumerate(result.outputs):
        expected = slow_regression(predicted[:, at].tolist(), true[:, at].tolist())
        for name, value in expected.items():
            assert getattr(output, name) == pytest.approx(value, rel=1e-12)
        assert output.mean_true == pytest.approx(float(true[:, at].astype(np.float64).mean()), rel=1e-12)
    assert result.r2 == pytest.approx(np.mean([output.r2 for output in result.outputs]), rel=1e-12)
    everything = slow_regression(predicted.ravel().tolist(), true.ravel().tolist())
    for name in ("mae", "rmse", "bias"):
        assert getattr(result, name) == pytest.approx(everything[name], rel=1e-12)


def test_r2_of_the_least_squares_line_is_the_squared_correlation():
    rng = np.random.default_rng(9)
    x = rng.standard_normal(200)
    y = 2 * x + rng.standard_normal(200)
    line = np.polyval(np.polyfit(x, y, 1), x)
    total = sum_in_batches(RegressionSum(1, worst=3), line[:, None], y[:, None])
    assert total.result().r2 == pytest.approx(pearsonr(x, y).statistic ** 2, rel=1e-10)


def test_batches_and_processes_do_not_matter():
    predicted, true = predictions(200, 3, 2)
    undivided = sum_in_batches(RegressionSum(true.shape[1], worst=3), predicted, true, batch=200)
    first, second = RegressionSum(3, worst=3), RegressionSum(3, worst=3)
    for total, rows in ((first, range(199, 90, -1)), (second, range(91))):
        for row in rows:
            total.add(predicted[row : row + 1], true[row : row + 1], start=row)
    first.merge(second)
    assert first.result() == undivided.result()


def test_worst_samples_are_the_worst():
    predicted, true = predictions(80, 2, 3)
    each = ((predicted.astype(np.float64) - true) ** 2).mean(axis=1)
    worst = sum_in_batches(RegressionSum(true.shape[1], worst=3), predicted, true).result().worst
    assert [sample.index for sample in worst] == np.argsort(-each)[:3].tolist()
    assert [sample.value for sample in worst] == pytest.approx(sorted(each, reverse=True)[:3])


def test_histogram_counts_residuals_and_leaves_out_few():
    predicted, true = predictions(1000, 1, 4)
    predicted[0] = 1e6
    shown = sum_in_batches(RegressionSum(true.shape[1], worst=3), predicted, true).result().outputs[0].residuals
    residuals = predicted[:, 0].astype(np.float64) - true[:, 0]
    assert len(shown.counts) <= SHOWN_BARS
    for at, count in enumerate(shown.counts):
        low = shown.low + at * shown.width
        assert count == np.count_nonzero((residuals >= low) & (residuals < low + shown.width))
    assert shown.above == np.count_nonzero(residuals >= shown.low + len(shown.counts) * shown.width)
    assert shown.below == np.count_nonzero(residuals < shown.low)
    assert 1 <= shown.above <= 5
    assert shown.below <= 5


def test_density_has_predicted_by_row():
    total = RegressionSum(1)
    total.add(np.array([[10.0], [10.0], [0.0]]), np.array([[0.0], [0.0], [0.0]]))
    density = total.result().outputs[0].density
    assert (density.counts[0][0], density.counts[-1][0]) == (1, 2)
    assert all(len(row) == 1 for row in density.counts)
    assert density.low_true == 0.0


def test_equal_true_values_have_no_r2():
    for value in (0.1, 3.0, 1e8 / 3):
        total = sum_in_batches(RegressionSum(1, worst=3), np.full((50, 1), 1.0), np.full((50, 1), value))
        assert total.result().r2 is None


def test_many_outputs_have_figures_and_few_histograms():
    predicted, true = predictions(10, MAX_HISTOGRAMS + 2, 5)
    outputs = sum_in_batches(RegressionSum(true.shape[1], worst=3), predicted, true).result().outputs
    assert len(outputs) == MAX_HISTOGRAMS + 2
    assert [output.residuals is None for output in outputs] == [False] * MAX_HISTOGRAMS + [True] * 2


def test_bad_numbers_are_named():
    message = (
        "sample 7: the net's prediction is nan, not a finite number; the weights diverged, score an earlier snapshot"
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        RegressionSum(2).add(np.array([[0.0, np.nan]]), np.zeros((1, 2)), start=7)
    with pytest.raises(DataError, match=r"^sample 0: the true value is inf, not a finite number; correct the data$"):
        RegressionSum(1).add(np.zeros((1, 1)), np.array([[np.inf]]))
    with pytest.raises(DataError, match=r"^no sample to compare predictions with$"):
        RegressionSum(1).result()
