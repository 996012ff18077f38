"""Small tables in every format that ingestion reads, and the way from a table to a dataset without Spark."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from deepspark_ops.ingest.plan import make_recipe, own_sources
from deepspark_ops.ingest.tables.arrow_columns import columns_of
from deepspark_ops.ingest.tables.columns import choose_roles
from deepspark_ops.ingest.tables.file_parts import parquet_table
from deepspark_ops.ingest.tables.known_files import KnownFiles, find_known_files, look_at_files
from deepspark_ops.ingest.tables.planning.classes import text_classes
from deepspark_ops.ingest.tables.planning.row_recipe import row_recipe
from deepspark_ops.ingest.tables.planning.spread import one_by_one
from deepspark_ops.ingest.tables.planning.table_plan import WhatWasRead, plan_read_table, plan_table
from deepspark_ops.ingest.tables.row_files import write_rows
from deepspark_ops.ingest.versions.base import find_base
from deepspark_ops.shards.excluded_rows import kept_rows
from deepspark_ops.shards.manifest import DatasetManifest
from deepspark_ops.shards.reader import verify
from deepspark_ops.shards.table_columns import FeatureColumn, TableColumns

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
    """Write it in the format that the ending names."""
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


def ingest_parts(
    config: IngestConfig, parts: list[pa.Table], work: Path, *, batch_rows: int = 16, goes_on: bool = False
):
    """Ingest a table of features whose parts are read one after the other; returns the manifests."""
    work.mkdir(exist_ok=True)
    config = config.model_copy(update={"shard_format": "hdf5"})
    roles = choose_roles(config, columns_of(parts[0].schema))
    widths = [len(parts[0][column.name][0].as_py()) if column.kind == "numbers" else 1 for column in roles.features]
    rows = row_recipe(config, roles, widths)
    found = [write_rows(part.to_batches(batch_rows), rows, work, i) for i, part in enumerate(parts)]
    found = [type(part).from_json(part.to_json()) for part in found]
    names = text_classes(found) if roles.labels[0].kind == "text" else ()
    recipe = make_recipe(config)
    base = find_base(config, recipe.options, of_table=True) if goes_on else None
    plan = plan_table(config, recipe, rows, {"train": found}, work, names, base=base)
    return commit_dataset(config, recipe, plan, [plan.run(task) for task in plan.tasks[::-1]])


def ingest_files(config: IngestConfig, work: Path, *, goes_on: bool = False) -> tuple[dict, list[Path]]:
    """Ingest Parquet files of a table as Spark's tasks do; returns the manifests, and the files that were read."""
    work.mkdir(exist_ok=True)
    config = config.model_copy(update={"shard_format": "hdf5"})
    tables = {split: parquet_table(source) for split, source in own_sources(config).items()}
    now = {split: look_at_files(source, tables[split].files) for split, source in own_sources(config).items()}
    roles = choose_roles(config, columns_of(tables["train"].schema))
    rows = row_recipe(config, roles, [1] * len(roles.features))
    is_text = roles.labels[0].kind == "text"
    was_read: list[Path] = []

    def read(known: KnownFiles | None) -> WhatWasRead:
        parts, names = {}, ()
        for split, table in tables.items():
            own = rows if split == "train" else replace(rows, split=split, class_names=names)
            found = [] if known is None else known.parts(split)
            for number, part in enumerate(table.parts):
                if known is None or part.file in known.to_read(split):
                    batches = table.batches(part, [column.name for column in roles.used()], 16)
                    found.append(replace(write_rows(batches, own, work, number), file=part.file))
                    was_read.append(table.files[part.file])
            parts[split] = sorted(found, key=lambda part: (part.file, part.part))
            names = text_classes(parts["train"]) if is_text else ()
        return WhatWasRead(rows, parts, names)

    recipe = make_recipe(config)
    base = find_base(config, recipe.options, of_table=True) if goes_on else None
    known = find_known_files(config, base, now)
    plan = plan_read_table(config, recipe, read(known), work, one_by_one, base, now, known, read)
    return commit_dataset(config, recipe, plan, [plan.run(task) for task in plan.tasks]), was_read


def counted_rows(folder: Path, split: str) -> Sequence[tuple]:
    """Id, label and features as the table has them, of every row of a split that counts, sorted."""
    manifest = verify(folder / split)
    found: list[tuple] = []
    for shard in manifest.shards:
        with h5py.File(folder / split / shard.file) as held:
            rows = kept_rows(shard.excluded, shard.n_rows)
            values = manifest.table.restore(held["data"][:][rows]).astype(float).round(4)
            names = held["id"][:][rows] if "id" in held else [b""] * len(rows)
            labels = held["label"][:][rows].reshape(len(rows), -1)
            found += [
                (str(name), *label, *row)
                for name, label, row in zip(names, labels.tolist(), values.tolist(), strict=True)
            ]
    assert len(found) == manifest.n_samples
    return sorted(found)


def require_same_rows(
    grown: Path, whole: Path, manifests: Mapping[str, DatasetManifest], also: tuple[str, ...]
) -> None:
    """Compare a dataset that was brought up with a new ingestion, but for what belongs to the first version.

    Args:
        grown: The dataset that was brought up.
        whole: The new one.
        manifests: Of ``whole``, by split.
        also: Fields of a manifest to compare, besides labels, samples, classes, recipe and warnings.
    """
    for split, manifest in manifests.items():
        found = verify(grown / split)
        for name in ("label_histogram", "n_samples", "class_names", "recipe_sha256", *also):
            assert getattr(found, name) == getattr(manifest, name), name
        kept = {kind: count for kind, count in found.warnings.items() if kind != "drifted_column"}
        assert kept == manifest.warnings
        assert counted_rows(grown, split) == counted_rows(whole, split)
    verify_dataset(grown, lambda _: None)


def without_missing_values(table: pa.Table) -> pa.Table:
    """Return it without missing values: those are filled by the mean, which is that of the first version."""
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
