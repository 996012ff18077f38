"""Whole runs whose workers compute on the second logical device of the CPU: ``python -m`` with the name of this file.

The device stands for a GPU: what is on it must be copied. TensorFlow splits the CPU only before its first operation.
Prints a JSON object.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from caffe_import.files.caffemodel import read_caffemodel
from caffe_import.files.solverstate import read_solverstate
from caffe_import.tf_graph import predict
from caffe_import.tf_graph.devices import ReadyDevices, set_up_devices
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.train.worker import process
from tests.integration.train.in_process import CAFFE, Finished, run_in_process
from tests.reference.device_copies import counted_copies

SOLVER = Path("solvers/sgd_testnet/solver.prototxt")
HOST = ReadyDevices("cpu", (), "the host")
DEVICE = ReadyDevices("gpu", ("/device:CPU:1",), "not the host")


def run_on(devices: ReadyDevices, run_dir: Path, **options: Any) -> tuple[Finished, dict[str, Any]]:
    process.set_up_worker = lambda assigned, *_: (devices, assigned)
    fields: dict[str, Any] = {
        "solver": SOLVER,
        "overrides": "display: 1 max_iter: 40 snapshot: 20 random_seed: 5 test_interval: 20",
        "run_dir": run_dir,
        "n_workers": 1,
        "comm_period": 10,
    }
    with counted_copies(predict) as copies:
        finished = run_in_process(TrainConfig(**{**fields, **options}))
    n_params = finished.prepared.run.train_net.params.n_params
    reads = zip(copies.to_host, copies.readers, strict=True)
    net, moves = finished.prepared.run.train_net, zip(copies.to_device, copies.movers, strict=True)
    batch_bytes = max(4 * prod(shape) for shape in net.inputs.values())
    losses = sorted((event.clock, event.data["loss"]) for event in finished.events("loss"))
    return finished, {
        "endings": [outcome.ending for outcome in finished.outcomes],
        "messages": [outcome.message for outcome in finished.outcomes],
        "n_tests": len(finished.events("evaluation")),
        "n_exchanges": sum(outcome.exchanges for outcome in finished.outcomes),
        "vectors_to_device": copies.to_device.count(4 * n_params),
        "vectors_to_host": copies.to_host.count(4 * n_params),
        "vector_readers": sorted({reader.split("_")[0] for size, reader in reads if size == 4 * n_params}),
        "batch_movers": sorted({mover.split("_")[0] for size, mover in moves if size == 10 * batch_bytes}),
        "sent": copies.sent,
        "losses": [loss for _, loss in losses],
    }


def main() -> None:
    set_up_devices("cpu", 2, n_threads=1)
    os.chdir(CAFFE)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        plain, of_plain = run_on(HOST, work / "plain")
        finished, of_device = run_on(DEVICE, work / "device")
        _, of_overlap = run_on(DEVICE, work / "overlap", n_workers=2, overlap=True)
        same = {
            "center": bool(np.array_equal(plain.center, finished.center)),
            "losses": of_plain["losses"] == of_device["losses"],
            "snapshots": _snapshots(work / "plain") == _snapshots(work / "device") != {},
        }
    json.dump({"plain": of_plain, "device": of_device, "overlap": of_overlap, "same": same}, sys.stdout)


def _snapshots(run_dir: Path) -> dict[str, list[bytes]]:
    """Return the numbers of each file; the name of the run's folder is in a state, too."""
    arrays = {}
    for path in (run_dir / "snapshots").iterdir():
        if path.suffix == ".caffemodel":
            arrays[path.name] = [blob.tobytes() for blobs in read_caffemodel(path).values() for blob in blobs]
        if path.suffix == ".solverstate":
            arrays[path.name] = [blob.tobytes() for blob in read_solverstate(path).history]
    return arrays


if __name__ == "__main__":
    main()
