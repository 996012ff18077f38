"""Ingest a table of floats beside Spark that writes the same table as Parquet: ``python benchmarks/tables.py --json``.

The benchmark makes a table of ``--rows`` x ``--columns`` float32 features and a label: Parquet files of normal numbers.
Then two programs take turns, ``--repeat`` times. Spark reads the table and writes Parquet with Spark's defaults.
``deepspark ingest`` makes HDF5 shards of the table: split, shuffled, standardised. Both have the same cores and memory.
The start of Spark does not count: Spark first writes a part of the table. Ingestion's clock runs from the first look at
the table to the last manifest.

``parquet_ratio`` is the rate of ingestion / the rate of writing, median of the pairs. ``largest_task_mib`` is the peak
memory of a Python process of Spark during ingestion. stderr shows the progress. 3,000,000 rows take about eight GB of
disk and six minutes on two cores, mostly for Spark's writing.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest.recipe import make_recipe
from deepspark_ops.ingest.spark_job import ingest_source
from deepspark_ops.ingest.tables.spark_job import logged_progress
from deepspark_ops.processes.spark_context import SparkOnDemand, start_context
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
        # Random numbers hardly repeat: a dictionary would cost as much as everything else.
        pq.write_table(pa.table(columns), folder / f"part-{part:05d}.parquet", use_dictionary=["label"])


def main() -> int:
    """Measure and print a table or JSON. Return 1 if ingestion has less than half the rate of writing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--columns", type=int, default=200)
    parser.add_argument("--cores", type=int, default=2, help="cores of Spark's local master")
    parser.add_argument("--memory", default="3g", help="memory of Spark's Java process")
    parser.add_argument("--repeat", type=int, default=1, help="pairs of writing and ingesting")
    parser.add_argument(
        "--folder", type=Path, help="folder for the table and the datasets; default: a temporary folder"
    )
    options = parser.parse_args()
    logging.basicConfig(stream=sys.stderr, format="%(message)s")
    logging.getLogger("deepspark_ops").setLevel(logging.INFO)
    with tempfile.TemporaryDirectory(prefix="deepspark-tables-", dir=options.folder) as scratch:
        folder = Path(scratch)
        source = folder / "source"
        began = time.monotonic()
        write_source(source, options.rows, options.columns)
        _say(f"the table was made in {time.monotonic() - began:.0f} s")
        properties = {**spark_conf(), "spark.app.name": "tables", "spark.driver.memory": options.memory}
        context = start_context(
            f"local[{options.cores}]", properties, listen_address="127.0.0.1", insecure_network=False
        )
        try:
            _write(context, _first_file(source), folder / "warm")
            peaks = [0]
            pairs = [_pair(context, source, folder, number, peaks) for number in range(options.repeat)]
        finally:
            context.stop()
    result = {
        "rows": options.rows,
        "columns": options.columns,
        "cores": options.cores,
        "parquet_rows_per_s": [round(options.rows / write) for write, _ in pairs],
        "ingest_rows_per_s": [round(options.rows / ingest) for _, ingest in pairs],
        "parquet_ratio": statistics.median(write / ingest for write, ingest in pairs),
        "largest_task_mib": max(peaks),
    }
    if options.json:
        sys.stdout.write(json.dumps(result, indent=1) + "\n")
    else:
        for name, value in result.items():
            sys.stdout.write(f"{name:20} {value}\n")
    return int(result["parquet_ratio"] < 0.5)


def _pair(context: object, source: Path, folder: Path, number: int, peaks: list[int]) -> tuple[float, float]:
    """Return the seconds of writing, then of ingesting; add the memory of tasks in MiB."""
    write = _write(context, source, folder / "written")
    _say(f"pair {number + 1}: written as Parquet in {write:.1f} s")
    began = time.monotonic()
    config = IngestConfig(source=source, output=folder / f"dataset-{number}")
    work = config.output / "work"
    work.mkdir(parents=True)
    with _largest_task(peaks):
        ingest_source(SparkOnDemand.running(context), config, make_recipe(config), work)
    ingest = time.monotonic() - began
    _say(f"pair {number + 1}: ingested in {ingest:.1f} s")
    shutil.rmtree(config.output)
    return write, ingest


def _write(context: object, source: Path, target: Path) -> float:
    """Return the seconds in which Spark reads and writes a table."""
    from pyspark.sql import SparkSession

    began = time.monotonic()
    with logged_progress(context, "Spark writing Parquet"):
        SparkSession(context).read.parquet(str(source)).write.parquet(str(target))
    seconds = time.monotonic() - began
    shutil.rmtree(target)
    return seconds


@contextmanager
def _largest_task(peaks: list[int]) -> Iterator[None]:
    """Record the peak memory in MiB of Spark's Python processes during the block."""
    is_done = threading.Event()

    def look() -> None:
        while not is_done.wait(0.2):
            for status in Path("/proc").glob("[0-9]*/status"):
                with suppress(OSError):
                    if b"pyspark.daemon" in (status.parent / "cmdline").read_bytes() and _is_ours(status):
                        peaks.append(int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]) // 1024)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_done.set()
        watcher.join()


def _is_ours(status: Path) -> bool:
    """Return whether a process descends from this process."""
    while (parent := re.search(r"PPid:\s+(\d+)", status.read_text())[1]) not in ("0", "1"):
        if int(parent) == os.getpid():
            return True
        status = Path("/proc", parent, "status")
    return False


def _first_file(source: Path) -> Path:
    return min(source.iterdir())


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
