"""``ds.Net`` and the solver against what Caffe computed: blobs, gradients, and parameters along recorded runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepspark_ops as ds
from caffe_import.files.prototxt import read_net
from caffe_import.net.phases import filter_layers
from caffe_import.parity.findings import relative_error
from deepspark_ops.api import pycaffe
from deepspark_ops.api.pycaffe.net import Net
from deepspark_ops.api.pycaffe.solver import Solver
from deepspark_ops.single_net.passes.net_process import NetProcess
from tests.paths import ROOT

pytestmark = [pytest.mark.tf, pytest.mark.slow, pytest.mark.parity]

CASES = ROOT / "tests" / "fixtures" / "caffe"
FORWARD, BACKWARD, TRAJECTORY = 1e-5, 1e-4, 1e-3
"""Largest relative errors; the last one where ReLU or MAX pooling let rounding move a value across the kink."""


def recorded_cases(kind: str) -> list[dict[str, Any]]:
    return [case for case in json.loads((CASES / "index.json").read_text())["cases"] if case["kind"] == kind]


def variants(case: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for variant in case.get("variants") or [{"tag": "", "phase": case["phase"]}]:
        yield case["name"] + (f".{variant['tag']}" if variant["tag"] else ""), variant


NETS = [(case["files"][0], name, variant) for case in recorded_cases("net") for name, variant in variants(case)]
LAYERS = [
    (case["files"][0], name, variant)
    for case in [case for case in recorded_cases("layer") if not case.get("random")][::9]
    for name, variant in variants(case)
]


@pytest.fixture(scope="module")
def process() -> Iterator[NetProcess]:
    shared = NetProcess("cpu")
    yield shared
    shared.end()


def archive_of(file: str, name: str) -> dict[str, np.ndarray]:
    with np.load(CASES / Path(file).parent / f"{name}.npz") as archive:
        return {member: archive[member] for member in archive.files}


def under(archive: dict[str, np.ndarray], kind: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(f"{kind}/"): array for name, array in archive.items() if name.startswith(f"{kind}/")}


def set_params(net: Net, blobs: dict[str, np.ndarray]) -> None:
    for name, values in blobs.items():
        layer, _, index = name.rpartition("/")
        target = net.params[layer][int(index)].data
        target[...] = values.reshape(target.shape)


@pytest.mark.parametrize(
    ("file", "name", "variant"),
    [*NETS[::2], *LAYERS[::2], *(pytest.param(*case, marks=pytest.mark.long) for case in (*NETS[1::2], *LAYERS[1::2]))],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_blobs_and_gradients_are_caffes(
    process: NetProcess, file: str, name: str, variant: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CASES)
    archive = archive_of(file, name)
    message = filter_layers(
        read_net(CASES / file),
        phase=variant["phase"],
        level=variant.get("level", 0),
        stages=tuple(variant.get("stages", ())),
    )
    net = Net.of_message(message, variant["phase"], process)
    meta = json.loads(str(archive["meta"]))
    assert net.layer_names == [layer["name"] for layer in meta["layers"]]
    assert net.outputs == meta["outputs"]
    set_params(net, under(archive, "param"))
    for blob, values in under(archive, "input").items():
        net.blobs[blob].data[...] = values.reshape(net.blobs[blob].shape)
    net.forward()
    assert {blob: list(net.blobs[blob].shape) for blob in net.blobs} == meta["blobs"]
    for kind in ("top", "blob"):
        for blob, recorded in under(archive, kind).items():
            assert relative_error(net.blobs[blob].data, recorded) <= FORWARD, f"{kind} {blob}"
    for blob, diff in under(archive, "top_diff").items():
        net.blobs[blob].diff[...] = diff.reshape(net.blobs[blob].shape)
    written = {**under(archive, "bottom_diff"), **under(archive, "blob_diff")}
    if not written and not under(archive, "param_diff"):
        return
    for blob in written:  # memory without a gradient keeps its content, as in Caffe
        if blob not in {**under(archive, "top_diff"), **meta["loss_weights"]}:
            net.blobs[blob].diff[...] = 0.0
    net.clear_param_diffs()
    net.backward()
    for blob, recorded in written.items():
        assert relative_error(net.blobs[blob].diff, recorded) <= BACKWARD, f"diff of {blob}"
    for param, recorded in under(archive, "param_diff").items():
        layer, _, index = param.rpartition("/")
        gradient = net.params[layer][int(index)].diff
        assert relative_error(gradient, recorded.reshape(gradient.shape)) <= BACKWARD, f"diff of {param}"


@pytest.mark.parametrize("name", [case["name"] for case in recorded_cases("solver")][::3])
def test_steps_of_a_solver_are_caffes(process: NetProcess, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES)
    # A process for each solver would load TensorFlow each time.
    monkeypatch.setattr(pycaffe.solver, "NetProcess", lambda devices: process)
    monkeypatch.setattr(process, "end", lambda: None)
    with np.load(CASES / "solvers" / name / "trajectory.npz") as file:
        archive = {member: file[member] for member in file.files}
    solver = Solver(CASES / "solvers" / name / "solver.prototxt", devices="cpu")
    try:
        set_params(solver.net, under(archive, "init"))
        marks = sorted({int(member[5:9]) for member in archive if member.startswith("iter_")})
        for mark in marks:
            solver.step(mark - solver.iter)
            for param, recorded in under(archive, f"iter_{mark:04d}").items():
                layer, _, index = param.rpartition("/")
                weights = solver.net.params[layer][int(index)].data
                assert relative_error(weights, recorded.reshape(weights.shape)) <= TRAJECTORY, f"{param} after {mark}"
        assert marks
    finally:
        solver.close()


def test_net_of_a_file_is_the_same(process: NetProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES)
    monkeypatch.setattr(pycaffe.net, "NetProcess", lambda devices: process)
    monkeypatch.setattr(process, "end", lambda: None)
    archive = archive_of("nets/alex_mini.prototxt", "alex_mini")
    with ds.Net("nets/alex_mini.prototxt", ds.TEST, devices="cpu") as net:
        set_params(net, under(archive, "param"))
        answer = net.forward(
            **{blob: values.reshape(net.blobs[blob].shape) for blob, values in under(archive, "input").items()}
        )
        assert set(answer) == set(net.outputs)
        for blob, recorded in under(archive, "top").items():
            assert relative_error(answer[blob], recorded) <= FORWARD
            assert answer[blob] is not None
