"""Writes pairs of the digits of examples/digits as HDF5 files that Caffe's HDF5Data layer reads.

    python examples/siamese/make_pairs.py datasets/digit_pairs

A pair is a picture of two channels, as in Caffe's example, and 1 if both show the same digit, else 0; half of the pairs
do. Pairs of the test are of the last 360 digits, which are of other writers than the first.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import h5py
import numpy as np

DIGITS = Path(__file__).resolve().parents[1] / "digits"
N_TEST = 360
N_PAIRS = {"train": 6400, "test": 1000}


def main(folder: Path) -> None:
    """Write ``train.h5``, ``test.h5`` and the lists of both."""
    images = np.frombuffer(
        gzip.decompress((DIGITS / "digits8x8-images-idx3-ubyte.gz").read_bytes()), np.uint8, offset=16
    )
    digits = np.frombuffer(
        gzip.decompress((DIGITS / "digits8x8-labels-idx1-ubyte.gz").read_bytes()), np.uint8, offset=8
    )
    data = images.reshape(-1, 8, 8).astype(np.float32) / 16  # values are 0 to 16
    generator = np.random.default_rng(1)
    folder.mkdir(parents=True, exist_ok=True)
    n_train = len(data) - N_TEST
    for split, rows in (("train", np.arange(n_train)), ("test", np.arange(n_train, len(data)))):
        first = generator.choice(rows, N_PAIRS[split])
        is_same_class = np.arange(N_PAIRS[split]) % 2 == 0
        candidates = {digit: (rows[digits[rows] == digit], rows[digits[rows] != digit]) for digit in range(10)}
        second = np.array(
            [
                generator.choice(candidates[digit][0 if is_same else 1])
                for digit, is_same in zip(digits[first].tolist(), is_same_class.tolist(), strict=True)
            ]
        )
        with h5py.File(folder / f"{split}.h5", "w") as file:
            file["pair_data"] = np.stack([data[first], data[second]], axis=1)
            file["sim"] = is_same_class.astype(np.float32)[:, None]
        (folder / f"{split}.txt").write_text(f"{(folder / f'{split}.h5').resolve()}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
