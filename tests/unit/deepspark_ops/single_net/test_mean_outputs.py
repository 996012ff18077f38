"""``deepspark test`` against a loop in numpy: batches that wrap around, means of values and losses."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt
import pytest
from click.testing import Result

from caffe_import.files.caffemodel import write_caffemodel
from caffe_import.files.prototxt import parse_net
from caffe_import.net.net_spec import build_net_spec
from tests.reference.command_line import invoke

N_SAMPLES, BATCH = 10, 4

NET = """
name: "linear"
layer {{ name: "data" type: "HDF5Data" top: "data" top: "target" hdf5_data_param {{ source: "{list}" batch_size: 4 }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param {{ num_output: 2 }} }}
layer {{ name: "far" type: "EuclideanLoss" bottom: "ip" bottom: "target" top: "far" loss_weight: 0.5
  include {{ phase: TEST }} }}
layer {{ name: "copy" type: "Power" bottom: "ip" top: "copy" power_param {{ scale: 2 }} include {{ phase: TEST }} }}
"""


@dataclass(frozen=True)
class Case:
    net: Path
    weights: Path
    data: npt.NDArray[np.float64]
    target: npt.NDArray[np.float64]
    matrix: npt.NDArray[np.float64]

    def expected(self, n_batches: int) -> tuple[float, npt.NDArray[np.float64]]:
        losses, outputs = [], []
        for batch in range(n_batches):
            rows = [(batch * BATCH + k) % N_SAMPLES for k in range(BATCH)]
            ip = self.data[rows] @ self.matrix.T + np.array([0.5, -1.0])
            losses.append(((ip - self.target[rows]) ** 2).sum() / (2 * BATCH))
            outputs.append(2 * ip)
        return float(np.mean(losses)), np.mean(outputs, axis=0)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    rng = np.random.default_rng(0)
    data, target = rng.normal(size=(N_SAMPLES, 3)), rng.normal(size=(N_SAMPLES, 2))
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["data"], file["target"] = data.astype(np.float32), target.astype(np.float32)
    (tmp_path / "list.txt").write_text(f"{tmp_path / 'data.h5'}\n")
    net = tmp_path / "net.prototxt"
    net.write_text(NET.format(list=tmp_path / "list.txt"))
    spec = build_net_spec(parse_net(net.read_text()), phase="TEST", sample_shapes=lambda layer: ((3,), (2,)))
    matrix = rng.normal(size=(2, 3))
    weights = tmp_path / "weights.caffemodel"
    write_caffemodel(weights, spec, np.array([*matrix.reshape(-1), 0.5, -1.0], np.float32))
    return Case(net, weights, data, target, matrix)


def invoke_test(case: Case, *options: str) -> Result:
    return invoke("test", case.net, "--weights", case.weights, "--threads", "1", *options)


@pytest.mark.tf
@pytest.mark.parametrize(("options", "n_batches"), [((), 3), (("--iterations", "5"), 5)])
def test_means_are_those_of_the_loop(case: Case, options: tuple[str, ...], n_batches: int) -> None:
    result = invoke_test(case, "--json", *options)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    loss, outputs = case.expected(n_batches)
    assert (report["net"], report["n_batches"], report["batch_size"], report["n_samples"]) == (
        "linear",
        n_batches,
        4,
        10,
    )
    assert report["outputs"]["far"] == pytest.approx(loss, rel=1e-5)
    assert report["loss"] == pytest.approx(0.5 * loss, rel=1e-5)
    assert report["weights"] == {"far": 0.5}
    np.testing.assert_allclose(report["outputs"]["copy"], outputs, rtol=1e-4, atol=1e-5)


@pytest.mark.tf
def test_relative_paths_start_from_a_folder_above_the_net(case: Case, tmp_path: Path) -> None:
    root = tmp_path.name  # no folder of this name is in the working directory
    (tmp_path / "list.txt").write_text(f"{root}/data.h5\n")
    case.net.write_text(NET.format(list=f"{root}/list.txt"))
    result = invoke_test(case, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["loss"] == pytest.approx(0.5 * case.expected(3)[0], rel=1e-5)
    assert invoke("time", case.net, "--iterations", "1").exit_code == 0


@pytest.mark.tf
def test_data_layers_of_unlike_batches_advance_side_by_side(case: Case, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "marks.h5", "w") as file:
        file["marks"] = np.arange(7, dtype=np.float32)
    (tmp_path / "marks.txt").write_text(f"{tmp_path / 'marks.h5'}\n")
    layer = (
        'layer {{ name: "m" type: "HDF5Data" top: "marks" hdf5_data_param {{ source: "{}" batch_size: 3 }} }}\n'
        'layer {{ name: "p" type: "Power" bottom: "marks" top: "twice" power_param {{ scale: 2 }} }}'
    )
    case.net.write_text(case.net.read_text() + layer.format(tmp_path / "marks.txt"))
    result = json.loads(invoke_test(case, "--json", "--iterations", "5").stdout)
    marks = np.arange(5 * 3).reshape(5, 3) % 7
    np.testing.assert_allclose(result["outputs"]["twice"], 2 * marks.mean(axis=0), rtol=1e-5)
    assert result["outputs"]["far"] == pytest.approx(case.expected(5)[0], rel=1e-5)


@pytest.mark.tf
def test_lines_are_those_of_caffe_test(case: Case) -> None:
    result = invoke_test(case)
    loss, outputs = case.expected(3)
    lines = result.stdout.splitlines()
    assert lines[0] == "linear: 3 batches of 4 over 10 samples"
    (far_line,) = [line for line in lines if line.startswith("far = ")]
    value, _, weighted = far_line.removeprefix("far = ").partition(" (* 0.5 = ")
    assert float(value) == pytest.approx(loss, rel=1e-4)
    assert float(weighted.removesuffix(" loss)")) == pytest.approx(loss / 2, rel=1e-4)
    copies = [float(line.removeprefix("copy = ")) for line in lines if line.startswith("copy = ")]
    np.testing.assert_allclose(copies, outputs.reshape(-1), rtol=1e-4, atol=1e-5)
    assert float(lines[1].removeprefix("Loss: ")) == pytest.approx(loss / 2, rel=1e-4)


def test_weights_of_another_net_are_refused(case: Case, tmp_path: Path) -> None:
    other = tmp_path / "other.prototxt"
    other.write_text(case.net.read_text().replace('"ip"', '"fc"'))
    result = invoke("test", other, "--weights", case.weights)
    assert result.exit_code == 2
    assert 'no weights for layer "fc"' in result.stderr.replace("\n", " ")
