"""Writes the digits of examples/digits with four labels each as HDF5 files that Caffe's HDF5Data layer reads.

    python examples/multi_label/make_labels.py datasets/digit_labels

The last 360 digits, of other writers than the first, are for the test.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import h5py
import numpy as np

DIGITS = Path(__file__).resolve().parents[1] / "digits"
LABELS = {"even": {0, 2, 4, 6, 8}, "prime": {2, 3, 5, 7}, "above 4": {5, 6, 7, 8, 9}, "has a loop": {0, 6, 8, 9}}
"""Name of a label -> the digits that have it."""
N_TEST = 360


def main(folder: Path) -> None:
    """Write ``train.h5``, ``test.h5`` and the lists of both."""
    images = np.frombuffer(
        gzip.decompress((DIGITS / "digits8x8-images-idx3-ubyte.gz").read_bytes()), np.uint8, offset=16
    )
    digits = np.frombuffer(
        gzip.decompress((DIGITS / "digits8x8-labels-idx1-ubyte.gz").read_bytes()), np.uint8, offset=8
    )
    data = images.reshape(-1, 1, 8, 8).astype(np.float32) / 16  # values are 0 to 16
    labels = np.array([[digit in having for having in LABELS.values()] for digit in digits.tolist()], np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in (("train", slice(None, -N_TEST)), ("test", slice(-N_TEST, None))):
        with h5py.File(folder / f"{split}.h5", "w") as file:
            file["data"], file["labels"] = data[rows], labels[rows]
        (folder / f"{split}.txt").write_text(f"{(folder / f'{split}.h5').resolve()}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
