"""Tables as Spark reads them: each task takes a part of the rows in Arrow's batches, none goes through Python alone."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark import SparkContext, TaskContext
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from caffe_import.file_access.regular_file import open_regular
from deepspark_ops.config.ingest import TABLE_MARK, IngestConfig, is_catalog_table
from deepspark_ops.config.shared_options.source_formats import SourceFormat
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.files.file_batches import avro_batches, avro_schema, check_files, flat, separator
from deepspark_ops.ingest.files.json_rows import json_fields, json_numbers, json_record
from deepspark_ops.ingest.files.table_files import data_files, no_rows
from deepspark_ops.ingest.files.untyped_rows import CORRUPT, NumberCounts, count_numbers, mark_numbers
from deepspark_ops.ingest.recipe import own_sources
from deepspark_ops.ingest.sources.registry import resolve_format
from deepspark_ops.ingest.tables.columns import Column, TableRoles, columns_of
from deepspark_ops.ingest.tables.file_parts import FilePart, FileTable, avro_table, parquet_table
from deepspark_ops.ingest.tables.query import VIEW, check_query, parse_query
from deepspark_ops.ingest.tables.row_files import Spread
from deepspark_ops.ingest.tables.small_files import small_table
from deepspark_ops.ingest.tables.table_source import FirstRows, ReadPart, Table, lengths_in
from deepspark_ops.processes.spark_context import SparkOnDemand, arrow_schema
from deepspark_ops.processes.spark_failure import job_error
from deepspark_ops.shards.manifest import SplitName
from deepspark_ops.stores.store_path import DataPath, StorePath, data_path

_log = logging.getLogger(__name__)
_MOST_BATCH_BYTES = 2**25
"""Of images and texts, whose sizes nobody knows beforehand."""
_FEW_ROWS = 1000
_NUMBER_LENGTH = 64
"""Characters of a text that are looked at; a number has fewer."""
_TOO_LITTLE_FOR_SPARK = 2**25
"""So many bytes this process reads and writes sooner than Spark has started."""
_REPORT_S = 10.0
_UNREADABLE = re.compile(r"\[(FAILED_READ_FILE|CANNOT_READ_FILE_FOOTER)[^\]]*\][^\n]*")
"""The conditions by which Spark reports a file that it cannot read."""


@dataclass(frozen=True)
class SparkTable:
    """A table that Spark, or the tasks themselves, can read, see ``Table``.

    Attributes:
        spark: Started for all that this process does not read sooner.
        source: As the user named it.
        columns: All that there are.
        frame: Spark's; None where tasks read the files by themselves.
        files: Which they then are; else None.
    """

    spark: SparkOnDemand
    source: DataPath
    columns: tuple[Column, ...]
    frame: DataFrame | None
    files: FileTable | None = None

    def lengths(self, names: Sequence[str]) -> Sequence[int]:
        """See ``Table``."""
        if (files := self.files) is not None:
            return lengths_in((batch for part in files.parts for batch in files.batches(part, names, _FEW_ROWS)), names)
        assert self.frame is not None
        with _spark_errors(self.frame.sparkSession.sparkContext, self.source):
            frame = self.frame.where(" AND ".join(f"size(`{name}`) > 0" for name in names))
            row = frame.select(*(F.size(_column(name)).alias(f"n{i}") for i, name in enumerate(names))).first()
            return () if row is None else tuple(row)

    def over_parts(
        self, roles: TableRoles, read: ReadPart, batch_rows: int, dtype: str, only: Collection[int] | None = None
    ) -> list[str]:
        """See ``Table``."""
        action = f"ingest: reading {self.source}"
        if self.files is not None:
            files, names = self.files, [column.name for column in roles.used()]

            def of_file(numbered: tuple[int, FilePart]) -> str:
                number, part = numbered
                return read(map(flat, files.batches(part, names, batch_rows)), number)

            parts = [(i, part) for i, part in enumerate(files.parts) if only is None or part.file in only]
            is_little = sum(part.n_bytes for _, part in parts) <= _TOO_LITTLE_FOR_SPARK
            if not self.spark.is_started and (is_little or not self.spark.is_allowed):
                return [of_file(part) for part in parts]
            with logged_progress(self.spark.context(), action):
                return self.spark.map(of_file, parts, failed=f"{self.source} was not read")
        assert self.frame is not None
        session = self.frame.sparkSession
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(batch_rows))
        session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(_MOST_BATCH_BYTES))

        def of_part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            text = read(batches, TaskContext.get().partitionId())
            yield pa.RecordBatch.from_pydict({"summary": [text]})

        frame = self.frame.select(*_selected(self.frame, roles, dtype))
        with _spark_errors(session.sparkContext, self.source), logged_progress(session.sparkContext, action):
            return [row.summary for row in frame.mapInArrow(of_part, "summary string").collect()]


def open_table(spark: SparkOnDemand, config: IngestConfig, source: DataPath) -> Table:
    """Return the table that a source names, or the config's query makes of it. No row is read, but of text files.

    Raises:
        ConfigError: No such table, or a query that Spark refuses.
        DataError: A damaged file.
    """
    name = resolve_format(config, source)
    if config.query is None and (files := _own_files(source, name)) is not None:
        return SparkTable(spark, source, tuple(columns_of(files.schema)), None, files)
    if config.query is None and not spark.is_started and (rows := small_table(source, name)) is not None:
        return FirstRows(source, rows)
    check_files(source, name)
    session = SparkSession(spark.context())
    with _spark_errors(session.sparkContext, source):
        frame = None if str(source) == TABLE_MARK else _frame(session, source, name)
        records = _first_records(session, source) if name == "json_lines" and config.query is None else []
        if config.query is not None:
            if frame is not None:
                frame.createOrReplaceTempView(VIEW)
            check_query(parse_query(session, config.query), config.listed_files, _catalog_lookup(session))
            frame = session.sql(config.query)
        elif frame is not None and records:
            frame = _with_number_arrays(session, frame, source, records)
        assert frame is not None
        frame = _plain(frame)
        if not frame.columns:
            raise no_rows(source)  # JSON without a record
        schema = arrow_schema(frame.schema)
        if config.query is None:
            schema = mark_numbers(schema, _numbers_in_text(frame, schema, name, records))
        return SparkTable(spark, source, tuple(columns_of(schema)), frame)


def _numbers_in_text(
    frame: DataFrame, schema: pa.Schema, name: SourceFormat, records: Sequence[dict[str, Any]]
) -> NumberCounts:
    """Return the counts of the columns of text in a file without types; ``records``: the first of JSON lines."""
    texts = [column.name for column in columns_of(schema) if column.kind == "text"]
    if texts and name == "csv":
        shown = (F.substring(_column(text), 1, _NUMBER_LENGTH).alias(text) for text in texts)
        whole_lines = frame.where(_column(CORRUPT).isNull())
        return count_numbers(whole_lines.select(*shown).limit(_FEW_ROWS).toArrow())
    counts = json_numbers(records)
    return {text: counts[text] for text in texts if text in counts}


def _first_records(session: SparkSession, source: DataPath) -> list[dict[str, Any]]:
    """Return the records of the first lines of JSON lines."""
    return [json_record(line.value) for line in session.read.text(_address(source)).limit(_FEW_ROWS).toLocalIterator()]


def _with_number_arrays(
    session: SparkSession, frame: DataFrame, source: DataPath, records: Sequence[dict[str, Any]]
) -> DataFrame:
    """Return JSON lines with arrays of numbers where Spark takes a column for text because of a word in a row."""
    texts = (T.StringType(), T.ArrayType(T.StringType()))
    number_arrays = {field.name for field in json_fields(records) if field.type == pa.list_(pa.float64())}
    fields = [
        T.StructField(field.name, T.ArrayType(T.DoubleType()))
        if field.dataType in texts and field.name in number_arrays
        else field
        for field in frame.schema
    ]
    if fields == list(frame.schema):
        return frame
    schema = T.StructType(fields)
    if CORRUPT not in schema.names:
        schema.add(CORRUPT, T.StringType())
    return session.read.schema(schema).option("columnNameOfCorruptRecord", CORRUPT).json(_address(source))


def _catalog_lookup(session: SparkSession) -> Callable[[tuple[str, ...]], bool]:
    """Return a function that says whether the catalog has a table of a name in parts."""
    return lambda parts: bool(session.catalog.tableExists(".".join(map(_quoted, parts))))


def _own_files(source: DataPath, name: SourceFormat) -> FileTable | None:
    """Return the files that tasks read by themselves; None where Spark does."""
    if name == "avro":
        return avro_table(source)
    return parquet_table(source) if name == "parquet" and not isinstance(source, StorePath) else None


def _frame(session: SparkSession, source: DataPath, name: SourceFormat) -> DataFrame:
    if is_catalog_table(source):
        return session.table(str(source).removeprefix(TABLE_MARK))
    path = _address(source)
    if name == "avro":
        return _avro_frame(session, source)
    if name == "csv":
        first = next(data_files(source))
        # With pruning, Spark notes no line of another length if a column of the table is not used.
        session.conf.set("spark.sql.csv.parser.columnPruning.enabled", "false")
        reader = session.read.option("header", True).option("sep", separator(first))
        inferred = reader.option("inferSchema", True).csv(path)
        # Once more with the column of lines that do not fit: a line is refused by name, not read as nothing.
        return (
            reader.schema(inferred.schema.add(CORRUPT, T.StringType()))
            .option("columnNameOfCorruptRecord", CORRUPT)
            .csv(path)
        )
    if name == "json_lines":
        return session.read.option("columnNameOfCorruptRecord", CORRUPT).json(path)
    if name == "parquet":
        return _parquet_frame(session, source, path)
    return session.read.format(name).load(path)


def _parquet_frame(session: SparkSession, source: DataPath, path: str) -> DataFrame:
    """Return Parquet files as Spark reads them; nanoseconds, which pandas writes and Spark refuses, as microseconds."""
    with open_regular(next(data_files(source))) as handle:
        fields = list(pq.read_schema(handle))
    moments = [field for field in fields if pa.types.is_timestamp(field.type)]
    in_nanoseconds = {field.name: field.type.tz for field in moments if field.type.unit == "ns"}
    if not in_nanoseconds:
        return session.read.parquet(path)
    session.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    frame = session.read.parquet(path)
    return frame.withColumns({name: _moment(name, zone) for name, zone in in_nanoseconds.items()})


def _moment(name: str, zone: str | None) -> SparkColumn:
    """Return a column of nanoseconds since 1970 as timestamps; without a zone as such that no session's zone moves."""
    microseconds = F.expr(f"{_quoted(name)} div 1000")
    if zone is not None:
        return F.timestamp_micros(microseconds)
    seconds = (microseconds.cast("decimal(20,0)") / 1_000_000).cast("decimal(18,6)")
    return F.expr("TIMESTAMP_NTZ'1970-01-01 00:00:00'") + F.make_dt_interval(secs=seconds)


