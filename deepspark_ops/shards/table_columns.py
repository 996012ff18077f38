"""The columns of a dataset from a table, and the steps from features to the input of a net.

Manifests hold the columns, so that readers and servers do the steps of ingestion: fill missing values, then subtract
each column's mean and divide by the column's standard deviation.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from deepspark_ops.frozen_model import FrozenModel

MissingRule = Literal["mean", "zero", "refuse", "drop-row"]
LabelKind = Literal["class", "value"]
_BLOCK_VALUES = 2**18
"""Count of values that are standardised at a time: as float64 the values fit a core's cache."""


class FeatureColumn(FrozenModel):
    """A column of the table: a number in each row, or an array of ``width`` numbers."""

    name: str
    width: Annotated[int, Field(ge=1)] = 1


class TableColumns(FrozenModel):
    """The columns of a table in a dataset.

    Attributes:
        features: Columns in the order of a row's values in ``data``; the sum of the widths is D.
        labels: L columns; a single column gives ``label`` (N,), more columns give (N, L).
        label_kind: ``class``: a whole number from 0 per row; ``value``: numbers to be predicted.
        weight: Column of ``weight`` (N,); None without.
        group: Column of ``group``; None without.
        id: Column of ``id``; None without.
        missing: Rule for missing features: fill with the column's mean or zero, refuse, or leave out the row.
        is_standardized: Whether the stored features are standardised.
        mean: (D,) of the training split, without missing values.
        std: (D,) standard deviation of the training split (divisor n), 1 for a column of equal values.
    """

    features: tuple[FeatureColumn, ...] = Field(min_length=1)
    labels: tuple[str, ...] = Field(min_length=1)
    label_kind: LabelKind
    weight: str | None = None
    group: str | None = None
    id: str | None = None
    missing: MissingRule
    is_standardized: bool
    mean: tuple[float, ...]
    std: tuple[Annotated[float, Field(gt=0)], ...]

    @model_validator(mode="after")
    def _agree(self) -> TableColumns:
        for name in ("mean", "std"):
            if len(getattr(self, name)) != self.n_features:
                msg = f"{name} has {len(getattr(self, name)):,} numbers, the features {self.n_features:,}"
                raise ValueError(msg)
        return self

    @property
    def n_features(self) -> int:
        """D, the count of numbers in a row's ``data``."""
        return sum(column.width for column in self.features)

    def feature_names(self) -> list[str]:
        """Return a name for each of the D numbers: the column's name, with the index in an array."""
        return [
            column.name if column.width == 1 else f"{column.name}[{index}]"
            for column in self.features
            for index in range(column.width)
        ]

    def fill_values(self) -> npt.NDArray[np.float64] | None:
        """Return (D,) replacements of missing numbers; None if missing numbers are refused."""
        if self.missing == "mean":
            return np.array(self.mean, np.float64)
        return np.zeros(self.n_features) if self.missing == "zero" else None

    def apply(self, values: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
        """Return features for the net. NaN is a missing number, and stays NaN if missing numbers are refused.

        Args:
            values: (n, D), in the units of the table.

        Returns:
            (n, D), a fresh array.
        """
        out = np.empty(values.shape, np.float32)
        fill, mean, std = self.fill_values(), np.array(self.mean), np.array(self.std)
        rows = max(1, _BLOCK_VALUES // max(1, self.n_features))
        for start in range(0, len(values), rows):
            block = values[start : start + rows].astype(np.float64)
            if fill is not None and (is_missing := np.isnan(block)).any():
                np.copyto(block, fill, where=is_missing)
            if self.is_standardized:
                block -= mean
                block /= std
            out[start : start + rows] = block
        return out

    def restore(self, values: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
        """Return the table's values of stored features, except missing values: the inverse of ``apply``.

        Args:
            values: (n, D), as stored.

        Returns:
            (n, D), a fresh array.
        """
        wide = values.astype(np.float64)
        restored = wide * np.array(self.std) + np.array(self.mean) if self.is_standardized else wide
        return restored.astype(np.float32)

    def float32_parts(self) -> tuple[npt.NDArray[np.float32] | None, ...]:
        """Return fill values, mean, rest of the mean beyond float32, and deviation, (1, D) each; for graphs.

        ``(x - mean - rest) / std`` in float32 is ``apply`` to float32's accuracy: near the mean the first difference is
        exact.
        """
        fill, wide = self.fill_values(), np.array([self.mean])
        mean = wide.astype(np.float32)
        return (
            None if fill is None else fill.astype(np.float32)[np.newaxis],
            mean,
            (wide - mean).astype(np.float32),
            np.array([self.std], np.float32),
        )
