"""Tables of ``deepspark model``."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from caffe_import.surgery.blob_statistics import BlobDifference, BlobStatistics
from deepspark_ops.sizes import share_text


def statistics_table(blobs: Sequence[BlobStatistics]) -> Table:
    """Return a row per blob of a weights file."""
    table = _table("layer", "type", "blob", "shape", "mean", "deviation", "smallest", "largest", "zeros", "not finite")
    for blob in blobs:
        numbers = [f"{value:.4g}" for value in (blob.mean, blob.std, blob.smallest, blob.largest)]
        table.add_row(
            blob.layer,
            blob.layer_type,
            str(blob.index),
            shape_text(blob.shape),
            *numbers,
            share_text(blob.zeros),
            f"{blob.n_not_finite:,}" if blob.n_not_finite else "",
        )
    return table


def difference_table(different_blobs: Sequence[BlobDifference]) -> Table:
    """Return a row per blob in which two weights files differ."""
    table = _table("layer", "blob", "shape", "values that differ", "largest difference", "relative")
    for blob in different_blobs:
        first, second = blob.shapes
        if blob.largest is None or blob.relative is None or blob.n_different is None:
            table.add_row(blob.layer, str(blob.index), f"{shape_text(first)} | {shape_text(second)}", "", "", "")
            continue
        row = (shape_text(first), f"{blob.n_different:,}", f"{blob.largest:.4g}", f"{blob.relative:.4g}")
        table.add_row(blob.layer, str(blob.index), *row)
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def shape_text(shape: Sequence[int] | None) -> str:
    """Return a blob's shape, or that a file lacks the blob."""
    if shape is None:
        return "not there"
    return " x ".join(map(str, shape)) or "one value"
