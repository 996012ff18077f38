"""Ingesting a table of floats beside Spark writing the same table as Parquet. ``python benchmarks/tables.py --json``.

A table of ``--rows`` x ``--columns`` float32 features and a label is made here, as Parquet files of normal numbers.
Then, in turn and as often as ``--repeat`` says, Spark reads it and writes it as Parquet (by its defaults), and what
``deepspark ingest`` runs makes HDF5 shards of it: split, shuffled, standardised. Both have the same cores and memory,
and neither counts Spark's start: ingestion's clock runs from the first look at the table to the last manifest.
``parquet_ratio`` is the rate of ingestion by that of writing, the median of the pairs; stderr says how far it is.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest.plan import make_recipe
from deepspark_ops.ingest.spark_job import ingest_from_table
from deepspark_ops.processes.spark_context import start_context
from deepspark_ops.processes.spark_submit import spark_conf

PART_ROWS = 100_000


def write_source(folder: Path, n_rows: int, n_columns: int) -> None:
    """Write the table, the same on every call."""
    folder.mkdir(parents=True)
    names = [f"f{i}" for i in range(n_columns)]
    for part, start in enumerate(range(0, n_rows, PART_ROWS)):
        rng = np.random.default_rng((1, part))
        rows = min(PART_ROWS, n_rows - start)
        columns = {name: rng.standard_normal(rows, np.float32) * 3 + 1 for name in names}
        columns["label"] = rng.integers(0, 2, rows)
        # Nothing repeats in such numbers: a dictionary of them would cost as much as all the rest.
        pq.write_table(pa.table(columns), folder / f"part-{part:05d}.parquet", use_dictionary=["label"])


def main() -> int:
    """Run it; prints a table or JSON. Returns 1 if ingestion has less than half the rate of writing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--columns", type=int, default=200)
    parser.add_argument("--cores", type=int, default=2, help="of Spark's local master")
    parser.add_argument("--memory", default="3g", help="of Spark's Java process")
    parser.add_argument("--repeat", type=int, default=1, help="pairs of writing and ingesting")
    parser.add_argument(
        "--folder", type=Path, help="where the table and what is made of it go; default: a temporary one"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deepspark-tables-", dir=given.folder) as scratch:
        folder = Path(scratch)
        source = folder / "source"
        began = time.monotonic()
        write_source(source, given.rows, given.columns)
        _say(f"the table was made in {time.monotonic() - began:.0f} s")
        properties = {**spark_conf(), "spark.app.name": "tables", "spark.driver.memory": given.memory}
        context = start_context(f"local[{given.cores}]", properties, listen_address="127.0.0.1", insecure_network=False)
        try:
            pairs = [_pair(context, source, folder, number) for number in range(given.repeat)]
        finally:
            context.stop()
    result = {
        "rows": given.rows,
        "columns": given.columns,
        "cores": given.cores,
        "parquet_rows_per_s": [round(given.rows / write) for write, _ in pairs],
        "ingest_rows_per_s": [round(given.rows / ingest) for _, ingest in pairs],
        "parquet_ratio": statistics.median(write / ingest for write, ingest in pairs),
        "largest_task_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
    }
    if given.json:
        sys.stdout.write(json.dumps(result, indent=1) + "\n")
    else:
        for name, value in result.items():
            sys.stdout.write(f"{name:20} {value}\n")
    return int(result["parquet_ratio"] < 0.5)


def _pair(context: object, source: Path, folder: Path, number: int) -> tuple[float, float]:
    """Return the seconds of writing and of ingesting, one after the other."""
    from pyspark.sql import SparkSession

    began = time.monotonic()
    SparkSession(context).read.parquet(str(source)).write.parquet(str(folder / f"written-{number}"))
    write = time.monotonic() - began
    _say(f"pair {number + 1}: written as Parquet in {write:.0f} s")
    shutil.rmtree(folder / f"written-{number}")
    began = time.monotonic()
    config = IngestConfig(source=source, output=folder / f"dataset-{number}")
    work = config.output / "work"
    work.mkdir(parents=True)
    ingest_from_table(context, config, make_recipe(config), work)
    ingest = time.monotonic() - began
    _say(f"pair {number + 1}: ingested in {ingest:.0f} s")
    shutil.rmtree(config.output)
    return write, ingest


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
