"""Some rows of ``samples.parquet``, for a page with single samples."""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from caffe_import.files.regular_file import regular_path
from deepspark_ops.evaluate.per_sample.each_batch import ROWS_NAME

_WEIGHTS: Final = b"deepspark.weights"


def read_rows(folder: Path, indices: Collection[int], weights_digest: str) -> dict[int, dict[str, Any]]:
    """Return position -> row, for each of ``indices`` in the evaluation's file.

    Nothing without pyarrow, without a readable file, or with a file of other weights: the rows are an addition.

    Args:
        folder: Of the evaluation.
        indices: Positions of samples.
        weights_digest: Of the net that was scored.
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
