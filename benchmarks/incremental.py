"""Bringing a dataset up to a source that has grown: ``python benchmarks/incremental.py [--json] [--images N]``.

N small JPEGs (100,000) of 32x32 are made and ingested by the command; then 50 more are added and the same command runs
again, several times. ``added_s`` is the median of what the command took to add them, start of the process included,
``unchanged_s`` of the command on a source that has not changed, ``whole_s`` what the first ingestion took.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import cv2
import numpy as np

ROOT = Path(__file__).parents[1]
N_ADDED = 50
ROUNDS = 3
_A_FOLDER = 1_000


def main() -> None:
    """Make, ingest, add, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deepspark-") as folder:
        found = measure(Path(folder), options.images)
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        print(
            f"{found['images']:,} images as a whole: {found['whole_s']:.1f} s; {N_ADDED} more:"
            f" {found['added_s']:.1f} s; nothing new: {found['unchanged_s']:.1f} s"
        )


def measure(folder: Path, n_images: int) -> dict[str, float]:
    """Return the seconds of each step."""
    rng = np.random.default_rng(0)
    grow(folder, 0, n_images, rng)
    whole = ingest_seconds(folder)
    added, unchanged = [], []
    for turn in range(ROUNDS):
        grow(folder, n_images + turn * N_ADDED, n_images + (turn + 1) * N_ADDED, rng)
        added.append(ingest_seconds(folder))
        unchanged.append(ingest_seconds(folder))
    return {"images": n_images, "whole_s": whole, "added_s": median(added), "unchanged_s": median(unchanged)}


def grow(folder: Path, start: int, stop: int, rng: np.random.Generator) -> None:
    """Write images [start, stop) and a list of all."""
    for number in range(start, stop):
        path = folder / name_of(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 255, (8, 8, 3), dtype=np.uint8).repeat(4, 0).repeat(4, 1)
        path.write_bytes(cv2.imencode(".jpg", pixels)[1].tobytes())
    (folder / "list.txt").write_text("".join(f"{name_of(number)} {number % 10}\n" for number in range(stop)))


def name_of(number: int) -> str:
    """Return the path of an image below the folder."""
    return f"{number // _A_FOLDER}/{number}.jpg"


def ingest_seconds(folder: Path) -> float:
    """Run the command and return how long it took."""
    command = [sys.executable, "-m", "deepspark_ops.command.cli", "ingest", "list.txt", "--output", "set"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    started = time.monotonic()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, timeout=3600)
    return time.monotonic() - started


if __name__ == "__main__":
    main()
