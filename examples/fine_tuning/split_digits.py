"""Writes the digits 0 to 4 and the digits 5 to 9 as two sources of their own, IDX files with labels from 0 to 4.

python examples/fine_tuning/split_digits.py FOLDER
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np

DIGITS = Path(__file__).resolve().parents[1] / "digits"
SIDE = 8


def main(folder: Path) -> None:
    """Write ``base`` and ``new``, images and labels of each, into a folder."""
    with gzip.open(DIGITS / "digits8x8-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, SIDE, SIDE)
    with gzip.open(DIGITS / "digits8x8-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    folder.mkdir(parents=True, exist_ok=True)
    for name, first in (("base", 0), ("new", 5)):
        rows = (labels >= first) & (labels < first + 5)
        write_idx(folder / f"{name}-images-idx3-ubyte", images[rows])
        write_idx(folder / f"{name}-labels-idx1-ubyte", labels[rows] - first)


def write_idx(path: Path, values: np.ndarray) -> None:
    """Write uint8 values as an IDX file."""
    extents = np.array(values.shape, ">u4").tobytes()
    path.write_bytes(bytes([0, 0, 8, values.ndim]) + extents + values.astype(np.uint8).tobytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
