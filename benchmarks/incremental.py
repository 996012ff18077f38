"""Measure ingestion of a grown source: ``python benchmarks/incremental.py --json``.

The command ingests 100,000 JPEGs of 32x32. Then the source gets 50 more, and the same command runs again. ``added_s``
is the median of the command's seconds for the 50 more, with the start of the process. ``unchanged_s`` is likewise for
an unchanged source, and ``whole_s`` for the first ingestion.

The same follows with a folder of Parquet files: ``--rows`` (1,000,000) x 50 floats, and another file of 1,000 rows. The
figures are ``table_added_s`` and so on. ``added_ratio`` and ``table_added_ratio`` are shares of ``whole_s``. stderr
shows the progress. The benchmark takes about a minute on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[1]
N_ADDED = 50
ROWS_ADDED = 1_000
ROUNDS = 2
_A_FOLDER = 1_000
_A_FILE = 50_000
_COLUMNS = 50

Grow = Callable[[Path, int, int, np.random.Generator], None]


def main() -> None:
    """Make, ingest, add, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100_000, help="number of images; 0: none")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table; 0: none")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures: dict[str, float] = {}
    if options.images:
        figures |= {
            "images": options.images,
            **measure("list.txt", grow_images, options.images, N_ADDED, options.rounds),
        }
    if options.rows:
        of_table = measure("table", grow_table, options.rows, ROWS_ADDED, options.rounds)
        figures |= {f"table_{name}": value for name, value in {"rows": options.rows, **of_table}.items()}
    if options.json:
        print(json.dumps(figures, indent=1))
        return
    for name, value in figures.items():
        print(f"{name:20} {value:,.3g}" if isinstance(value, float) else f"{name:20} {value:,}")


def measure(source: str, grow: Grow, n_first: int, n_added: int, rounds: int) -> dict[str, float]:
    """Return the seconds of each step.

    Args:
        source: Name of the source in a folder.
        grow: Function that writes records from a number to another.
        n_first: Records of the first ingestion.
        n_added: Records of each later ingestion.
        rounds: Number of later ingestions.
    """
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="deepspark-") as name:
        folder = Path(name)
        grow(folder, 0, n_first, rng)
        _say(f"{source}: {n_first:,} records made")
        whole_s = ingest_seconds(folder, source)
        _say(f"{source}: ingested in {whole_s:.1f} s")
        added, unchanged = [], []
        for turn in range(rounds):
            grow(folder, n_first + turn * n_added, n_first + (turn + 1) * n_added, rng)
            added.append(ingest_seconds(folder, source))
            unchanged.append(ingest_seconds(folder, source))
            _say(f"{source}: {n_added:,} more in {added[-1]:.1f} s, nothing new in {unchanged[-1]:.1f} s")
    return {
        "whole_s": whole_s,
        "added_s": median(added),
        "unchanged_s": median(unchanged),
        "added_ratio": median(added) / whole_s,
    }


def grow_images(folder: Path, start: int, stop: int, rng: np.random.Generator) -> None:
    """Write images [start, stop) and a list of all."""
    for number in range(start, stop):
        path = folder / name_of(number)
        if number % _A_FOLDER == 0:
            path.parent.mkdir()
        pixels = rng.integers(0, 255, (8, 8, 3), dtype=np.uint8).repeat(4, 0).repeat(4, 1)
        path.write_bytes(cv2.imencode(".jpg", pixels)[1].tobytes())
    (folder / "list.txt").write_text("".join(f"{name_of(number)} {number % 10}\n" for number in range(stop)))


def name_of(number: int) -> str:
    """Return the path of an image below the folder."""
    return f"{number // _A_FOLDER}/{number}.jpg"


def grow_table(folder: Path, start: int, stop: int, rng: np.random.Generator) -> None:
    """Write rows [start, stop) as part files of a table."""
    (folder / "table").mkdir(exist_ok=True)
    for first in range(start, stop, _A_FILE):
        n_rows = min(_A_FILE, stop - first)
        columns = {f"f{i}": rng.standard_normal(n_rows, np.float32) for i in range(_COLUMNS)}
        table = pa.table({"id": np.arange(first, first + n_rows), **columns, "label": rng.integers(0, 10, n_rows)})
        pq.write_table(table, folder / "table" / f"part-{first:09d}.parquet", use_dictionary=["label"])


def ingest_seconds(folder: Path, source: str) -> float:
    """Run the command and return the seconds."""
    command = [sys.executable, "-m", "deepspark_ops.command.cli", "ingest", source, "--output", "set"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    started = time.monotonic()
    completed = subprocess.run(
        command, cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=3600
    )
    if completed.returncode:
        sys.exit(f"{' '.join(command)}: exit code {completed.returncode}\n{completed.stderr[-2000:]}")
    return time.monotonic() - started


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
