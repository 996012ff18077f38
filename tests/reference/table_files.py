"""Small tables in every format that ingestion reads, and the way from a table to a dataset without Spark."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import fastavro
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest.commit import commit_dataset
from deepspark_ops.ingest.inspect.whole import verify_dataset
from deepspark_ops.ingest.recipe import make_recipe, own_sources
from deepspark_ops.ingest.tables.columns import Column, columns_of
from deepspark_ops.ingest.tables.file_parts import FileTable, parquet_table
from deepspark_ops.ingest.tables.row_files import one_by_one
from deepspark_ops.ingest.tables.table_source import plan_table_source
from deepspark_ops.shards.excluded_rows import kept_rows
from deepspark_ops.shards.manifest import DatasetManifest
from deepspark_ops.shards.table_columns import FeatureColumn, TableColumns
from deepspark_ops.shards.verification import verify

AVRO = {
    pa.int64(): "long",
    pa.float64(): "double",
    pa.string(): "string",
    pa.null(): "null",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.timestamp("ms", "UTC"): {"type": "long", "logicalType": "timestamp-millis"},
    pa.timestamp("us", "UTC"): {"type": "long", "logicalType": "timestamp-micros"},
    pa.timestamp("us"): {"type": "long", "logicalType": "local-timestamp-micros"},
}


def a_table(n_rows: int = 60, seed: int = 0) -> pa.Table:
    """id, group, three features with some missing, a text, a class by name and a number."""
    rng = np.random.default_rng(seed)
    features = rng.normal((3.0, -20.0, 0.1), (1.0, 5.0, 0.01), (n_rows, 3)).round(4)
    missing = rng.random((n_rows, 3)) < 0.1
    columns = {f"f{i}": pa.array(features[:, i], mask=missing[:, i]) for i in range(3)}
    return pa.table(
        {
            "id": np.arange(n_rows) + 1000,
            "customer": [f"c{i % 7}" for i in range(n_rows)],
            **columns,
            "note": ["x"] * n_rows,
            "label": [("cat", "dog", "eel")[i % 3] for i in range(n_rows)],
            "price": rng.normal(100.0, 20.0, n_rows).round(3),
        }
    )


def write_table(path: Path, table: pa.Table) -> Path:
    """Write a table in the format of the ending."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    elif path.suffix == ".orc":
        pa.orc.write_table(table, path)
    elif path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    elif path.suffix == ".jsonl":
        table.to_pandas().to_json(path, orient="records", lines=True, date_format="iso")
    else:
        types = {field.name: AVRO[field.type] for field in table.schema}
        fields = [{"name": name, "type": kind if kind == "null" else ["null", kind]} for name, kind in types.items()]
        with path.open("wb") as handle:
            fastavro.writer(handle, {"type": "record", "name": "row", "fields": fields}, table.to_pylist())
    return path


@dataclass
class PartsTable:
    """A table whose parts are read in turn, as Spark's tasks read parts; see ``Table``."""

    source: Path
    columns: Sequence[Column]
    parts: Sequence[pa.Table] = ()
    files: FileTable | None = None
    batch_rows: int = 16
    was_read: list[Path] = field(default_factory=list)

    def lengths(self, names):
        return [len(self.parts[0][name][0].as_py()) for name in names]

    def over_parts(self, roles, read, batch_rows, dtype, only=None):
        if self.files is None:
            return [read(part.to_batches(self.batch_rows), number) for number, part in enumerate(self.parts)]
        answers = []
        for number, part in enumerate(self.files.parts):
            if only is None or part.file in only:
                self.was_read.append(self.files.files[part.file])
                names = [column.name for column in roles.used()]
                answers.append(read(self.files.batches(part, names, self.batch_rows), number))
        return answers


def ingest_table(config: IngestConfig, tables: Mapping, work: Path, *, goes_on: bool):
    work.mkdir(exist_ok=True)
    config = config.model_copy(update={"full": config.full or not goes_on})
    config, recipe, plan = plan_table_source(config, make_recipe(config), tables, one_by_one, work)
    return commit_dataset(config, recipe, plan, [plan.run(task) for task in plan.tasks[::-1]])


def ingest_parts(
    config: IngestConfig, parts: list[pa.Table], work: Path, *, batch_rows: int = 16, goes_on: bool = False
):
    """Ingest a table of features whose parts are read one after the other; returns the manifests."""
    table = PartsTable(config.source, columns_of(parts[0].schema), parts, batch_rows=batch_rows)
    return ingest_table(config, {"train": table}, work, goes_on=goes_on)


def ingest_files(config: IngestConfig, work: Path, *, goes_on: bool = False) -> tuple[dict, list[Path]]:
    """Ingest Parquet files of a table as Spark's tasks do; returns the manifests, and the files that were read."""
    tables = {}
    for split, source in own_sources(config).items():
        files = parquet_table(source)
        tables[split] = PartsTable(source, columns_of(files.schema), files=files)
    manifests = ingest_table(config, tables, work, goes_on=goes_on)
    return manifests, [path for table in tables.values() for path in table.was_read]


def counted_rows(folder: Path, split: str) -> Sequence[tuple]:
    """Id, label and features of every counted row of a split, as in the table, sorted."""
    manifest = verify(folder / split)
    counted: list[tuple] = []
    for shard in manifest.shards:
        with h5py.File(folder / split / shard.file) as held:
            rows = kept_rows(shard.excluded, shard.n_rows)
            values = manifest.table.restore(held["data"][:][rows]).astype(float).round(4)
            names = held["id"][:][rows] if "id" in held else [b""] * len(rows)
            labels = held["label"][:][rows].reshape(len(rows), -1)
            counted += [
                (str(name), *label, *row)
                for name, label, row in zip(names, labels.tolist(), values.tolist(), strict=True)
            ]
    assert len(counted) == manifest.n_samples
    return sorted(counted)


def require_same_rows(
    grown: Path, ingested_at_once: Path, manifests: Mapping[str, DatasetManifest], also: tuple[str, ...]
) -> None:
    """Compare a dataset that was brought up with a new ingestion, but for what belongs to the first version.

    Args:
        grown: The dataset that was brought up.
        whole: The new one.
        manifests: Of ``whole``, by split.
        also: Fields of a manifest to compare, besides labels, samples, classes, recipe and warnings.
    """
    for split, manifest in manifests.items():
        verified = verify(grown / split)
        for name in ("label_histogram", "n_samples", "class_names", "recipe_sha256", *also):
            assert getattr(verified, name) == getattr(manifest, name), name
        warnings = {kind: count for kind, count in verified.warnings.items() if kind != "drifted_column"}
        assert warnings == manifest.warnings
        assert counted_rows(grown, split) == counted_rows(ingested_at_once, split)
    verify_dataset(grown, lambda _: None)


def without_missing_values(table: pa.Table) -> pa.Table:
    """Return the table without missing values: the mean of the first version fills missing values."""
    for name in ("f0", "f1", "f2"):
        table = table.set_column(table.schema.get_field_index(name), name, table[name].fill_null(1.0))
    return table


def columns_named(*names: str) -> TableColumns:
    """Return columns of a number each, neither filled nor standardised."""
    return TableColumns(
        features=tuple(FeatureColumn(name=name) for name in names),
        labels=("label",),
        label_kind="class",
        missing="refuse",
        is_standardized=False,
        mean=(0.0,) * len(names),
        std=(1.0,) * len(names),
    )