def _address(source: DataPath) -> str:
    """Return the address of a path for Spark, also of a local path under another default file system."""
    address = str(source) if isinstance(source, StorePath) else f"file://{source.absolute()}"
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", address)


def _avro_frame(session: SparkSession, source: DataPath) -> DataFrame:
    """Return Avro files for a query, read by our tasks: Spark's own reader of them is a jar that it does not bring."""
    files = [str(file) for file in data_files(source)]
    schema = avro_schema(data_path(files[0]))

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for file in batch.column(0).to_pylist():
                yield from avro_batches(data_path(file), schema)

    from pyspark.sql.pandas.types import from_arrow_schema

    names = session.createDataFrame([(file,) for file in files], "file string").repartition(len(files))
    return names.mapInArrow(read, from_arrow_schema(schema))


def _plain(frame: DataFrame) -> DataFrame:
    """Return the frame with vectors of Spark ML as arrays and structs of images as their bytes."""
    chosen: list[SparkColumn] = []
    for field in frame.schema.fields:
        column = _column(field.name)
        if isinstance(field.dataType, VectorUDT):
            column = vector_to_array(column, "float64").alias(field.name)
        elif isinstance(field.dataType, T.StructType) and "bytes" in field.dataType.names:
            column = column.getField("bytes").alias(field.name)
        chosen.append(column)
    return frame.select(*chosen)


