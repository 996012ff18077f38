"""Nets compiled once for all workers and runs in this process, as the virtual cluster shares nets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields

import pytest

from caffe_import.net.net_spec import NetSpec
from caffe_import.solver.solver_spec import SolverSpec
from caffe_import.tf_graph.devices import ReadyDevices
from deepspark_ops.simulation import virtual_run
from deepspark_ops.train.setup.run import Run
from deepspark_ops.train.worker.net import tf_model
from deepspark_ops.train.worker.net.tf_model import CompiledNets, compile_nets
from deepspark_ops.train.worker.rates.measured_rates import rate_groups

_OF_THE_RUN = {"message", "snapshot", "snapshot_prefix"}
"""Fields of a solver that differ from run to run and are no part of its graph."""


@contextmanager
def nets_compiled_once() -> Iterator[None]:
    """Compile a net once for the runs of equal nets, solvers, plans and devices. A compiled net holds no state."""
    compiled: dict[object, CompiledNets] = {}
    lock = threading.Lock()

    def shared(run: Run, devices: ReadyDevices) -> CompiledNets:
        nets = tuple(map(_key_of_net, (run.train_net, *run.test_nets)))
        key = (nets, _key_of_solver(run.solver), repr(run.plan), devices, bool(rate_groups(run)))
        with lock:
            if key not in compiled:
                compiled[key] = compile_nets(run, devices)
            return compiled[key]

    with pytest.MonkeyPatch.context() as patch:
        for module in (tf_model, virtual_run):
            patch.setattr(module, "compile_nets", shared)
        yield


def _key_of_net(net: NetSpec) -> object:
    layers = tuple(layer.message.SerializeToString(deterministic=True) for layer in net.layers)
    return layers, net.phase, tuple(net.inputs.items()), net.force_backward, net.debug_info


def _key_of_solver(solver: SolverSpec) -> object:
    return tuple(getattr(solver, field.name) for field in fields(solver) if field.name not in _OF_THE_RUN)
