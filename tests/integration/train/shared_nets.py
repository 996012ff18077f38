"""Nets compiled once for all workers and lives of a run in this process, as those of the virtual cluster share them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from caffe_import.tf_graph.devices import ReadyDevices
from deepspark_ops.train.setup.run import Run
from deepspark_ops.train.worker import process
from deepspark_ops.train.worker.measured_rates import rate_groups
from deepspark_ops.train.worker.tf_model import CompiledNets, TfModel, compile_nets


@contextmanager
def nets_compiled_once() -> Iterator[None]:
    """Share them among runs whose nets and solvers differ in their type and in where they begin alone."""
    compiled: dict[object, CompiledNets] = {}
    lock = threading.Lock()

    def model(run: Run, *, devices: ReadyDevices, **more: Any) -> TfModel:
        key = (run.solver.type, run.solver.restored_at, len(run.train_net.layers), rate_groups(run))
        with lock:
            nets = compiled.setdefault(key, compiled.get(key) or compile_nets(run, devices))
        return TfModel(run, devices=devices, nets=nets, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "TfModel", model)
        yield
