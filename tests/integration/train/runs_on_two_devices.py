"""Whole runs whose workers have two logical devices of the CPU each: ``python -m`` with the dotted name of this file.

Prints a JSON object: run -> its end, and the distance of its snapshots from the plain run's.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from caffe_import.files.caffemodel import read_caffemodel
from caffe_import.files.solverstate import read_solverstate
from caffe_import.parity.findings import relative_error
from caffe_import.tf_graph.devices import set_up_devices
from deepspark_ops.config.train import TrainConfig
from tests.integration.train.in_process import CAFFE, run_in_process
from tests.reference.device_copies import counted_copies

SOLVER = Path("solvers/snap_adam/solver.prototxt")
TWO_PASSES = "iter_size: 2"
PLACEMENT = "*: 0\nip2: 1\nloss: 1\n"


def device_run(run_dir: Path, overrides: str, **options: Any) -> dict[str, Any]:
    config = TrainConfig(
        solver=SOLVER,
        overrides=f"display: 1 snapshot: 10 random_seed: 5 {overrides}",
        run_dir=run_dir,
        n_workers=1,
        devices="cpu",
        **options,
    )
    with counted_copies() as copies:
        finished = run_in_process(config)
    return {
        "is_on_both": any(copies.sent),
        "endings": [(outcome.ending, outcome.message) for outcome in finished.outcomes],
        "first": finished.start.clock,
        "devices": [event.data["text"] for event in finished.events("worker_devices")],
        "losses": [event.data["loss"] for event in finished.events("loss")],
    }


def snapshot_numbers(run_dir: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Return file, layer and index -> blob, for the weights and the history of every snapshot."""
    blobs_of_snapshots = {}
    for path in sorted((run_dir / "snapshots").iterdir()):
        if path.suffix == ".caffemodel":
            blobs = read_caffemodel(path).items()
            blobs_of_snapshots |= {
                f"{path.name} {layer} {k}": blob for layer, held in blobs for k, blob in enumerate(held)
            }
        if path.suffix == ".solverstate":
            blobs_of_snapshots |= {f"{path.name} {k}": blob for k, blob in enumerate(read_solverstate(path).history)}
    return blobs_of_snapshots


def distance(run_dir: Path, plain: Path) -> float:
    """Return the largest relative error of any blob of the snapshots; infinity if they are not of the same blobs."""
    placed, expected = snapshot_numbers(run_dir), snapshot_numbers(plain)
    if placed.keys() != expected.keys():
        return float("inf")
    return max(relative_error(placed[name], expected[name]) for name in expected)


def main() -> None:
    set_up_devices("cpu", 2, n_threads=1)
    os.chdir(CAFFE)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        placement = work / "placement.txt"
        placement.write_text(PLACEMENT)
        plain = device_run(work / "plain", TWO_PASSES)
        runs = {
            "replicas": (work / "replicas", "", {"gpus_per_worker": 2}),
            "placed": (work / "placed", TWO_PASSES, {"gpus_per_worker": 2, "placement": placement}),
            "pushed": (work / "pushed", "", {"gpus_per_worker": 2, "strategy": "sync"}),
        }
        results: dict[str, Any] = {"plain": plain}
        for name, (run_dir, overrides, options) in runs.items():
            interrupted = device_run(run_dir, f"{overrides} max_iter: 10", **options)
            resumed = device_run(run_dir, overrides, **options)
            results[name] = {**resumed, "before": interrupted["endings"], "distance": distance(run_dir, work / "plain")}
        results["n_numbers"] = len(snapshot_numbers(work / "plain"))
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
