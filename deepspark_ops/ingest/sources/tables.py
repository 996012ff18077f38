"""The formats of tables: the look of a file or folder, the digest of the files. ``ingest/tables`` reads the rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.files.archive import is_archive
from deepspark_ops.ingest.files.table_files import digest_table, first_data_file, is_header_alone, separator_of
from deepspark_ops.ingest.records import SourceIndex
from deepspark_ops.ingest.sources.format import Format, Kind, Look, usual_neighbour
from deepspark_ops.stores.store_path import DataPath

_OPTIONS: Final = frozenset(
    "image_column label_column feature_columns id_column weight_column group_column label_kind standardize missing"
    " query root_folder split_column".split()
)
_CSV: Final = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_JSON: Final = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")
LooksLike = Callable[[Look], bool]


def _begins_with(magic: bytes, *suffixes: str) -> LooksLike:
    """Return a test of the first bytes of a file or of a folder's first data file."""

    def looks_like(look: Look) -> bool:
        if look.kind == "file":
            return look.start.startswith(magic)
        first = first_data_file(look.path, suffixes)
        return first is not None and Look(first).start.startswith(magic)

    return looks_like


def _is_text(looks_like: LooksLike, suffixes: tuple[str, ...]) -> LooksLike:
    """Return a test of a text or of a folder's first data file."""

    def looks_like_text(look: Look) -> bool:
        if look.kind != "folder":
            return looks_like(look)
        first = first_data_file(look.path, suffixes)
        return first is not None and looks_like(Look(first))

    return looks_like_text


def _is_csv(look: Look) -> bool:
    """Return whether a text has a header line of column names."""
    if b"\0" in look.start or is_archive(look.start):
        return False
    text = look.start.decode("utf-8-sig", "replace")
    return separator_of(text) is not None or (look.path.name.lower().endswith(_CSV) and is_header_alone(text))


def _is_json_lines(look: Look) -> bool:
    """Return whether a text has a JSON object in the first line."""
    text = (look.text or "").lstrip()
    if not look.start.strip():
        return look.path.name.lower().endswith(_JSON)  # no row
    if not text.startswith("{"):
        return False
    line, _, further_lines = text.partition("\n")
    try:
        return isinstance(json.loads(line), dict)
    except json.JSONDecodeError:
        return not further_lines and '":' in line  # one line, longer than the look


def _format(
    looks_like: LooksLike,
    kinds: frozenset[Kind] = frozenset({"file", "folder"}),
    digest: Callable[[IngestConfig, DataPath], str] = lambda config, source: digest_table(source, config.stamp),
) -> Format:
    return Format(kinds, looks_like, digest, _index, _OPTIONS, usual_test=_usual_test)


def _index(config: IngestConfig, source: DataPath, _work: DataPath) -> SourceIndex:
    msg = f"source={source} is a table, whose rows Spark reads; nothing but an ingestion does"
    raise DataError(msg)


def _usual_test(source: DataPath) -> DataPath | None:
    return usual_neighbour(source, (("train", "test"),)) if source.is_file() else None


FORMATS: Final[Mapping[str, Format]] = {
    "parquet": _format(_begins_with(b"PAR1", ".parquet", ".pq")),
    "orc": _format(_begins_with(b"ORC", ".orc")),
    "avro": _format(_begins_with(b"Obj\x01", ".avro")),
    "json_lines": _format(_is_text(_is_json_lines, _JSON)),
    "csv": _format(_is_text(_is_csv, _CSV)),
    # Only Spark knows the table's content; the rows are digested after reading.
    "spark_table": _format(lambda look: look.kind == "table", frozenset({"table"}), lambda _, __: ""),
}
