"""A small valid source of every format of raw data, each in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import h5py
import numpy as np

from tests.paths import FIXTURES
from tests.reference.raw_sources import image_bgr, write_cifar, write_idx, write_images
from tests.reference.table_files import a_table, write_table

N_CLASSES: Final = 3


def _idx(folder: Path) -> Path:
    write_idx(folder / "train-labels-idx1-ubyte", np.arange(6) % N_CLASSES)
    return write_idx(folder / "train-images-idx3-ubyte", np.zeros((6, 4, 4)))


def _cifar(folder: Path) -> Path:
    write_cifar(folder / "data_batch_1.bin", [0, 1, 2, 0])
    return folder


def _hdf5(folder: Path) -> Path:
    with h5py.File(folder / "a.h5", "w") as file:
        file["data"] = np.zeros((6, 3, 4, 4), np.float32)
        file["label"] = np.arange(6) % N_CLASSES
    return folder / "a.h5"


def _class_folders(folder: Path) -> Path:
    import cv2

    for number in range(6):
        image = folder / f"class{number % N_CLASSES}" / f"{number}.png"
        image.parent.mkdir(exist_ok=True)
        cv2.imwrite(str(image), image_bgr(number))
    return folder


def _table(ending: str, folder: Path) -> Path:
    return write_table(folder / f"a.{ending}", a_table(9))


EXAMPLE_SOURCES: Final[Mapping[str, Callable[[Path], Path]]] = {
    "caffe_lmdb": lambda _: FIXTURES / "caffe" / "data" / "lmdb_raw",
    "caffe_leveldb": lambda _: FIXTURES / "caffe" / "data" / "leveldb_raw",
    "cifar_binary": _cifar,
    "hdf5": _hdf5,
    "tfrecord": lambda _: FIXTURES / "tfrecord" / "raw.tfrecords",
    "sequence_file": lambda _: FIXTURES / "sequence_file" / "datum_none.seq",
    "parquet": partial(_table, "parquet"),
    "orc": partial(_table, "orc"),
    "avro": partial(_table, "avro"),
    "json_lines": partial(_table, "jsonl"),
    "csv": partial(_table, "csv"),
    "spark_table": lambda _: Path("table:shop.customers"),
    "idx": _idx,
    "class_folders": _class_folders,
    "image_list": lambda folder: write_images(folder, 6, n_classes=N_CLASSES),
}
"""Format -> writes such a source into an empty folder and returns its path; fixtures stay where they are."""
