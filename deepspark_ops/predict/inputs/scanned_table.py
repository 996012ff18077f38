"""Rows of a table read from its beginning on, as ingestion reads them: ORC, Avro, JSON with a record on each line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import pyarrow as pa

from deepspark_ops.config.commands.predict import BundleInputConfig
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.files.table_files import data_files
from deepspark_ops.ingest.tables.file_batches import file_rows
from deepspark_ops.predict.inputs.table import Numbered, choose_columns, table_records
from deepspark_ops.predict.record import InputRecord, Inputs
from deepspark_ops.predict.samples import BundleForm
from deepspark_ops.stores.staging import kept_copy

ScannedFormat = Literal["orc", "avro", "json_lines"]
_WORDS: Final = {"orc": "ORC", "avro": "Avro", "json_lines": "JSON lines"}
_ROWS_READ: Final = 4096


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
        table = file_rows([kept_copy(file) for file in data_files(path)], name)
        n_rows = table.count()
    except (pa.ArrowException, OSError, ValueError) as error:
        msg = f"input={path}: not readable as {word}: {str(error).splitlines()[0]}"
        raise DataError(msg) from error
    columns = choose_columns(table.schema, config, form)

    def batches() -> Iterator[Numbered]:
        at = 0
        for batch in table.batches(columns.names, _ROWS_READ):
            yield at, batch
            at += batch.num_rows

    def read(start: int = 0, stop: int | None = None) -> Iterator[InputRecord]:
        return table_records(batches(), columns, config, start, stop)

    return Inputs(f"{word} table", lambda: n_rows, read, columns.remarks)
