"""Rows of a table that pyarrow reads from its beginning on: ORC, and JSON with a record on each line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import pyarrow as pa
import pyarrow.dataset as pa_dataset

from deepspark_ops.config.commands.predict import BundleInputConfig
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.files.table_files import data_files
from deepspark_ops.predict.inputs.table import Numbered, choose_columns, table_records
from deepspark_ops.predict.record import InputRecord, Inputs
from deepspark_ops.predict.samples import BundleForm
from deepspark_ops.stores.staging import kept_copy

ScannedFormat = Literal["orc", "json_lines"]
_WORDS: Final = {"orc": "ORC", "json_lines": "JSON lines"}
_ROWS_READ: Final = 4096
_READ_AHEAD: Final = 1


def scanned_rows(config: BundleInputConfig, form: BundleForm, name: ScannedFormat) -> Inputs:
    """Return the rows of a file, or of those in a folder by name.

    Args:
        config: Names the table and perhaps its columns.
        form: What the bundle takes.
        name: The format.

    Raises:
        ConfigError: Columns that are not there or do not fit the bundle.
        DataError: A file is damaged.
    """
    path, word = config.input, _WORDS[name]
    try:
        files = [str(kept_copy(file)) for file in data_files(path)]
        table = pa_dataset.dataset(files, format="orc" if name == "orc" else "json")
        n_rows = table.count_rows() if name == "orc" else None
    except (pa.ArrowException, OSError, ValueError) as error:
        msg = f"input={path}: not readable as {word}: {str(error).splitlines()[0]}"
        raise DataError(msg) from error
    columns = choose_columns(table.schema, config, form)

    def batches() -> Iterator[Numbered]:
        at = 0
        scanned = table.to_batches(columns=columns.names, batch_size=_ROWS_READ, batch_readahead=_READ_AHEAD)
        for batch in scanned:
            yield at, batch
            at += batch.num_rows

    def read(start: int = 0, stop: int | None = None) -> Iterator[InputRecord]:
        return table_records(batches(), columns, config, start, stop)

    return Inputs(f"{word} table", lambda: n_rows, read, columns.remarks)