def _column(name: str) -> SparkColumn:
    return F.col(_quoted(name))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def open_tables(spark: SparkOnDemand, config: IngestConfig) -> tuple[dict[SplitName, Table], Spread]:
    """Return the table of each split that has a source of its own, and how their rows are read once more."""
    spread = partial(spark.map, failed=f"{config.source} was not read")
    return {split: open_table(spark, config, source) for split, source in own_sources(config).items()}, spread


@contextmanager
def logged_progress(context: SparkContext, action: str) -> Iterator[None]:
    """Log how many tasks of the stage that runs have ended, every some seconds, as long as the block runs.

    ``action`` says in the log what the tasks do.
    """
    is_done = threading.Event()
    tracker = context.statusTracker()

    def report() -> None:
        while not is_done.wait(_REPORT_S):
            with suppress(Py4JError, AttributeError):  # Spark stops, or the stage has ended meanwhile
                for number in tracker.getActiveStageIds():
                    stage = tracker.getStageInfo(number)
                    _log.info("%s: %s of %s tasks done", action, stage.numCompletedTasks, stage.numTasks)

    watcher = threading.Thread(target=report, name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_done.set()
        watcher.join()


def _selected(frame: DataFrame, roles: TableRoles, dtype: str) -> list[SparkColumn]:
    """Return the columns that are read; plain numbers of one type, which halves what goes to Python."""
    spark_type = {"float32": "float", "float64": "double"}[dtype]
    features = {column.name for column in roles.features if column.kind in ("whole", "real")}
    chosen = []
    for column in roles.used():
        source_column = _column(column.name)
        is_cast = column.name in features and not isinstance(frame.schema[column.name].dataType, T.StringType)
        chosen.append(source_column.cast(spark_type).alias(column.name) if is_cast else source_column)
    if CORRUPT in frame.columns:
        chosen.append(_column(CORRUPT))
    return chosen


@contextmanager
def _spark_errors(context: SparkContext, source: DataPath) -> Iterator[None]:
    """Turn an error of Spark into one line about the source, or about the task that failed."""
    try:
        yield
    except (AnalysisException, ParseException) as error:
        text = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        if "TABLE_OR_VIEW_NOT_FOUND" in text:
            text += " The catalog is the one that spark-defaults.conf names; without one Spark knows no table."
        msg = f"source={source}: Spark says: {text}"
        raise ConfigError(msg) from error
    except (PySparkException, Py4JError) as error:
        if (unreadable := _UNREADABLE.search(str(error))) is not None:
            msg = f"source={source}: a file of the table is damaged: Spark says: {unreadable[0]}; fetch it again"
            raise DataError(msg) from error
        raise job_error(error, master=context.master, failed=f"{source} was not read") from error
