"""Mean and spread in parts, against exact fractions and numpy."""

from fractions import Fraction

import numpy as np
import pytest

from deepspark_ops.ingest.tables.column_sums import ColumnSums, merged


def exact(column) -> tuple[Fraction, Fraction]:
    """Mean and variance (divisor n), without rounding."""
    values = [Fraction(float(value)) for value in column if value == value]
    mean = sum(values) / len(values)
    return mean, sum((value - mean) ** 2 for value in values) / len(values)


@pytest.mark.parametrize("cuts", [[], [1], [7, 7, 8], list(range(0, 200, 9))])
def test_parts_give_what_fractions_give_though_the_mean_is_a_billion_times_the_spread(cuts):
    rng = np.random.default_rng(len(cuts))
    values = rng.normal((1e9, 0.0, -5.0), (1.0, 1e-6, 3.0), (200, 3))
    values[rng.random((200, 3)) < 0.2] = np.nan
    sums = merged((ColumnSums.of(part) for part in np.split(values, cuts)), 3)
    for column in range(3):
        mean, variance = exact(values[:, column])
        assert abs(Fraction(sums.mean[column]) - mean) <= abs(mean) * Fraction(1, 2**50)
        assert sums.std()[column] == pytest.approx(float(variance) ** 0.5, rel=1e-7)
    np.testing.assert_array_equal(sums.n_missing, np.isnan(values).sum(axis=0))
    np.testing.assert_array_equal(sums.count, 200 - sums.n_missing)
    np.testing.assert_array_equal(sums.smallest, np.nanmin(values, axis=0))
    np.testing.assert_array_equal(sums.largest, np.nanmax(values, axis=0))


def test_float32_rows_are_added_in_float64():
    values = np.full((100_000, 1), 0.1, np.float32)
    assert ColumnSums.of(values).mean[0] == pytest.approx(float(np.float32(0.1)), rel=1e-14)


def test_columns_without_spread_or_values():
    sums = merged([ColumnSums.of(np.array([[3.0, np.nan, 1.0]])), ColumnSums.of(np.array([[3.0, np.nan, 2.0]]))], 3)
    assert sums.is_constant().tolist() == [True, True, False]
    assert sums.std().tolist() == [1.0, 1.0, 0.5]
    assert sums.mean.tolist() == [3.0, 0.0, 1.5]


def test_json_keeps_every_digit():
    sums = ColumnSums.of(np.random.default_rng(0).normal(size=(9, 4)))
    reread = ColumnSums.from_lists(sums.to_lists())
    for name, values in vars(sums).items():
        np.testing.assert_array_equal(values, getattr(reread, name))
