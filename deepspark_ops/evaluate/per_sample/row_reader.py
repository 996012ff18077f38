"""Reads ``samples.parquet``: rows of single samples, and the rows behind a cell, a class or a range of values."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from caffe_import.file_access.regular_file import regular_path
from deepspark_ops.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_NAME: Final = "samples.parquet"
RowOrder = Literal[
    "-loss",
    "loss",
    "-probability",
    "probability",
    "-residual",
    "residual",
    "-distance",
    "distance",
    "index",
    "-loss_difference",
    "loss_difference",
]
"""Column to sort by; a minus sorts from the largest value. ``loss_difference`` needs a second evaluation."""
Outcome = Literal["this", "other", "both", "neither"]
"""Of two evaluations: this net alone is right, the other net alone, both nets, neither net. Without classes ``this``
and ``other`` are the net with the smaller loss."""

_OF_SAMPLE: Final = frozenset({"index", "name", "content", "label", "true", "is_same"})
"""Columns with equal values in two evaluations of the same samples."""
_NUMBERS: Final = ("true", "predicted")
"""Columns of a regression, a list of the outputs' numbers in each row."""
_WEIGHTS: Final = b"deepspark.weights"


def read_rows(folder: Path, indices: Collection[int], weights_digest: str) -> dict[int, dict[str, Any]]:
    """Return position -> row, for each of ``indices`` in the evaluation's file.

    Nothing without pyarrow, without a readable file, or with a file of other weights: the rows are an addition.
    """
    path = folder / ROWS_NAME
    if not indices or find_spec("pyarrow") is None or not path.is_file():
        return {}
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    rows_by_index: dict[int, dict[str, Any]] = {}
    wanted_indices = pa.array(sorted(indices), pa.int64())
    try:
        with pq.ParquetFile(regular_path(path)) as file:
            if (file.schema_arrow.metadata or {}).get(_WEIGHTS) != weights_digest.encode():
                return {}
            start = 0  # the rows are in the order of the samples, each has one
            for group in range(file.num_row_groups):
                stop = start + file.metadata.row_group(group).num_rows
                if any(start <= index < stop for index in indices):
                    rows = file.read_row_group(group)
                    chosen = rows.filter(pc.is_in(rows["index"], wanted_indices))
                    rows_by_index |= {row["index"]: row for row in chosen.to_pylist()}
                start = stop
    except (OSError, pa.ArrowException, KeyError):
        return {}
    return rows_by_index


def row_files(folder: Path) -> list[Path]:
    """Return the files of a folder of ``rows_folder``, in the order of the samples."""
    return sorted(folder.glob("[0-9]*.parquet"))


def numbers_of_rows(folder: Path | None, column: str, *, most: int = 1) -> npt.NDArray[np.float64] | None:
    """Return a column of the main result: (n_samples, k), k at most ``most``, NaN for null; None without the column.

    The name ``column`` has no prefix; the values are numbers, or lists of one length.
    """
    parts = [part for path in ([] if folder is None else row_files(folder)) for part in _numbers(path, column, most)]
    return np.concatenate(parts) if parts else None


