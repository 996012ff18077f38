"""Ingest with and without Spark: ``python benchmarks/ingest_engine.py [--json] [--images 100,...] [--rows 1000,...]``.

Runs ``deepspark ingest`` with ``--engine process`` and ``--engine spark`` in turns. Each run is a new process with a
new output, and the start counts. The images are JPEGs of 500x375 pixels in ten class folders, resized to 256x256. The
benchmark draws 200 pictures; the others are hard links. The tables are Parquet files of 20 numbers and a class.
``auto`` reads Parquet without Spark up to 32 MiB.

``ratio``: wall time of process / wall time of spark, median of the rounds. Below 1 the process is faster. ``crossing``:
the number of images with ratio 1, interpolated by logarithms between two measured numbers. Other programs slow both
runs of a round alike. Spark has all cores (``local[*]``).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[1]
ENGINES: Final = ("process", "spark")
_SHAPE: Final = (375, 500, 3)
_N_DRAWN: Final = 200
_N_CLASSES: Final = 10
_N_COLUMNS: Final = 20
_IMAGE_OPTIONS: Final = ("--resize-height", "256", "--resize-width", "256")
_LONGEST_S: Final = 3600


def main() -> None:
    """Make the sources, ingest each with both engines, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--images", type=_numbers, default=(100, 300, 1_000, 3_000, 10_000), help="numbers of images; 0: none"
    )
    parser.add_argument("--rows", type=_numbers, default=(1_000, 100_000), help="rows of the tables; 0: none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deepspark-") as name:
        folder = Path(name)
        drawn = draw_pictures(folder / "drawn") if options.images else []
        sources = {("images", n): link_pictures(folder / f"images{n}", drawn, n) for n in options.images}
        sources |= {("tables", n): write_table(folder / f"{n}.parquet", n) for n in options.rows}
        seconds = measure(sources, options.rounds)
    report: dict[str, Any] = {"images": {}, "tables": {}}
    for (kind, number), of_engines in seconds.items():
        ratios = [of_process / of_spark for of_process, of_spark in zip(*of_engines.values(), strict=True)]
        medians = {f"{engine}_s": median(values) for engine, values in of_engines.items()}
        report[kind][number] = {**medians, "ratio": median(ratios)}
    report["crossing"] = crossing({number: of_number["ratio"] for number, of_number in report["images"].items()})
    if options.json:
        sys.stdout.write(json.dumps(report, indent=1) + "\n")
        return
    for source in ("images", "tables"):
        for number, of_number in report[source].items():
            shown = "  ".join(f"{name} {value:8.2f}" for name, value in of_number.items())
            sys.stdout.write(f"{source:8} {number:9,}  {shown}\n")
    sys.stdout.write(f"crossing: {report['crossing']}\n")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(number for number in map(int, text.split(",")) if number)


def draw_pictures(folder: Path) -> list[Path]:
    """Write different JPEGs of smoothed noise, as large as photographs."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    paths = []
    for number in range(_N_DRAWN):
        pixels = cv2.GaussianBlur(rng.integers(0, 256, _SHAPE, dtype=np.uint8), (0, 0), 2)
        paths.append(folder / f"{number}.jpg")
        paths[-1].write_bytes(cv2.imencode(".jpg", pixels)[1].tobytes())
    return paths


def link_pictures(folder: Path, drawn: Sequence[Path], n_images: int) -> Path:
    """Return a folder of class folders with ``n_images`` hard links to the pictures."""
    for label in range(_N_CLASSES):
        (folder / str(label)).mkdir(parents=True)
    for number in range(n_images):
        os.link(drawn[number % len(drawn)], folder / str(number % _N_CLASSES) / f"{number}.jpg")
    return folder


def write_table(path: Path, n_rows: int) -> Path:
    """Return a file of numbers and a class."""
    rng = np.random.default_rng(0)
    columns = {f"f{i}": rng.standard_normal(n_rows, np.float32) for i in range(_N_COLUMNS)}
    pq.write_table(pa.table({**columns, "label": rng.integers(0, _N_CLASSES, n_rows)}), path)
    return path


def measure(sources: Mapping[tuple[str, int], Path], rounds: int) -> dict[tuple[str, int], dict[str, list[float]]]:
    """Return source -> engine -> seconds of each round; a round takes every source once with each engine."""
    seconds: dict[tuple[str, int], dict[str, list[float]]] = {key: {name: [] for name in ENGINES} for key in sources}
    for turn in range(rounds):
        for key, source in sources.items():
            for engine in ENGINES:
                output = source.with_name(f"{source.name}-{engine}")
                options = _IMAGE_OPTIONS if key[0] == "images" else ()
                seconds[key][engine].append(ingest_seconds(source, output, engine, options))
                shutil.rmtree(output)
                sys.stderr.write(f"round {turn + 1}: {source.name} {engine}: {seconds[key][engine][-1]:.1f} s\n")
                sys.stderr.flush()
    return seconds


def ingest_seconds(source: Path, output: Path, engine: str, options: Sequence[str]) -> float:
    """Run the command and return the seconds."""
    command = [sys.executable, "-m", "deepspark_ops.command.cli", "ingest", str(source), "--output", str(output)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    started = time.monotonic()
    completed = subprocess.run(
        [*command, "--engine", engine, *options],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=_LONGEST_S,
    )
    if completed.returncode:
        sys.exit(f"{' '.join(command)}: exit code {completed.returncode}\n{completed.stderr[-2000:]}")
    return time.monotonic() - started


def crossing(ratios: Mapping[int, float]) -> int | None:
    """Return the number of images with ratio 1; None if no two measured numbers enclose the ratio 1.

    Example:
        >>> crossing({100: 0.5, 1000: 0.5, 10_000: 2.0})
        3162
    """
    numbers = sorted(ratios)
    for low, high in pairwise(numbers):
        if ratios[low] < 1 <= ratios[high]:
            share = -math.log(ratios[low]) / (math.log(ratios[high]) - math.log(ratios[low]))
            return round(low * (high / low) ** share)
    return None


if __name__ == "__main__":
    main()
