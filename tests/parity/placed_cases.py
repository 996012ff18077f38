"""Recorded nets and solvers on two logical devices of the CPU beside the plain run of the same.

``python -m tests.parity.placed_cases FOLDER [NAME ...]`` in a process of its own: TensorFlow splits the CPU only before
its first operation. Layers are put on the two devices in turn, so almost every blob crosses. Prints a JSON object: case
-> number of compared arrays, number of arrays equal bit for bit, largest difference as a share of the largest value of
its array.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from caffe_import.devices.compute_plan import ComputePlan, Placement
from caffe_import.net.net_spec import NetSpec
from caffe_import.parity import net_cases, solver_cases
from caffe_import.parity.case import Case, load_cases, run_case
from caffe_import.solver.solver_spec import SolverSpec
from caffe_import.tf_graph.devices import set_up_devices
from caffe_import.tf_graph.gradients import Passes, run_passes
from caffe_import.tf_graph.train_step import StepOutputs, TrainFunction, TrainState, compile_training

DEVICES = ("/device:CPU:0", "/device:CPU:1")
KINDS = ("layer", "net", "solver", "snapshot")


def in_turn(net: NetSpec) -> ComputePlan:
    return ComputePlan(placement=Placement(2, {layer.name: k % 2 for k, layer in enumerate(net.layers)}))


@dataclass
class Comparison:
    n_arrays: int = 0
    n_equal: int = 0
    worst: float = 0.0

    def add(self, plain: Any, placed: Any) -> None:
        if plain is None or placed is None:
            assert plain is placed
            return
        plain, placed = np.asarray(plain), np.asarray(placed)
        self.n_arrays += 1
        if np.array_equal(plain, placed, equal_nan=True):
            self.n_equal += 1
            return
        assert plain.shape == placed.shape
        scale = float(np.abs(plain).max()) or 1.0
        self.worst = max(self.worst, float(np.nanmax(np.abs(plain - placed))) / scale)

    def add_all(self, plain: Mapping[str, Any], placed: Mapping[str, Any]) -> None:
        assert plain.keys() == placed.keys()
        for name, array in plain.items():
            self.add(array, placed[name])


class Trained:
    """A function whose runs are made twice, from one state: plain and placed."""

    def __init__(self, comparison: Comparison, net: NetSpec, solver: SolverSpec, **options: Any) -> None:
        self._comparison = comparison
        self._plain = compile_training(net, solver, **options)
        self._placed = compile_training(net, solver, **{**options, "plan": in_turn(net), "devices": DEVICES})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def run(self, state: TrainState, **arguments: Any) -> tuple[TrainState, StepOutputs]:
        plain_state, report = self._plain.run(state, **arguments)
        layers = {name: np.asarray(value) for name, value in state.layer_state.items()}
        copied_state = replace(
            state, params=np.array(state.params_view()), history=state.history_view(), layer_state=layers
        )
        placed_state, placed = self._placed.run(copied_state, **arguments)
        self._comparison.add(plain_state.params_view(), placed_state.params_view())
        self._comparison.add(plain_state.history_view(), placed_state.history_view())
        self._comparison.add_all(plain_state.layer_state, placed_state.layer_state)
        self._comparison.add(report.losses, placed.losses)
        self._comparison.add(report.grad_norm, placed.grad_norm)
        self._comparison.add_all(report.outputs, placed.outputs)
        return plain_state, report


def compare(case: Case) -> Comparison:
    comparison = Comparison()

    def both(net: NetSpec, *arguments: Any, **options: Any) -> Passes:
        plain = run_passes(net, *arguments, **options)
        placed = run_passes(net, *arguments, **{**options, "plan": in_turn(net), "devices": DEVICES})
        for name in ("loss", "params", "param_gradients"):
            comparison.add(getattr(plain, name), getattr(placed, name))
        for name in ("blobs", "layer_state", "blob_gradients"):
            comparison.add_all(getattr(plain, name), getattr(placed, name))
        return plain

    def trained(net: NetSpec, solver: SolverSpec, **options: Any) -> TrainFunction:
        return Trained(comparison, net, solver, **options)  # type: ignore[return-value]

    net_cases.run_passes = both  # type: ignore[attr-defined]
    solver_cases.compile_training = trained  # type: ignore[attr-defined]
    run_case(case)
    return comparison


def main(folder: str, *names: str) -> None:
    set_up_devices("cpu", 2, n_threads=1)
    comparisons = {
        case.name: vars(compare(case))
        for case in load_cases(Path(folder))
        if case.kind in KINDS and (not names or case.name in names)
    }
    json.dump(comparisons, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
