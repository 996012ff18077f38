"""Transform cases whose numbers are drawn: planted right and wrong recordings."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from caffe_import.parity.case import Case, run_case

pytestmark = pytest.mark.tf


def status(folder: Path, layer: str, batches: dict[str, np.ndarray]) -> str:
    (folder / "t.prototxt").write_text(layer)
    np.savez(folder / "t.npz", **batches)
    record = {
        "name": "t", "kind": "transform", "phase": "TRAIN", "random": True, "files": ["t.prototxt", "t.npz"],
    }  # fmt: skip
    return run_case(Case(folder, record)).status


@pytest.mark.parametrize(("std", "expected"), [(2.0, "passed"), (1.0, "failed")])
def test_drawn_values_need_the_recorded_mean_and_spread(tmp_path: Path, std: float, expected: str) -> None:
    layer = (
        'layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 40 dim: 20 } '
        f'data_filler {{ type: "gaussian" mean: 1 std: {std} }} }} }}'
    )
    rng = np.random.default_rng(1)
    recorded = {f"batch{k}/x": rng.normal(1, 2, (40, 20)).astype(np.float32) for k in (1, 2)}
    assert status(tmp_path, layer, recorded) == expected


@pytest.mark.parametrize(("moved_label", "expected"), [(0, "passed"), (1, "failed")])
def test_shuffled_rows_keep_their_labels(tmp_path: Path, moved_label: int, expected: str) -> None:
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    labels = np.arange(6, dtype=np.float32)
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["x"], file["y"] = rows, labels
    (tmp_path / "list.txt").write_text("rows.h5\n")
    order = np.array([3, 0, 5, 1])
    layer = (
        'layer { name: "d" type: "HDF5Data" top: "x" top: "y" '
        'hdf5_data_param { source: "list.txt" batch_size: 4 shuffle: true } }'
    )
    recorded = {"batch1/x": rows[order], "batch1/y": labels[np.roll(order, moved_label)]}
    assert status(tmp_path, layer, recorded) == expected
