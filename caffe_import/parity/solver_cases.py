"""Cases of kind ``solver``: parameters, losses, rates and norms along a recorded run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.parity.case import Case, load_archive
from caffe_import.parity.feeds import NetBatches, sample_shapes
from caffe_import.parity.findings import Findings, members_under
from caffe_import.parity.net_cases import compare_params, params_of
from caffe_import.parity.setting import Bounds
from caffe_import.proto import caffe_pb2
from caffe_import.solver.loaded_solver import LoadedSolver, load_solver
from caffe_import.tf_graph.builder import initial_layer_state
from caffe_import.tf_graph.predict import compile_forward
from caffe_import.tf_graph.train_step import StepOutputs, TrainFunction, TrainState, compile_training

Array = npt.NDArray[Any]


def run(case: Case, findings: Findings) -> None:
    """Train as the case's solver says, from the initial parameters, and compare at every recorded iteration."""
    archive = load_archive(case.file("trajectory.npz"))
    loaded = load_solver(case.file("solver.prototxt"))
    net = training_net(loaded)
    train = compiled(net, loaded, findings)
    state = train.initial_state(params_of(net, members_under(archive, "init")))
    tests = _TestRuns(loaded, archive, findings.setting.device) if "test" in archive else None
    with NetBatches(net) as batches, tests or nullcontext():
        if tests:
            findings.agree("test_columns", tests.columns, json.loads(str(archive["test_columns"])))
            tests.compare(0, net, state, findings)
        reports = []
        for iteration, reached, report in trajectory(train, batches, state, 0, milestones(archive, "")):
            compare_params(
                net,
                reached.params_view(),
                members_under(archive, f"iter_{iteration:04d}"),
                f"iter_{iteration:04d}/",
                trajectory_bound(net, findings.bounds),
                findings,
            )
            reports.append(report)
            if tests:
                tests.compare(iteration, net, reached, findings)
    compare_reports(reports, archive, "", trajectory_bound(net, findings.bounds), findings)
    _compare_losses(reports, archive, findings)
    if "loss_forward" in archive:
        _compare_passes(train, archive, findings)


def training_net(loaded: LoadedSolver) -> NetSpec:
    """Build the TRAIN net of a case's solver."""
    state = loaded.train_state
    return build_net_spec(
        loaded.train_net, phase="TRAIN", level=state.level, stages=tuple(state.stage), sample_shapes=sample_shapes
    )


def compiled(net: NetSpec, loaded: LoadedSolver, findings: Findings) -> TrainFunction:
    """Compile a case's training with the setting of the comparison."""
    setting = findings.setting
    return compile_training(
        net, loaded.spec, n_threads=1, with_grad_norm=True, plan=setting.plan, devices=setting.devices
    )


def milestones(archive: Mapping[str, Array], prefix: str) -> list[int]:
    """Return the recorded iterations, ascending, from members like ``<prefix>iter_0010/ip1/0``."""
    marks = {name.removeprefix(prefix).split("/")[0] for name in archive if name.startswith(f"{prefix}iter_")}
    return sorted(int(mark.removeprefix("iter_")) for mark in marks)


def trajectory(
    train: TrainFunction, batches: NetBatches, state: TrainState, start: int, stops: list[int]
) -> Iterator[tuple[int, TrainState, StepOutputs]]:
    """Train from iteration ``start`` to each of ``stops`` in turn, a graph call per stretch."""
    for stop in stops:
        n_steps = stop - start
        state, report = train.run(
            state,
            step=start,
            n_steps=n_steps,
            rate_scale=1.0,
            seed=0,
            worker=0,
            feeds=batches.stacked(n_steps * train.solver.iter_size),
        )
        start = stop
        yield stop, state, report


def trajectory_bound(net: NetSpec, bounds: Bounds) -> float:
    """Return the bound of a trajectory for the net's layers."""
    kinked = any(
        layer.type in ("ReLU", "PReLU")
        or (layer.type == "Pooling" and layer.message.pooling_param.pool == caffe_pb2.PoolingParameter.MAX)
        for layer in net.layers
    )
    return bounds.kinked if kinked else bounds.trajectory


