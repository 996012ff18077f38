"""Further use of each scored batch, besides the figures: rows of ``samples.parquet``, and slices."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from deepspark_ops.evaluate.per_sample.properties import property_values
from deepspark_ops.evaluate.per_sample.row_reader import ROWS_NAME, row_files
from deepspark_ops.evaluate.per_sample.slices import SliceSums
from deepspark_ops.evaluate.samples import Samples
from deepspark_ops.evaluate.scores import ScoredBatch
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.stores.store_path import DataPath

_log = logging.getLogger(__name__)


EachBatch = Callable[[ScoredBatch], None]


@contextmanager
def each_batch(
    slice_columns: Sequence[str],
    samples: Samples,
    tasks: Sequence[ChosenTask],
    rows_path: DataPath | None,
    *,
    has_scores: bool,
) -> Iterator[tuple[EachBatch, tuple[SliceSums, ...]]]:
    """Return a function to take each batch, and the slices of each result; the block's end completes the rows' file.

    Without ``rows_path`` there are no rows. With ``has_scores`` rows of a classification have all classes' scores.
    """
    slices = tuple(SliceSums(slice_columns, chosen) for chosen in tasks)

    def add_to_slices(scored: ScoredBatch) -> None:
        if not slice_columns:
            return
        targets = [result.targets for result in scored.results]
        values = {
            column: property_values(column, samples, scored.start, len(scored.content), tasks, targets)
            for column in slice_columns
        }
        for sums, result in zip(slices, scored.results, strict=True):
            sums.add(values, result.answers, result.targets, start=scored.start)

    if rows_path is None:
        yield add_to_slices, slices
        return
    from deepspark_ops.evaluate.per_sample.rows import SampleRows, rows_schema  # pyarrow
    from deepspark_ops.shards.files.parquet_output import parquet_output

    schema = rows_schema(tasks, has_scores=has_scores)
    with parquet_output(rows_path, schema) as output:
        rows = SampleRows(output, tasks, schema)

        def add(scored: ScoredBatch) -> None:
            add_to_slices(scored)
            rows.add(scored, samples.names(scored.start, len(scored.content)))

        yield add, slices


@contextmanager
def rows_folder(output: Path) -> Iterator[Path | None]:
    """Return a folder for the files of rows, removed after the block; None without pyarrow.

    The folder is in the nearest existing folder above ``output``, so a host with access to ``output`` can reach the
    rows.
    """
    if find_spec("pyarrow") is None:
        yield None
        return
    above = next(folder for folder in output.absolute().parents if folder.is_dir())
    with tempfile.TemporaryDirectory(prefix=".samples-", dir=above) as folder:
        yield Path(folder)


def rows_file(folder: DataPath, start: int) -> DataPath:
    """Return the file of the rows from position ``start`` on; files sort as the samples do."""
    return folder / f"{start:015d}.parquet"


def write_rows(output: Path, folder: Path | None, weights_digest: str) -> None:
    """Write ``samples.parquet`` from the files of rows; without pyarrow remove an older file with other scores."""
    path = output / ROWS_NAME
    if folder is None:
        path.unlink(missing_ok=True)
        _log.info("%s is not written: that needs pyarrow (pip install 'deepspark[tables]')", ROWS_NAME)
        return
    from deepspark_ops.evaluate.per_sample.rows import join_rows  # pyarrow

    join_rows(path, row_files(folder), weights_digest)
