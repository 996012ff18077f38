"""Tables as Spark reads them: each task takes a part of the rows in Arrow's batches, none goes through Python alone."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
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

from caffe_import.files.regular_file import open_regular
from deepspark_ops.config.ingest import TABLE_MARK, IngestConfig, is_catalog_table, is_known
from deepspark_ops.config.shared_options.source_formats import SourceFormat
from deepspark_ops.errors import ConfigError, DataError, DeepSparkError
from deepspark_ops.ingest.files.table_files import data_files, no_rows
from deepspark_ops.ingest.plan import DatasetPlan, Recipe, own_sources, plan_ingest, read_class_names
from deepspark_ops.ingest.records import SourceIndex
from deepspark_ops.ingest.sources.registry import resolve_format
from deepspark_ops.ingest.sources.tables.query import VIEW, check_query, parse_query
from deepspark_ops.ingest.tables.arrow_columns import columns_of
from deepspark_ops.ingest.tables.columns import CORRUPT, KINDS, Column, TableRoles, choose_roles
from deepspark_ops.ingest.tables.file_batches import avro_batches, avro_schema, check_files, separator
from deepspark_ops.ingest.tables.file_parts import FilePart, FileTable, avro_table, parquet_table
from deepspark_ops.ingest.tables.image_rows import ImageRows, images_digest, index_images, pack_images
from deepspark_ops.ingest.tables.known_files import KnownFiles, SeenSource, find_known_files, look_at_files
from deepspark_ops.ingest.tables.planning.classes import text_classes
from deepspark_ops.ingest.tables.planning.row_recipe import row_recipe
from deepspark_ops.ingest.tables.planning.spread import one_by_one
from deepspark_ops.ingest.tables.planning.table_plan import (
    WhatWasRead,
    content_digest,
    plan_read_table,
    with_content,
)
from deepspark_ops.ingest.tables.row_batch import RowRecipe
from deepspark_ops.ingest.tables.row_files import PartSummary, write_rows
from deepspark_ops.ingest.versions.base import find_base
from deepspark_ops.processes.spark_context import SparkOnDemand, arrow_schema
from deepspark_ops.processes.spark_failure import error_of_task, spark_failure
from deepspark_ops.shards.manifest import SplitName
from deepspark_ops.stores.store_path import StorePath, data_path

_log = logging.getLogger(__name__)
_BATCH_BYTES = 2**21
"""Of features: what a core's cache holds while a batch is hashed, added up and copied."""
_MOST_BATCH_ROWS = 10_000
_MOST_BATCH_BYTES = 2**25
"""Of images and texts, whose sizes nobody knows beforehand."""
_IMAGE_BATCH_ROWS = 64
_FEW_ROWS = 1000
_TOO_LITTLE_FOR_SPARK = 2**25
"""So many bytes this process reads and writes sooner than Spark has started."""
_REPORT_S = 10.0
_UNREADABLE = re.compile(r"\[(FAILED_READ_FILE|CANNOT_READ_FILE_FOOTER)[^\]]*\][^\n]*")
"""The conditions by which Spark reports a file that it cannot read."""

ReadPart = Callable[[Iterable[pa.RecordBatch], int], str]
"""Takes the rows of a part of a table and its number; returns what there is to know of it, as text."""


@dataclass(frozen=True)
class Table:
    """A table that Spark, or the tasks themselves, can read.

    Attributes:
        source: As the user named it.
        columns: All that there are.
        frame: Spark's; None where tasks read the files by themselves.
        files: Which they then are; else None.
    """

    source: Path
    columns: tuple[Column, ...]
    frame: DataFrame | None
    files: FileTable | None = None


