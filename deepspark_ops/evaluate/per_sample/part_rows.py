"""Reads the rows of an evaluation that is not complete yet: files of consecutive parts, each as ``samples.parquet``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.file_access.regular_file import regular_path
from deepspark_ops.evaluate.per_sample.row_reader import main_prefix


def row_files(folder: Path) -> list[Path]:
    """Return the files of a folder of ``rows_folder``, in the order of the samples."""
    return sorted(folder.glob("[0-9]*.parquet"))


def numbers_of_rows(folder: Path | None, column: str, *, most: int = 1) -> npt.NDArray[np.float64] | None:
    """Return a column of the main result: (n_samples, k), k at most ``most``, NaN for null; None without the column.

    Args:
        folder: Of ``rows_folder``; None: there are no rows.
        column: Name without the prefix of the result; its values are numbers, or lists of one length.
        most: Numbers of a list that are read.
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
