"""Columns in a table's dataset, and features as a net reads them, against numpy."""

import numpy as np
import pytest
from pydantic import ValidationError

from deepspark_ops.shards.table_columns import FeatureColumn, TableColumns


def columns(**changes) -> TableColumns:
    fields = {
        "features": (FeatureColumn(name="a"), FeatureColumn(name="v", width=2)),
        "labels": ("y",),
        "label_kind": "class",
        "missing": "mean",
        "is_standardized": True,
        "mean": (10.0, -1.0, 0.5),
        "std": (2.0, 4.0, 1.0),
    }
    return TableColumns(**{**fields, **changes})


VALUES = np.array([[12.0, 3.0, np.nan], [np.nan, -1.0, 2.5]])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [[1.0, 1.0, 0.0], [0.0, 0.0, 2.0]]),
        ({"missing": "zero"}, [[1.0, 1.0, -0.5], [-5.0, 0.0, 2.0]]),
        ({"is_standardized": False}, [[12.0, 3.0, 0.5], [10.0, -1.0, 2.5]]),
        ({"missing": "refuse"}, [[1.0, 1.0, np.nan], [np.nan, 0.0, 2.0]]),
    ],
)
def test_missing_values_are_filled_and_the_rest_standardised(changes, expected):
    applied = columns(**changes).apply(VALUES.astype(np.float32))
    assert applied.dtype == np.float32
    np.testing.assert_array_equal(applied, np.float32(expected))


def test_many_rows_are_what_numpy_gives_in_one_piece():
    rng = np.random.default_rng(0)
    values = rng.normal((1e6, 0.0, -3.0), (2.0, 1e-3, 5.0), (200_000, 3))
    mean, std = values.mean(axis=0), values.std(axis=0)
    applied = columns(mean=tuple(mean), std=tuple(std)).apply(values)
    np.testing.assert_allclose(applied, (values - mean) / std, rtol=1e-6, atol=1e-7)


def test_names_and_numbers_must_agree():
    assert columns().feature_names() == ["a", "v[0]", "v[1]"]
    with pytest.raises(ValidationError, match="mean has 2 numbers, the features 3"):
        columns(mean=(1.0, 2.0))
    with pytest.raises(ValidationError, match="greater than 0"):
        columns(std=(1.0, 0.0, 1.0))
