"""The list of runs as a file: CSV, or Parquet with pyarrow."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from caffe_import.extras import require
from deepspark_ops.trials.table import safe_cell

COLUMNS: Final = (
    "name", "run", "dag", "work", "state", "outcome", "tags", "net", "solver", "dataset", "dataset_digest", "strategy",
    "n_workers", "tau", "clock", "max_iter", "accuracy", "accuracy_of", "figure", "figure_name", "n_samples",
    "loss", "images_per_s", "seconds", "when", "who", "note", "error", "archived",
)  # fmt: skip


def table_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with one plain value a column; times are UTC, ISO 8601."""
    return [{name: _value(row, name) for name in COLUMNS} for row in rows]


def csv_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as CSV below a line of names; missing values are empty, and no text is a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in table_rows(rows):
        writer.writerow(["" if value is None else safe_cell(value) for value in row.values()])
    return text.getvalue()


def parquet_bytes(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return rows as a Parquet file.

    Raises:
        ModuleNotFoundError: pyarrow is not installed.
    """
    require("pyarrow", part="a list of runs as Parquet")
    import pyarrow
    from pyarrow import parquet

    buffer = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(table_rows(rows)), buffer)
    return buffer.getvalue()


def _value(row: Mapping[str, Any], name: str) -> Any:
    if name == "figure":
        return row["figure"]["value"] if row["figure"] else None
    if name == "figure_name":
        return row["figure"]["label"] if row["figure"] else None
    if name == "when":
        return None if row["when"] is None else datetime.fromtimestamp(row["when"], UTC).isoformat(timespec="seconds")
    if name == "tags":
        return ", ".join(row["tags"])
    return row[name]