def open_table(spark: SparkOnDemand, config: IngestConfig, source: Path) -> Table:
    """Return the table that a source names, or the config's query makes of it. No row is read, but of text files.

    Raises:
        ConfigError: No such table, or a query that Spark refuses.
        DataError: A damaged file.
    """
    name = resolve_format(config, source)
    if config.query is None and (files := _own_files(source, name)) is not None:
        return Table(source, tuple(columns_of(files.schema)), None, files)
    check_files(source, name)
    session = SparkSession(spark.context())
    with _told(session.sparkContext, source):
        frame = None if str(source) == TABLE_MARK else _frame(session, source, name)
        if config.query is not None:
            if frame is not None:
                frame.createOrReplaceTempView(VIEW)
            check_query(parse_query(session, config.query), config.listed_files, _catalog_lookup(session))
            frame = session.sql(config.query)
        assert frame is not None
        frame = _plain(frame)
        if not frame.columns:
            raise no_rows(source)  # JSON without a record
        return Table(source, tuple(columns_of(arrow_schema(frame.schema))), frame)


def _catalog_lookup(session: SparkSession) -> Callable[[tuple[str, ...]], bool]:
    """Return a function that says whether the catalog has a table of a name in parts."""
    return lambda parts: bool(session.catalog.tableExists(".".join(map(_quoted, parts))))


def _own_files(source: Path, name: SourceFormat) -> FileTable | None:
    """Return the files that tasks read by themselves; None where Spark does."""
    if name == "avro":
        return avro_table(source)
    return parquet_table(source) if name == "parquet" and not isinstance(source, StorePath) else None


def _frame(session: SparkSession, source: Path, name: SourceFormat) -> DataFrame:
    if is_catalog_table(source):
        return session.table(str(source).removeprefix(TABLE_MARK))
    path = _address(source)
    if name == "avro":
        return _avro_frame(session, source)
    if name == "csv":
        first = next(data_files(source))
        reader = session.read.option("header", True).option("sep", separator(first))
        found = reader.option("inferSchema", True).csv(path)
        # Once more with the column of lines that do not fit: a line is refused by name, not read as nothing.
        return (
            reader.schema(found.schema.add(CORRUPT, T.StringType()))
            .option("columnNameOfCorruptRecord", CORRUPT)
            .csv(path)
        )
    if name == "json_lines":
        return session.read.option("columnNameOfCorruptRecord", CORRUPT).json(path)
    if name == "parquet":
        return _parquet_frame(session, source, path)
    return session.read.format(name).load(path)


def _parquet_frame(session: SparkSession, source: Path, path: str) -> DataFrame:
    """Return Parquet files as Spark reads them; nanoseconds, which pandas writes and Spark refuses, as microseconds."""
    with open_regular(next(data_files(source))) as handle:
        fields = list(pq.read_schema(handle))
    in_nanoseconds = {field.name: field.type.tz for field in fields if _is_in_nanoseconds(field.type)}
    if not in_nanoseconds:
        return session.read.parquet(path)
    session.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    frame = session.read.parquet(path)
    return frame.withColumns({name: _moment(name, zone) for name, zone in in_nanoseconds.items()})


def _is_in_nanoseconds(found: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(found) and found.unit == "ns")


def _moment(name: str, zone: str | None) -> SparkColumn:
    """Return a column of nanoseconds since 1970 as timestamps; without a zone as such that no session's zone moves."""
    microseconds = F.expr(f"{_quoted(name)} div 1000")
    if zone is not None:
        return F.timestamp_micros(microseconds)
    seconds = (microseconds.cast("decimal(20,0)") / 1_000_000).cast("decimal(18,6)")
    return F.expr("TIMESTAMP_NTZ'1970-01-01 00:00:00'") + F.make_dt_interval(secs=seconds)


def _address(source: Path) -> str:
    """Return what Spark finds a path by: a local one also where Spark's own file system is another, ``[`` as it is."""
    address = str(source) if isinstance(source, StorePath) else f"file://{source.absolute()}"
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", address)


def _avro_frame(session: SparkSession, source: Path) -> DataFrame:
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


