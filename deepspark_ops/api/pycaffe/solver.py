"""Caffe's solvers step by step, for looking: the training net, the test nets, and single updates."""

from __future__ import annotations

import numpy as np

from caffe_import.files.caffemodel import write_caffemodel
from caffe_import.files.solverstate import (
    SolverState,
    history_blobs,
    history_slots,
    read_solverstate,
    write_solverstate,
)
from caffe_import.net.layer_registry import Phase
from caffe_import.net.phases import filter_layers
from caffe_import.proto import caffe_pb2
from caffe_import.solver.loaded_solver import load_solver
from caffe_import.solver.lr_policies import learning_rate, step_counter
from deepspark_ops.api.mistakes import mistakes_as_config_errors
from deepspark_ops.api.pycaffe.defaults import DEFAULTS
from deepspark_ops.api.pycaffe.net import Floats, Net, net_file
from deepspark_ops.api.results.result_folder import StrPath, absolute_local_path
from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.rounds.solver_step import CenterSolver
from deepspark_ops.single_net.passes.net_process import NetProcess
from deepspark_ops.stores.store_path import DataPath


class Solver:
    """pycaffe's solver. ``ds.train`` trains faster, on several workers, and keeps a run.

    Attributes:
        net: The training net.
        test_nets: The test nets; they have the training net's parameters.
        iter: Updates so far.
        param: The solver's checked values.
    """

    def __init__(self, solver: StrPath, *, devices: str | None = None) -> None:
        """Read a solver with the nets, and start from the solver's weights or the nets' fillers.

        Raises:
            ConfigError: A file is missing or damaged, or a net cannot be built.
        """
        path = net_file(solver)
        with mistakes_as_config_errors():
            self._loaded = load_solver(path)
            process = NetProcess(DEFAULTS.chosen_devices(devices))
            train_net = _filtered(self._loaded.train_net, self._loaded.train_state, "TRAIN")
            self.net = Net.of_message(train_net, "TRAIN", process)
            self.test_nets = [
                Net.of_message(_filtered(net, state, "TEST"), "TEST", process, params_of=self.net)
                for net, state in zip(self._loaded.test_nets, self._loaded.test_states, strict=True)
            ]
        self.param = self._loaded.spec
        self.iter = 0
        self._update = CenterSolver.from_spec(self.param, self.net.spec.params)
        n_params = self.net.spec.params.n_params
        self._slots: tuple[Floats, ...] = tuple(np.zeros(n_params, np.float32) for _ in range(self._update.n_slots))
        for weights in self._loaded.weights:
            self.net.copy_from(weights)

    def __repr__(self) -> str:
        """Return kind, updates so far and the net's name."""
        return f"{type(self).__name__}(iter={self.iter}, net={self.net!r})"

    def step(self, count: int) -> None:
        """Make ``count`` updates. Unlike Caffe's this runs no tests and writes no snapshots.

        Raises:
            ConfigError: ``count`` is no whole number from 0 on, or the data are damaged.
        """
        if not isinstance(count, int) or count < 0:
            msg = f"step({count!r}): allowed: whole numbers from 0 on"
            raise ConfigError(msg)
        for _ in range(count):
            self.net.clear_param_diffs()
            for _ in range(self.param.iter_size):
                self.net.forward()
                self.net.backward()
            params = self.net.vectors
            rate = learning_rate(self.param, self.iter)
            self._update.update(params["data"], self._slots, params["diff"], learning_rate=rate, update=self.iter + 1)
            self.iter += 1

    def solve(self) -> None:
        """Make the missing updates up to ``max_iter``."""
        self.step(max(0, self.param.max_iter - self.iter))

    def snapshot(self) -> DataPath:
        """Write weights and state beside each other, as the solver's ``snapshot_prefix`` says; return the weights.

        Raises:
            ConfigError: They cannot be written.
        """
        base = absolute_local_path(f"{self.param.snapshot_prefix}_iter_{self.iter}")
        suffix = ".h5" if self.param.snapshot_format == "HDF5" else ""
        weights, state = (base.with_name(f"{base.name}.{kind}{suffix}") for kind in ("caffemodel", "solverstate"))
        layout = self.net.spec.params
        with mistakes_as_config_errors():
            write_caffemodel(weights, self.net.spec, self.net.vectors["data"])
            slots = np.stack(self._slots) if self._slots else np.zeros((0, layout.n_params), np.float32)
            saved = SolverState(
                self.iter, str(weights), step_counter(self.param, self.iter), history_blobs(layout, slots)
            )
            write_solverstate(state, saved)
        return weights

    def restore(self, state: StrPath) -> None:
        """Go on from a ``.solverstate`` and the state's weights.

        Raises:
            ConfigError: A file is missing, damaged or of another net.
        """
        path = absolute_local_path(state)
        with mistakes_as_config_errors():
            saved = read_solverstate(path)
            slots = history_slots(self.net.spec.params, saved.history, n_slots=len(self._slots), where=str(path))
        if saved.learned_net:
            self.net.copy_from(saved.learned_net)
        for slot, values in zip(self._slots, slots, strict=True):
            slot[...] = values
        self.iter = saved.iteration

    def close(self) -> None:
        """Close the data, and end the nets' process."""
        for net in (self.net, *self.test_nets):
            net.close()


def _filtered(net: caffe_pb2.NetParameter, state: caffe_pb2.NetState, phase: Phase) -> caffe_pb2.NetParameter:
    return filter_layers(net, phase=phase, level=state.level, stages=tuple(state.stage))
