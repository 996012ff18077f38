"""From opened tables to the plan of a dataset; a table decides whether Spark or this process reads the rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa

from deepspark_ops.config.ingest import IngestConfig, is_known
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.files.image_files import FolderReader, file_stamps
from deepspark_ops.ingest.image_plan import plan_images
from deepspark_ops.ingest.plan import DatasetPlan
from deepspark_ops.ingest.recipe import Recipe, read_class_names, with_content
from deepspark_ops.ingest.records import SourceIndex
from deepspark_ops.ingest.selection.choice import require_classes
from deepspark_ops.ingest.selection.splits import read_listed_rows, split_shares
from deepspark_ops.ingest.sources.tables import folder_of_images
from deepspark_ops.ingest.tables.columns import (
    KINDS,
    NUMBERS,
    Column,
    TableRoles,
    choose_roles,
    columns_of,
    query_for_numbers,
    refuse_decimal_texts,
)
from deepspark_ops.ingest.tables.file_parts import FileTable
from deepspark_ops.ingest.tables.image_rows import ImageRows, images_digest, index_images, pack_images
from deepspark_ops.ingest.tables.known_files import KnownFiles, SeenSource, find_known_files, look_at_files
from deepspark_ops.ingest.tables.measured import text_classes
from deepspark_ops.ingest.tables.row_batch import RowRecipe
from deepspark_ops.ingest.tables.row_files import PartSummary, Spread, write_rows
from deepspark_ops.ingest.tables.table_plan import MoreToRead, ReadRows, content_digest, plan_rows
from deepspark_ops.ingest.versions.base import find_base
from deepspark_ops.shards.manifest import SplitName
from deepspark_ops.stores.store_path import DataPath

_log = logging.getLogger(__name__)
_BATCH_BYTES: Final = 2**21
"""Of features: what a core's cache holds while a batch is hashed, added up and copied."""
MOST_BATCH_ROWS: Final = 10_000
_IMAGE_BATCH_ROWS: Final = 64
_SHOWN_COLUMNS: Final = 8

ReadPart = Callable[[Iterable[pa.RecordBatch], int], str]
"""Takes the rows of a part of a table and its number; returns what there is to know of the part, as text."""


class Table(Protocol):
    """A table that can be read in parts."""

    @property
    def source(self) -> DataPath:
        """The table's name, as the user gave it."""
        ...

    @property
    def columns(self) -> Sequence[Column]:
        """All columns."""
        ...

    @property
    def files(self) -> FileTable | None:
        """The files that are read one by one; None where a part of the table is no part of a file."""
        ...

    def lengths(self, names: Sequence[str]) -> Sequence[int]:
        """Return the lengths of arrays in the first row with numbers in all columns; empty without such a row."""
        ...

    def over_parts(
        self, roles: TableRoles, read: ReadPart, batch_rows: int, dtype: str, only: Collection[int] | None = None
    ) -> list[str]:
        """Return the answers of ``read`` for each part of the table, or of some of the files."""
        ...


@dataclass(frozen=True)
class FirstRows:
    """The first rows of a table, or all rows of a small table, as a table of one part."""

    source: DataPath
    batch: pa.RecordBatch
    files: None = None

    @property
    def columns(self) -> Sequence[Column]:
        """See ``Table``."""
        return columns_of(self.batch.schema)

    def lengths(self, names: Sequence[str]) -> Sequence[int]:
        """See ``Table``."""
        return lengths_in([self.batch], names)

    def over_parts(
        self, roles: TableRoles, read: ReadPart, batch_rows: int, dtype: str, only: Collection[int] | None = None
    ) -> list[str]:
        """See ``Table``."""
        starts = range(0, self.batch.num_rows, batch_rows)
        return [read((self.batch.slice(start, batch_rows) for start in starts), 0)]