def plan_table_source(
    spark: SparkOnDemand, config: IngestConfig, recipe: Recipe, folder: Path
) -> tuple[IngestConfig, Recipe, DatasetPlan[Any]]:
    """Read a table: of features every row, of images all that a plan needs.

    Args:
        spark: Started for all that this process does not read sooner.
        config: What is asked for.
        recipe: Of the sources.
        folder: Scratch folder that all tasks see.

    Returns:
        The config, with the format that shards of features have; the recipe, whose digests are known now; the plan.

    Raises:
        ConfigError: Options that do not fit the table.
        DataError: The rows cannot be used.
        DeepSparkError: A task died in a way that another try may cure.
    """
    tables = {split: open_table(spark, config, source) for split, source in own_sources(config).items()}
    roles = choose_columns(config, tables["train"])
    _require_same(tables, roles)
    if roles.image is not None:
        indexes: dict[str, SourceIndex] = {}
        digests: dict[SplitName, str] = {}
        for split, table in tables.items():
            indexes[str(table.source)], digests[split] = index_image_table(spark, config, table, roles, folder)
        recipe = recipe if is_known(config) else with_content(recipe, digests)
        base = find_base(config, recipe.options)
        return config, recipe, plan_ingest(config, recipe, folder, lambda _, source, *__: indexes[str(source)], base)
    config = config.model_copy(update={"shard_format": "hdf5"})
    now = _files_now(tables) if is_known(config) else None
    of_table = find_base(config, recipe.options, of_table=True)
    known = find_known_files(config, of_table, now)

    def spread(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        if not spark.is_started:
            return one_by_one(work, items)
        context = spark.context()
        with _told(context, config.source):
            found: list[Any] = context.parallelize(items, max(1, len(items))).map(work).collect()
            return found

    def read(known: KnownFiles | None) -> WhatWasRead:
        return read_features(spark, config, tables, roles, folder, known)

    found = read(known)
    recipe = recipe if is_known(config) else with_content(recipe, content_digest(found.parts))
    return config, recipe, plan_read_table(config, recipe, found, folder, spread, of_table, now, known, read)


def choose_columns(config: IngestConfig, table: Table) -> TableRoles:
    """Return what each column is used for, and say so in the log.

    Raises:
        ConfigError: As ``choose_roles``.
    """
    roles = choose_roles(config, table.columns)
    labels = ", ".join(column.name for column in roles.labels)
    what = f"{len(roles.features):,} feature columns" if roles.image is None else f'images in "{roles.image.name}"'
    others = [f'{name} "{held.name}"' for name in ("id", "weight", "group") if (held := getattr(roles, name))]
    _log.info("ingest: %s: %s; labels in %s%s", table.source, what, labels, "".join(f"; {other}" for other in others))
    if roles.left_out:
        shown = ", ".join(f"{column.name} ({KINDS[column.kind]})" for column in roles.left_out[:8])
        more = f" and {len(roles.left_out) - 8:,} more" if len(roles.left_out) > 8 else ""
        _log.info("ingest: columns that are not used: %s%s", shown, more)
    return roles


def read_features(
    spark: SparkOnDemand,
    config: IngestConfig,
    tables: Mapping[SplitName, Table],
    roles: TableRoles,
    folder: Path,
    known: KnownFiles | None = None,
) -> WhatWasRead:
    """Read every row once, but for those of files that are known, and write it to the scratch folder.

    Args:
        spark: Started where it is needed.
        config: What is asked for.
        tables: That of the training source, and those of splits that have a source of their own.
        roles: Of the columns.
        folder: Scratch folder that all tasks see.
        known: Files that need no reading.

    Raises:
        ConfigError: Options that do not go together.
        DataError: The tables differ, or cannot be read.
    """
    names = () if config.class_names is None else read_class_names(config.class_names, folder)
    rows = row_recipe(config, roles, _widths(tables["train"], roles), names)

    def read(split: SplitName, table: Table, recipe: RowRecipe) -> list[PartSummary]:
        found = _read_rows(spark, table, recipe, folder, None if known is None else known.to_read(split))
        _log.info(
            "ingest: %s rows of %s numbers read", f"{sum(part.n_rows for part in found):,}", f"{rows.n_features:,}"
        )
        before = [] if known is None else known.parts(split)
        return sorted(before + found, key=lambda part: (part.file, part.part))

    parts: dict[SplitName, list[PartSummary]] = {"train": read("train", tables["train"], rows)}
    is_text = roles.labels[0].kind == "text"
    if is_text and not names:
        names = text_classes(parts["train"])
    for split, table in tables.items():
        if split != "train":
            own = replace(rows, split=split, class_names=tuple(names) if is_text else ())
            parts[split] = read(split, table, own)
    return WhatWasRead(rows, parts, tuple(names))


def _require_same(tables: Mapping[SplitName, Table], roles: TableRoles) -> None:
    for split, table in tables.items():
        there = {column.name: column.kind for column in table.columns}
        for column in roles.used():
            if there.get(column.name) != column.kind:
                found = KINDS[there[column.name]] if column.name in there else "no such column"
                msg = (
                    f'{split}_source={table.source}: column "{column.name}" holds {KINDS[column.kind]} in'
                    f" {tables['train'].source}, and here: {found}"
                )
                raise DataError(msg)


def _widths(table: Table, roles: TableRoles) -> list[int]:
    """Return how many numbers each feature column has in a row: those of the first row whose arrays are all there."""
    of_arrays = [column.name for column in roles.features if column.kind == "numbers"]
    if not of_arrays:
        return [1] * len(roles.features)
    found: dict[str, int] = {}
    if table.frame is not None:
        with _told(table.frame.sparkSession.sparkContext, table.source):
            frame = table.frame.where(" AND ".join(f"size(`{name}`) > 0" for name in of_arrays))
            row = frame.select(*(F.size(_column(name)).alias(f"n{i}") for i, name in enumerate(of_arrays))).first()
            found = {} if row is None else dict(zip(of_arrays, row, strict=True))
    else:
        assert table.files is not None
        for part in table.files.parts:
            for batch in table.files.batches(part, of_arrays, _FEW_ROWS):
                for row in range(batch.num_rows):
                    lengths = [len(batch.column(name)[row].as_py() or ()) for name in of_arrays]
                    if all(lengths):
                        return _with_plain(roles, dict(zip(of_arrays, lengths, strict=True)))
    if not found:
        msg = f"{table.source}: no row has numbers in all of the columns {', '.join(of_arrays)}"
        raise DataError(msg)
    return _with_plain(roles, found)


def _with_plain(roles: TableRoles, widths: dict[str, int]) -> list[int]:
    return [widths.get(column.name, 1) for column in roles.features]


def _files_now(tables: Mapping[SplitName, Table]) -> dict[SplitName, SeenSource] | None:
    """Return the files of each source as they are before they are read; None where Spark reads one."""
    found = {}
    for split, table in tables.items():
        if table.files is None:
            return None
        found[split] = look_at_files(table.source, table.files.files)
    return found


def _read_rows(
    spark: SparkOnDemand, table: Table, rows: RowRecipe, folder: Path, files: Collection[int] | None = None
) -> list[PartSummary]:
    """Read a table, or some of its files."""

    def read(batches: Iterable[pa.RecordBatch], part: int) -> str:
        return write_rows(batches, rows, folder, part).to_json()

    row_bytes = rows.n_features * (8 if rows.roles.is_wide else 4)
    texts = _over_parts(spark, table, rows.roles, read, max(1, _BATCH_BYTES // row_bytes), rows.dtype, files)
    found = sorted((PartSummary.from_json(text) for text in texts), key=lambda part: part.part)
    if table.files is None:
        return found
    return [replace(part, file=table.files.parts[part.part].file) for part in found]


def index_image_table(
    spark: SparkOnDemand, config: IngestConfig, table: Table, roles: TableRoles, folder: Path
) -> tuple[SourceIndex, str]:
    """Return the index of a table's images, which are copied to the scratch folder, and a digest of them.

    Raises:
        ConfigError: Labels that are no classes.
        DataError: No rows, or a table that cannot be read.
    """

    def read(batches: Iterable[pa.RecordBatch], part: int) -> str:
        return pack_images(batches, roles, folder, part).to_json()

    texts = _over_parts(spark, table, roles, read, _IMAGE_BATCH_ROWS, "float64")
    parts = sorted((ImageRows.from_json(text) for text in texts), key=lambda part: part.part)
    root = config.root_folder or (table.source if table.source.is_dir() else table.source.parent)
    return index_images(parts, roles, table.source, root, folder), images_digest(parts)


def _over_parts(
    spark: SparkOnDemand,
    table: Table,
    roles: TableRoles,
    read: ReadPart,
    batch_rows: int,
    dtype: str,
    only: Collection[int] | None = None,
) -> list[str]:
    """Let a task for each part of a table, or of some of its files, read it, and return what each says."""
    if table.files is not None:
        files, names = table.files, [column.name for column in roles.used()]
        n_rows = min(batch_rows, _MOST_BATCH_ROWS)

        def of_file(numbered: tuple[int, FilePart]) -> str:
            number, part = numbered
            return read(files.batches(part, names, n_rows), number)

        parts = [(i, part) for i, part in enumerate(files.parts) if only is None or part.file in only]
        is_little = sum(part.n_bytes for _, part in parts) <= _TOO_LITTLE_FOR_SPARK
        if not spark.is_started and (is_little or not spark.is_allowed):
            return [of_file(part) for part in parts]
    context = spark.context()
    with _told(context, table.source):
        if table.files is not None:
            with logged_progress(context, f"ingest: reading {table.source}"):
                found: list[str] = context.parallelize(parts, max(1, len(parts))).map(of_file).collect()
            return found
        assert table.frame is not None
        session = table.frame.sparkSession
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(min(batch_rows, _MOST_BATCH_ROWS)))
        session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(_MOST_BATCH_BYTES))

        def of_part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            text = read(batches, TaskContext.get().partitionId())
            yield pa.RecordBatch.from_pydict({"summary": [text]})

        frame = table.frame.select(*_selected(table.frame, roles, dtype))
        with logged_progress(context, f"ingest: reading {table.source}"):
            return [row.summary for row in frame.mapInArrow(of_part, "summary string").collect()]


@contextmanager
def logged_progress(context: SparkContext, what: str) -> Iterator[None]:
    """Log how many tasks of the stage that runs have ended, every some seconds, as long as the block runs.

    Args:
        context: Spark's.
        what: Is done by the tasks, for the log.
    """
    is_done = threading.Event()
    tracker = context.statusTracker()

    def report() -> None:
        while not is_done.wait(_REPORT_S):
            with suppress(Py4JError, AttributeError):  # Spark stops, or the stage has ended meanwhile
                for number in tracker.getActiveStageIds():
                    stage = tracker.getStageInfo(number)
                    _log.info("%s: %s of %s tasks done", what, stage.numCompletedTasks, stage.numTasks)

    watcher = threading.Thread(target=report, name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_done.set()
        watcher.join()


def _selected(frame: DataFrame, roles: TableRoles, dtype: str) -> list[SparkColumn]:
    """Return the columns that are read; plain numbers of one type, which halves what goes to Python."""
    wanted = {"float32": "float", "float64": "double"}[dtype]
    features = {column.name for column in roles.features if column.kind in ("whole", "real")}
    chosen = []
    for column in roles.used():
        given = _column(column.name)
        chosen.append(given.cast(wanted).alias(column.name) if column.name in features else given)
    if CORRUPT in frame.columns:
        chosen.append(_column(CORRUPT))
    return chosen


@contextmanager
def _told(context: SparkContext, source: Path) -> Iterator[None]:
    """Turn Spark's errors into one line: of what the user named, or of what went wrong in a task."""
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
        told = spark_failure(error, master=context.master, task="task")
        if (refusal := error_of_task(told)) is not None:
            raise refusal from error
        msg = f"{source} was not read: {told}"
        raise DeepSparkError(msg) from error
