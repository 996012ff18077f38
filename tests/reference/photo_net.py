"""A net of one inner product and a solver, for ``s3_server.photos``: two classes, images of 16x16 from a dataset."""

from __future__ import annotations

from pathlib import Path

_NET = """
name: "two_classes"
layer { name: "d" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  data_param { source: "x" batch_size: 10 backend: LMDB } transform_param { scale: 0.004%s } }
layer { name: "d" type: "Data" top: "data" top: "label" include { phase: TEST }
  data_param { source: "x" batch_size: 9 backend: LMDB } transform_param { scale: 0.004%s } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
_SOLVER = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: %d display: 20 random_seed: 1'


def write_photo_solver(folder: Path, *, max_iter: int, has_mean_file: bool = False) -> Path:
    """Write net and solver into ``folder``; ``has_mean_file``: subtract the dataset's mean image."""
    mean_file = ' mean_file: "m"' if has_mean_file else ""
    (folder / "net.prototxt").write_text(_NET % (mean_file, mean_file))
    solver = folder / "solver.prototxt"
    solver.write_text(_SOLVER % max_iter)
    return solver
