"""Solvers, nets and data of a regression and a segmentation, so small that a run takes seconds."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np

from tests.e2e.small_example import SOLVER

REGRESSION: Final = """
name: "small_regression"
layer { name: "d" type: "HDF5Data" top: "data" top: "label" include { phase: TRAIN }
  hdf5_data_param { source: "none/train" batch_size: 32 } }
layer { name: "d" type: "HDF5Data" top: "data" top: "label" include { phase: TEST }
  hdf5_data_param { source: "none/test" batch_size: 20 } }
layer { name: "price" type: "InnerProduct" bottom: "data" top: "price"
  inner_product_param { num_output: 1 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "price" bottom: "label" top: "loss" }
"""
SEGMENTATION: Final = """
name: "small_segmentation"
layer {{ name: "d" type: "HDF5Data" top: "data" top: "mask" include {{ phase: TRAIN }}
  hdf5_data_param {{ source: "{train}" batch_size: 16 }} }}
layer {{ name: "d" type: "HDF5Data" top: "data" top: "mask" include {{ phase: TEST }}
  hdf5_data_param {{ source: "{test}" batch_size: 10 }} }}
layer {{ name: "pixels" type: "Convolution" bottom: "data" top: "pixels"
  convolution_param {{ num_output: 2 kernel_size: 3 pad: 1 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "pixels" bottom: "mask" top: "loss" }}
"""
OVERRIDES: Final = "max_iter: 40 snapshot: 40 test_interval: 40 display: 20 base_lr: 0.01"
SIDE: Final = 12


def write_regression(folder: Path) -> dict[str, Any]:
    """Write a table of 200 rows with its net, and return the parameters of a run."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(200, 3))
    with (folder / "prices.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "f1", "f2", "f3", "price"])
        writer.writerows([at, *row.tolist(), float(row @ (1.0, -2.0, 0.5))] for at, row in enumerate(rows))
    return _conf(folder, REGRESSION, source=str(folder / "prices.csv"), feature_columns="f*", label_column="price")


def write_segmentation(folder: Path) -> dict[str, Any]:
    """Write pictures with a bright square each, whose pixels are class 1, and return the parameters of a run."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(2)
    for split, n in (("train", 64), ("test", 20)):
        data = rng.uniform(0, 0.3, (n, 1, SIDE, SIDE)).astype(np.float32)
        mask = np.zeros((n, 1, SIDE, SIDE), np.float32)
        for sample, (row, column) in enumerate(rng.integers(0, SIDE - 4, (n, 2))):
            area = np.s_[sample, 0, row : row + 4, column : column + 4]
            data[area] += 0.7
            mask[area] = 1
        with h5py.File(folder / f"{split}.h5", "w") as file:
            file["data"], file["mask"] = data, mask
        (folder / f"{split}.txt").write_text(f"{folder / split}.h5\n")
    net = SEGMENTATION.format(train=folder / "train.txt", test=folder / "test.txt")
    return _conf(folder, net, source=None)


def _conf(folder: Path, net: str, **options: Any) -> dict[str, Any]:
    (folder / "net.prototxt").write_text(net)
    (folder / "solver.prototxt").write_text(SOLVER.format(net=folder / "net.prototxt"))
    few = {"overrides": OVERRIDES, "n_workers": 1, "devices": "cpu", "formats": "saved_model,caffe"}
    return {"solver": str(folder / "solver.prototxt"), **few, **options}