def compare_reports(
    reports: list[StepOutputs], archive: Mapping[str, Array], prefix: str, bound: float, findings: Findings
) -> None:
    """Compare loss, rate and gradient norm of every iteration."""
    losses = np.concatenate([report.losses for report in reports])
    findings.compare(f"{prefix}loss", losses, archive[f"{prefix}loss"], bound)
    rates = np.concatenate([report.lr for report in reports])
    findings.compare(f"{prefix}lr", rates, archive[f"{prefix}lr"], findings.bounds.forward)
    norms = np.concatenate([report.grad_norm for report in reports if report.grad_norm is not None])
    findings.compare(f"{prefix}grad_norm", norms, archive[f"{prefix}grad_norm"], bound)


def _compare_losses(reports: list[StepOutputs], archive: Mapping[str, Array], findings: Findings) -> None:
    for top, caffe_losses in members_under(archive, "loss_blob").items():
        our_losses = np.concatenate([report.outputs[top] for report in reports])
        findings.compare(f"loss_blob/{top}", our_losses, caffe_losses.reshape(our_losses.shape), findings.bounds.kinked)


def _compare_passes(train: TrainFunction, archive: Mapping[str, Array], findings: Findings) -> None:
    """Train again, with single updates, and compare the loss of every pass."""
    caffe_losses = archive["loss_forward"]
    forward = compile_forward(train.net, n_threads=1, outputs=(), device=findings.setting.device)
    state = train.initial_state(params_of(train.net, members_under(archive, "init")))
    our_losses = np.zeros(caffe_losses.shape)
    with NetBatches(train.net) as batches:
        for iteration, k in np.ndindex(caffe_losses.shape):
            if k == 0:
                feeds = batches.stacked(train.solver.iter_size)
            rows = {name: array[k] for name, array in feeds.items()}
            our_losses[iteration, k] = forward.run(state.params, rows, layer_state=state.layer_state).loss
            if k == train.solver.iter_size - 1:
                state, _ = train.run(state, step=iteration, n_steps=1, rate_scale=1.0, seed=0, worker=0, feeds=feeds)
    findings.compare("loss_forward", our_losses, caffe_losses, trajectory_bound(train.net, findings.bounds))


class _TestRuns:
    """The first test net of a solver: own data position that goes on from test to test, weights by layer name."""

    def __init__(self, loaded: LoadedSolver, archive: Mapping[str, Array], device: str) -> None:
        state = loaded.test_states[0]
        self._net = build_net_spec(
            loaded.test_nets[0],
            phase="TEST",
            level=state.level,
            stages=tuple(state.stage),
            sample_shapes=sample_shapes,
        )
        self._forward = compile_forward(self._net, n_threads=1, device=device)
        self._batches = NetBatches(self._net)
        self._n_batches = loaded.spec.test_iter[0]
        self.columns = ["iter", *self._net.outputs]
        self._rows = {int(row[0]): row[1:] for row in archive["test"]}

    def __enter__(self) -> _TestRuns:
        return self

    def __exit__(self, *_: object) -> None:
        self._batches.close()

    def compare(self, iteration: int, net: NetSpec, state: TrainState, findings: Findings) -> None:
        if iteration not in self._rows:
            return
        views = net.params.views(state.params_view())
        params = params_of(
            self._net, {f"{e.layer}/{e.index}": views[e.name] for e in self._net.params.entries if e.name in views}
        )
        layer_state: Mapping[str, Any] = initial_layer_state(self._net)
        sums: list[float] = []
        for _ in range(self._n_batches):
            passed = self._forward.run(params, self._batches.next(), layer_state=layer_state)
            layer_state = passed.layer_state
            values = [float(blob) for blob in passed.blobs.values()]
            sums = values if not sums else [a + b for a, b in zip(sums, values, strict=True)]
        our_means = np.array(sums) / self._n_batches
        findings.compare(f"test/{iteration}", our_means, self._rows[iteration], findings.bounds.kinked)
