"""The formats of tables: the look of a file or folder, the digest of the files. ``ingest/tables`` reads the rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.shared_options.source_formats import SourceFormat
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.files.archive import is_archive
from deepspark_ops.ingest.files.image_files import file_stamps
from deepspark_ops.ingest.files.table_files import (
    data_files,
    digest_table,
    first_data_file,
    is_header_alone,
    separator_of,
)
from deepspark_ops.ingest.records import SourceIndex
from deepspark_ops.ingest.sources.format import Format, Look, usual_neighbour
from deepspark_ops.shards.manifest import SplitName
from deepspark_ops.stores.store_path import DataPath

_OPTIONS: Final = frozenset(
    "image_column label_column feature_columns id_column weight_column group_column label_kind standardize missing"
    " query root_folder split_column".split()
)
_CSV: Final = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_LOOKED_AT: Final = 20
_JSON: Final = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")


def _is_csv(look: Look) -> bool:
    """Return whether a text has a header line of column names."""
    if b"\0" in look.start or is_archive(look.start):
        return False
    text = look.start.decode("utf-8-sig", "replace")
    return separator_of(text) is not None or (look.path.name.lower().endswith(_CSV) and is_header_alone(text))


def _is_json_lines(look: Look) -> bool:
    """Return whether the first line of a text, or half of the first lines, are JSON objects."""
    text = (look.text or "").lstrip()
    if not look.start.strip():
        return look.path.name.lower().endswith(_JSON)  # no row
    *lines, cut_line = text.split("\n")
    if not lines:
        return cut_line.startswith("{") and '":' in cut_line  # a single line
    are_records = [_is_record(line) for line in lines[:_LOOKED_AT] if line.strip()]
    return are_records[0] or 2 * sum(are_records) >= len(are_records)


def _is_record(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def folder_of_images(config: IngestConfig, source: DataPath) -> DataPath:
    """Return the folder from which the paths of a table's images start."""
    return config.root_folder or (source if source.is_dir() else source.parent)


def _image_stamps(name: SourceFormat, config: IngestConfig, source: DataPath) -> Iterable[bytes]:
    """Return the stamps of the images that a table of files names; nothing for a query, known by reading alone."""
    if config.image_column is None or config.query is not None:
        return ()
    from deepspark_ops.ingest.files.file_batches import listed_paths  # other sources need no Arrow

    paths = listed_paths(source, name, config.image_column)
    return file_stamps(folder_of_images(config, source), paths, config.stamp)


def _digest(name: SourceFormat, config: IngestConfig, source: DataPath) -> str:
    """Return a digest of a table's files, and of the images that the table names."""
    of_files, stamps = digest_table(source, config.stamp), b"".join(_image_stamps(name, config, source))
    return hashlib.sha256(of_files.encode() + stamps).hexdigest() if stamps else of_files


def _format(name: SourceFormat, looks_like: Callable[[Look], bool], suffixes: tuple[str, ...]) -> Format:
    """Return a format of files; of a folder, the first file with a suffix says the format."""

    def look_of_file(look: Look) -> bool:
        if look.kind == "file":
            return looks_like(look)
        first = first_data_file(look.path, suffixes)
        return first is not None and looks_like(Look(first))

    return Format(
        kinds=frozenset({"file", "folder"}),
        looks_like=look_of_file,
        digest=partial(_digest, name),
        index=_index,
        options=_OPTIONS,
        own_splits=_own_splits,
        usual_test=lambda source: usual_neighbour(source, (("train", "test"),)) if source.is_file() else None,
        named_stamps=partial(_image_stamps, name),
    )


def _own_splits(source: DataPath) -> Mapping[SplitName, DataPath] | None:
    """Return the files of a folder by split, as libraries of data sets name the files: train-00000-of-00001.parquet.

    Raises:
        ConfigError: A split has several files.
    """
    files: dict[str, list[DataPath]] = {}
    for file in data_files(source) if source.is_dir() else ():
        files.setdefault(file.name.replace("-", ".").partition(".")[0], []).append(file)
    if len(files) < 2 or not {"train"} <= files.keys() <= {"train", "validation", "val", "test"}:
        return None
    if any(len(of_split) > 1 for of_split in files.values()):
        msg = (
            f"source={source} has files of the sets {', '.join(files)}; put the files of each set into a folder, and"
            " give test_source, or validation_source, beside source"
        )
        raise ConfigError(msg)
    (train,), held_out = files.pop("train"), [files.get(name, [None])[0] for name in ("validation", "val", "test")]
    validation, test = held_out[0] or held_out[1], held_out[2]
    splits: dict[SplitName, DataPath | None] = {"train": train, "validation": validation, "test": test}
    if test is None:
        splits = {"train": train, "test": validation}
    return {split: file for split, file in splits.items() if file is not None}


def _index(config: IngestConfig, source: DataPath, _work: DataPath) -> SourceIndex:
    msg = f"source={source} is a table, whose rows Spark reads; nothing but an ingestion does"
    raise DataError(msg)


FORMATS: Final[Mapping[str, Format]] = {
    "parquet": _format("parquet", lambda look: look.start.startswith(b"PAR1"), (".parquet", ".pq")),
    "orc": _format("orc", lambda look: look.start.startswith(b"ORC"), (".orc",)),
    "avro": _format("avro", lambda look: look.start.startswith(b"Obj\x01"), (".avro",)),
    "json_lines": _format("json_lines", _is_json_lines, _JSON),
    "csv": _format("csv", _is_csv, _CSV),
    # Only Spark knows the table's content; the rows are digested after reading.
    "spark_table": Format(frozenset({"table"}), lambda look: look.kind == "table", lambda _, __: "", _index, _OPTIONS),
}
