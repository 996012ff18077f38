"""Small tables in every format that ingestion reads, and the way from a table to a dataset without Spark."""

from pathlib import Path

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest.plan import make_recipe
from deepspark_ops.ingest.tables.arrow_columns import columns_of
from deepspark_ops.ingest.tables.columns import choose_roles
from deepspark_ops.ingest.tables.row_files import write_rows
from deepspark_ops.ingest.tables.table_dataset import commit_table, plan_table, row_recipe, text_classes
from deepspark_ops.ingest.tables.table_shards import run_table_shard
from deepspark_ops.ingest.versions.row_changes import find_table_base

AVRO = {pa.int64(): "long", pa.float64(): "double", pa.string(): "string"}


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
        table.to_pandas().to_json(path, orient="records", lines=True)
    else:
        fields = [{"name": field.name, "type": ["null", AVRO[field.type]]} for field in table.schema]
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
    base = find_table_base(config, recipe.options) if goes_on else None
    plan = plan_table(config, recipe, rows, {"train": found}, work, names, base=base)
    return commit_table(config, recipe, plan, [run_table_shard(task, plan.shared) for task in plan.tasks[::-1]])