def _numbers(path: Path, column: str, most: int) -> list[npt.NDArray[np.float64]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(regular_path(path)) as file:
        name = f"{main_prefix(file.schema_arrow)}{column}"
        if name not in file.schema_arrow.names:
            return []
        groups = [file.read_row_group(at, [name])[name].combine_chunks() for at in range(file.num_row_groups)]
    return [_table(values)[:, :most] for values in groups if len(values)]


def _table(values: Any) -> npt.NDArray[np.float64]:
    import pyarrow as pa

    flat = values.flatten() if pa.types.is_list(values.type) else values
    numbers = np.asarray(flat.to_numpy(zero_copy_only=False), np.float64)
    return numbers.reshape(len(values), -1)


@dataclass(frozen=True)
class RowQuery:
    """Conditions on rows; all of them hold for a selected row. None is no condition.

    Attributes:
        label: True class of a classification.
        predicted: Predicted class of a classification.
        is_wrong: Whether the predicted class differs from the true class.
        min_probability, max_probability: Range of the predicted class's probability, the upper end excluded unless 1.
        min_loss, max_loss: Range of the sample's loss, both ends included.
        output: Position of the output of a regression whose numbers the columns ``true``, ``predicted`` and
            ``residual`` have.
        min_residual, max_residual: Range of the output's residual, predicted minus true, the upper end excluded.
        is_same: Whether the two samples of a pair belong together.
        min_distance, max_distance: Range of a pair's distance, the upper end excluded.
        other_predicted: Class that the net of the second evaluation predicts.
        outcome: The net, of the two evaluations, that is right.
        order: Column to sort by; equal values in the order of the samples.
    """

    label: int | None = None
    predicted: int | None = None
    is_wrong: bool | None = None
    min_probability: float | None = None
    max_probability: float | None = None
    min_loss: float | None = None
    max_loss: float | None = None
    output: int = 0
    min_residual: float | None = None
    max_residual: float | None = None
    is_same: bool | None = None
    min_distance: float | None = None
    max_distance: float | None = None
    other_predicted: int | None = None
    outcome: Outcome | None = None
    order: RowOrder = "-loss"


class SelectedRows:
    """Rows of an evaluation that a query selects, sorted. The file stays closed; read only, thread-safe.

    Attributes:
        n_rows: Number of selected rows.
        columns: Names of the columns, without columns of lists. A regression has the numbers of the query's output, as
            ``true``, ``predicted`` and ``residual``. With a second evaluation the columns of its net follow as
            ``other_loss``, ``other_predicted`` and so on, and ``loss_difference``: ``other_loss`` minus ``loss``.
    """

    def __init__(
        self, folder: Path, query: RowQuery, weights_digest: str, other: tuple[Path, str] | None = None
    ) -> None:
        """Select the rows of an evaluation, ``other``: folder and weights' digest of a second one of the same samples.

        A condition on a column that the task lacks selects no row.

        Raises:
            DataError: A file is missing, damaged or of other weights or samples, or pyarrow is not installed.
        """
        import pyarrow.compute as pc

        table = _read_table(folder, weights_digest, query.output)
        if other is not None:
            table = _side_by_side(table, _read_table(*other, query.output), folder, other[0])
        chosen = _selected(table, query)
        column = query.order.removeprefix("-")
        keys = [(column, "descending" if query.order.startswith("-") else "ascending")]
        sort_keys = [*(keys if column in chosen.column_names else []), ("index", "ascending")]
        self._rows = chosen.take(pc.sort_indices(chosen, sort_keys=sort_keys))
        self.n_rows: int = self._rows.num_rows
        self.columns: list[str] = self._rows.column_names

    def rows(self, start: int, count: int) -> list[dict[str, Any]]:
        """Return selected rows [start, start + count) as dictionaries."""
        rows: list[dict[str, Any]] = self._rows.slice(start, count).to_pylist()
        return rows

    def csv(self) -> bytes:
        """Return all selected rows as CSV with a head."""
        import pyarrow as pa
        from pyarrow import csv

        sink = pa.BufferOutputStream()
        csv.write_csv(self._rows, sink)
        return bytes(sink.getvalue())


def _read_table(folder: Path, weights_digest: str, output: int) -> pa.Table:
    path = folder / ROWS_NAME
    if find_spec("pyarrow") is None:
        msg = f'{path} cannot be read without pyarrow; install the extra "tables" beside Airflow'
        raise DataError(msg)
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(regular_path(path)) as file:
            if (file.schema_arrow.metadata or {}).get(_WEIGHTS) != weights_digest.encode():
                msg = f'{path} is of another evaluation than metrics.json; run "deepspark evaluate" again'
                raise DataError(msg)
            lists = {field.name for field in file.schema_arrow if pa.types.is_list(field.type)}
            columns = [name for name in file.schema_arrow.names if name not in lists]
            table, prefix = file.read(columns), main_prefix(file.schema_arrow)
            pair = [f"{prefix}{name}" for name in _NUMBERS]
            numbers = file.read(pair).rename_columns(_NUMBERS) if lists.issuperset(pair) else None
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        msg = f'{path} has no rows of samples: {error}; run "deepspark evaluate" again'
        raise DataError(msg) from None
    table = table.rename_columns([name.removeprefix(prefix) for name in columns])
    return table if numbers is None else _with_residual(table, numbers, output)


def _with_residual(table: pa.Table, numbers: pa.Table, output: int) -> pa.Table:
    """Return the table with the numbers of an output of a regression; without an output of this position, the table."""
    import pyarrow as pa
    import pyarrow.compute as pc

    n_outputs = pc.min(pc.list_value_length(numbers["true"])).as_py()
    if n_outputs is None or output >= n_outputs:
        return table
    true, predicted = (pc.list_element(numbers[name], output) for name in _NUMBERS)
    residual = pc.subtract(predicted.cast(pa.float64()), true.cast(pa.float64()))
    for name, values in (("true", true), ("predicted", predicted), ("residual", residual)):
        table = table.append_column(name, values)
    return table


def main_prefix(schema: pa.Schema) -> str:
    """Return the prefix of the main result's columns, empty for a net with a single result."""
    results = json.loads((schema.metadata or {})[b"deepspark.results"])
    return str(results[0]["prefix"])


def _side_by_side(first: pa.Table, second: pa.Table, folder: Path, other_folder: Path) -> pa.Table:
    """Return the first table with the columns of the second net. Each sample has a row, in the order of reading."""
    import pyarrow.compute as pc

    if not all(first[column].equals(second[column]) for column in ("index", "content")):
        msg = f'{folder} and {other_folder} have different samples; run "deepspark evaluate" again on one dataset'
        raise DataError(msg)
    for column in second.column_names:
        if column not in _OF_SAMPLE:
            first = first.append_column(f"other_{column}", second[column])
    return first.append_column("loss_difference", pc.subtract(second["loss"], first["loss"]))


def _selected(table: pa.Table, query: RowQuery) -> pa.Table:
    """Return the rows that fulfil all conditions; a null fulfils no condition."""
    import pyarrow.compute as pc

    upper = pc.less_equal if query.max_probability == 1 else pc.less
    columns = set(table.column_names)
    if "label" not in columns:  # the numbers of a regression are no classes
        columns -= {"predicted", "other_predicted"}
    for column, compare, limit in (
        ("label", pc.equal, query.label),
        ("predicted", pc.equal, query.predicted),
        ("probability", pc.greater_equal, query.min_probability),
        ("probability", upper, query.max_probability),
        ("loss", pc.greater_equal, query.min_loss),
        ("loss", pc.less_equal, query.max_loss),
        ("residual", pc.greater_equal, query.min_residual),
        ("residual", pc.less, query.max_residual),
        ("is_same", pc.equal, query.is_same),
        ("distance", pc.greater_equal, query.min_distance),
        ("distance", pc.less, query.max_distance),
        ("other_predicted", pc.equal, query.other_predicted),
    ):
        if limit is not None:
            table = table.filter(compare(table[column], limit)) if column in columns else table.slice(0, 0)
    if query.is_wrong is not None and {"label", "predicted"} <= columns:
        compare = pc.not_equal if query.is_wrong else pc.equal
        table = table.filter(compare(table["label"], table["predicted"]))
    return table if query.outcome is None else _with_outcome(table, query.outcome)


def _with_outcome(table: pa.Table, outcome: Outcome) -> pa.Table:
    import pyarrow.compute as pc

    columns = set(table.column_names)
    if {"label", "predicted", "other_predicted"} <= columns:
        first, second = (pc.equal(table["label"], table[column]) for column in ("predicted", "other_predicted"))
        fulfils = pc.and_(
            first if outcome in ("this", "both") else pc.invert(first),
            second if outcome in ("other", "both") else pc.invert(second),
        )
        return table.filter(fulfils)
    if outcome not in ("this", "other") or "loss_difference" not in columns:
        return table.slice(0, 0)
    compare = pc.greater if outcome == "this" else pc.less
    return table.filter(compare(table["loss_difference"], 0.0))
