"""The device that scores; tests/integration/evaluate tests the scores."""

from __future__ import annotations

from typing import Any

import pytest

from caffe_import.errors import DeviceError
from caffe_import.files.prototxt import parse_solver
from caffe_import.solver.solver_spec import solver_spec
from caffe_import.tf_graph import devices as devices_module
from deepspark_ops.evaluate import tf_predict
from deepspark_ops.evaluate.tf_predict import scoring_device

pytestmark = pytest.mark.tf

SOLVER = 'base_lr: 0.1 lr_policy: "fixed" max_iter: 1'


@pytest.mark.parametrize(
    ("devices", "solver_mode", "n_seen", "kind"),
    [
        ("auto", "GPU", 2, "gpu"),
        ("auto", "GPU", 0, "cpu"),
        ("auto", "CPU", 2, "cpu"),
        ("cpu", "GPU", 2, "cpu"),
        ("gpu", "CPU", 2, "gpu"),
    ],
)
def test_one_device_as_options_solver_and_machine_say(
    monkeypatch: pytest.MonkeyPatch, devices: Any, solver_mode: str, n_seen: int, kind: str
) -> None:
    requests: list[tuple[str, int]] = []
    monkeypatch.setattr(devices_module, "n_gpus_seen", lambda: n_seen)
    monkeypatch.setattr(
        tf_predict, "set_up_devices", lambda kind, n_devices, n_threads: requests.append((kind, n_devices))
    )
    scoring_device(devices, solver_spec(parse_solver(f"{SOLVER} solver_mode: {solver_mode}")), n_threads=1)
    assert requests == [(kind, 1)]


def test_gpu_is_refused_where_there_is_none() -> None:
    with pytest.raises(DeviceError, match=r"^devices=gpu: TensorFlow sees no GPU in this process, 1 needed"):
        scoring_device("gpu", solver_spec(parse_solver(SOLVER)), n_threads=1)
