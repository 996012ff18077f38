"""What the formats of tables share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.files.table_files import digest_table
from deepspark_ops.ingest.records import SourceIndex
from deepspark_ops.ingest.sources.format import Format, Kind, Look, usual_neighbour

TABLE_OPTIONS = frozenset(
    "image_column label_column feature_columns id_column weight_column group_column label_kind standardize missing"
    " query root_folder split_column".split()
)


def table_format(
    looks_like: Callable[[Look], bool],
    *,
    kinds: frozenset[Kind] = frozenset({"file", "folder"}),
    digest: Callable[[IngestConfig, Path], str] = lambda _, source: digest_table(source),
) -> Format:
    """Return the functions of a table's format; its rows are read by Spark."""
    return Format(
        kinds=kinds,
        options=TABLE_OPTIONS,
        looks_like=looks_like,
        digest=digest,
        index=_index,
        usual_test=_usual_test,
    )


def _index(config: IngestConfig, source: Path, _work: Path) -> SourceIndex:
    msg = f"source={source} is a table, whose rows Spark reads; nothing but an ingestion does"
    raise DataError(msg)


def _usual_test(source: Path) -> Path | None:
    return usual_neighbour(source, (("train", "test"),)) if source.is_file() else None
