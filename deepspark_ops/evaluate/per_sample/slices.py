"""Figures of the samples with each value of a property: by class, folder, group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.evaluate.tasks.metrics_head import SliceReport
from deepspark_ops.evaluate.tasks.registry import slice_sum_of
from deepspark_ops.evaluate.tasks.task_sum import ReportHead, TaskSum

MAX_VALUES: Final = 1_000
"""Values of a property that are told apart; a property with more names samples, not groups of them."""

Array = npt.NDArray[Any]


class SliceSums:
    """Sums a result of a net, for each value of each property apart. Not thread-safe."""

    def __init__(self, columns: Sequence[str], chosen: ChosenTask) -> None:
        """Start at nothing; ``columns``: the properties, in the order of the report."""
        self._columns = tuple(columns)
        self._chosen = chosen
        self._sums: dict[str, dict[str, TaskSum]] = {column: {} for column in columns}

    def add(self, values: Mapping[str, Sequence[str]], answers: Sequence[Array], targets: Array, *, start: int) -> None:
        """Count a batch: property -> value of each sample, answers of each output (n, ...), targets (n, ...).

        The sum over all samples has checked the batch.

        Raises:
            ConfigError: A property has too many values.
        """
        for column, texts in values.items():
            distinct_values, at = np.unique(np.asarray(texts, np.str_), return_inverse=True)
            for number, value in enumerate(distinct_values.tolist()):
                rows = np.flatnonzero(at == number)
                self._sum(column, value).add([answer[rows] for answer in answers], targets[rows], start=start)

    def merge(self, other: SliceSums) -> None:
        """Add the counts of another object with the same properties."""
        for column, sums in other._sums.items():
            for value, total in sums.items():
                self._sum(column, value).merge(total)

    def result(self, head: ReportHead) -> tuple[SliceReport, ...]:
        """Return the slices, by property and value; a slice with ignored samples alone is left out."""
        reports = []
        for column in self._columns:
            for value, total in sorted(self._sums[column].items()):
                with suppress(DataError):  # no sample counts
                    metrics = total.metrics(head)
                    reports.append(
                        SliceReport(
                            column=column,
                            value=value,
                            n_samples=metrics.n_samples,
                            main=metrics.main,
                            rows=metrics.rows(),
                        )
                    )
        return tuple(reports)

    def _sum(self, column: str, value: str) -> TaskSum:
        sums = self._sums[column]
        if value not in sums:
            if len(sums) == MAX_VALUES:
                msg = f"slices={column}: more than {MAX_VALUES:,} values, the last {value!r}; give what groups samples"
                raise ConfigError(msg)
            sums[value] = slice_sum_of(self._chosen)
        return sums[value]