def lengths_in(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> list[int]:
    """Return the lengths of arrays in the first row that has numbers in all columns of these names."""
    for batch in batches:
        for row in range(batch.num_rows):
            lengths = [len(batch.column(name)[row].as_py() or ()) for name in names]
            if all(lengths):
                return lengths
    return []


def plan_table_source(
    config: IngestConfig,
    recipe: Recipe,
    tables: Mapping[SplitName, Table],
    spread: Spread,
    folder: Path,
    *,
    is_preview: bool = False,
) -> tuple[IngestConfig, Recipe, DatasetPlan[Any]]:
    """Return the plan of a table, after reading every row of features, or the paths and labels of images.

    Args:
        config: What is asked for.
        recipe: Of the sources.
        tables: That of the training source, and those of splits that have a source of their own.
        spread: Reads rows once more where only some are taken.
        folder: Scratch folder that all tasks see.
        is_preview: Log nothing.

    Returns:
        The config, with the format that shards of features have; the recipe, whose digests are known now; the plan.

    Raises:
        ConfigError: Options that do not fit the table.
        DataError: The tables differ, the rows cannot be used, or not be read.
        DeepSparkError: A task died in a way that another try may cure.
    """
    level = logging.DEBUG if is_preview else logging.INFO
    roles = choose_roles(config, tables["train"].columns)
    _log_roles(tables["train"], roles, level)
    _require_same(tables, roles)
    if roles.image is not None:
        of_images = {split: _index_images(config, table, roles, folder) for split, table in tables.items()}
        if not is_known(config):
            recipe = with_content(recipe, {split: digest for split, (_, digest) in of_images.items()})
        indexes = iter([index for index, _ in of_images.values()])
        base = find_base(config, recipe.options)
        plan = plan_images(config, recipe, folder, lambda *_: next(indexes), base, is_preview=is_preview)
        return config, recipe, plan
    config = config.model_copy(update={"shard_format": "hdf5"})
    now = _files_now(config, tables) if is_known(config) else None
    of_table = find_base(config, recipe.options, of_table=True)
    known_files = find_known_files(config, of_table, now)

    read_rows = _read_features(config, tables, roles, folder, known_files, level)
    if not is_known(config):
        recipe = with_content(recipe, content_digest(read_rows.parts))
    while True:
        try:
            plan_of_rows = plan_rows(config, recipe, read_rows, folder, spread, of_table, now, known_files)
        except MoreToRead as more:
            assert known_files is not None
            known_files = known_files.without(more.files)
            n_more = "all" if known_files is None else f"{sum(map(len, more.files.values())):,} more"
            _log.info("ingest: %s files are read: %s", n_more, more)
            read_rows = _read_features(config, tables, roles, folder, known_files, level)
        else:
            return config, recipe, plan_of_rows


def _log_roles(table: Table, roles: TableRoles, level: int) -> None:
    """Log the roles of the columns."""
    labels = ", ".join(column.name for column in roles.labels)
    content = f"{len(roles.features):,} feature columns" if roles.image is None else f'images in "{roles.image.name}"'
    other_roles = [f'; {name} "{held.name}"' for name in ("id", "weight", "group") if (held := getattr(roles, name))]
    _log.log(level, "ingest: %s: %s; labels in %s%s", table.source, content, labels, "".join(other_roles))
    if roles.left_out:
        shown = ", ".join(f"{column.name} ({KINDS[column.kind]})" for column in roles.left_out[:_SHOWN_COLUMNS])
        n_more = len(roles.left_out) - _SHOWN_COLUMNS
        _log.log(level, "ingest: columns that are not used: %s%s", shown, f" and {n_more:,} more" if n_more > 0 else "")


def _read_features(
    config: IngestConfig,
    tables: Mapping[SplitName, Table],
    roles: TableRoles,
    folder: Path,
    known_files: KnownFiles | None,
    level: int,
) -> ReadRows:
    """Read the rows of new and changed files once, and write the rows to the scratch folder."""
    names = () if config.class_names is None else read_class_names(config.class_names, folder)
    rows = row_recipe(config, roles, _widths(tables["train"], roles), names)
    is_text = roles.labels[0].kind == "text"
    parts: dict[SplitName, list[PartSummary]] = {}
    for split, table in tables.items():
        of_split = rows
        if split != "train":
            of_split = replace(rows, split=split, class_names=tuple(names) if is_text else ())
        summaries = _read_rows(table, of_split, folder, None if known_files is None else known_files.to_read(split))
        n_rows = sum(part.n_rows for part in summaries)
        _log.log(level, "ingest: %s rows of %s numbers read", f"{n_rows:,}", f"{rows.n_features:,}")
        summaries += [] if known_files is None else known_files.parts(split)
        parts[split] = sorted(summaries, key=lambda part: (part.file, part.part))
        if split == "train" and is_text and not names:
            names = text_classes(parts["train"])
            if config.label_kind == "auto":
                refuse_decimal_texts(roles.labels[0].name, names)
    return ReadRows(rows, parts, tuple(names))


def _require_same(tables: Mapping[SplitName, Table], roles: TableRoles) -> None:
    for split, table in tables.items():
        kinds = {column.name: column.kind for column in table.columns}
        of_numbers = {column.name for column in table.columns if column.of_numbers().kind in NUMBERS}
        values = {column.name for column in (*roles.features, *roles.labels) if column.kind in NUMBERS}
        for column in roles.used():
            if kinds.get(column.name) != column.kind and column.name not in values & of_numbers:
                actual = KINDS[kinds[column.name]] if column.name in kinds else "no such column"
                msg = (
                    f'{split}_source={table.source}: column "{column.name}" holds {KINDS[column.kind]} in'
                    f" {tables['train'].source}, and here: {actual}"
                )
                raise DataError(msg)


def _widths(table: Table, roles: TableRoles) -> list[int]:
    """Return the numbers per row of each feature column."""
    of_arrays = [column.name for column in roles.features if column.kind == "numbers"]
    lengths = table.lengths(of_arrays) if of_arrays else ()
    if of_arrays and not lengths:
        msg = f"{table.source}: no row has numbers in all of the columns {', '.join(of_arrays)}"
        raise DataError(msg)
    widths = dict(zip(of_arrays, lengths, strict=True))
    return [widths.get(column.name, 1) for column in roles.features]


def _files_now(config: IngestConfig, tables: Mapping[SplitName, Table]) -> dict[SplitName, SeenSource] | None:
    """Return the files of each source before reading; None where Spark reads a source."""
    sources = {}
    for split, table in tables.items():
        if table.files is None:
            return None
        sources[split] = look_at_files(table.source, table.files.files, config.stamp)
    return sources


def _read_rows(table: Table, rows: RowRecipe, folder: Path, files: Collection[int] | None) -> list[PartSummary]:
    """Read a table, or some of its files."""

    def read(batches: Iterable[pa.RecordBatch], part: int) -> str:
        return write_rows(batches, rows, folder, part).to_json()

    row_bytes = rows.n_features * (8 if rows.roles.is_wide else 4)
    n_rows = min(max(1, _BATCH_BYTES // row_bytes), MOST_BATCH_ROWS)
    texts = table.over_parts(rows.roles, read, n_rows, rows.dtype, files)
    summaries = sorted((PartSummary.from_json(text) for text in texts), key=lambda part: part.part)
    if table.files is None:
        return summaries
    return [replace(part, file=table.files.parts[part.part].file) for part in summaries]


def _index_images(config: IngestConfig, table: Table, roles: TableRoles, folder: Path) -> tuple[SourceIndex, str]:
    """Return the index of a table's images, after copying the images to the scratch folder, and their digest."""

    def read(batches: Iterable[pa.RecordBatch], part: int) -> str:
        return pack_images(batches, roles, folder, part).to_json()

    texts = table.over_parts(roles, read, _IMAGE_BATCH_ROWS, "float64")
    parts = sorted((ImageRows.from_json(text) for text in texts), key=lambda part: part.part)
    index = index_images(parts, roles, table.source, folder_of_images(config, table.source), folder)
    stamps = b""
    if not is_known(config) and isinstance(index.reader, FolderReader):
        stamps = b"".join(file_stamps(index.reader.folder, index.reader.paths, config.stamp))
    return index, images_digest(parts, stamps)


def row_recipe(
    config: IngestConfig, roles: TableRoles, widths: Sequence[int], class_names: Sequence[str] = ()
) -> RowRecipe:
    """Return the recipe of a table's rows; ``widths`` has the numbers in a row of each feature column.

    Raises:
        ConfigError: Options that do not go together.
    """
    label = roles.labels[0]
    if image_options := _image_options(config):
        msg = (
            f"{', '.join(image_options)}: for images, and {config.source} is a table of features; name an image_column"
        )
        raise ConfigError(msg)
    if config.split_list is not None and roles.id is None:
        msg = (
            f"split_list={config.split_list}: a row of {config.source} has no name that a list could have; give"
            " id_column, or split_column if the table itself says it"
        )
        raise ConfigError(msg)
    if config.label_kind == "value" or len(roles.labels) > 1:
        require_classes(config, 0)
    if config.n_classes is not None and class_names and len(class_names) != config.n_classes:
        msg = f"n_classes={config.n_classes}, but {config.class_names} names {len(class_names)}; give one of them"
        raise ConfigError(msg)
    if config.label_kind == "class" and len(roles.labels) > 1:
        msg = "label_kind=class: several label columns are values, 0 and 1 for classes that do not exclude each other"
        raise ConfigError(msg)
    if config.label_kind == "value" and label.kind == "text":
        msg = f'label_kind=value: label "{label.name}" holds text; {query_for_numbers(label.name)}'
        raise ConfigError(msg)
    return RowRecipe(
        roles=roles,
        widths=tuple(widths),
        missing=config.missing,
        label_kind=config.label_kind,
        n_classes=config.n_classes if config.n_classes is not None else len(class_names) or None,
        class_names=tuple(class_names) if label.kind == "text" else (),
        shares=split_shares(config),
        seed=config.seed,
        shuffle=config.shuffle,
        listed=None if config.split_list is None else read_listed_rows(config.split_list),
    )


def _image_options(config: IngestConfig) -> list[str]:
    names = (
        "encoded",
        "resize_height",
        "resize_width",
        "gray",
        "max_pixel",
        "scaled_decoding",
        "decode_mib",
        "root_folder",
    )
    values = {name: getattr(config, name) for name in names}
    return [f"{name}={value}" for name, value in values.items() if value != IngestConfig.model_fields[name].default]
