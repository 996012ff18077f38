from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from caffe_import.errors import DeviceError
from caffe_import.tf_graph import devices
from caffe_import.tf_graph.devices import n_gpus_seen, set_up_devices, why_no_gpu

pytestmark = pytest.mark.tf

SPLIT = """
import json, sys
import tensorflow as tf
from caffe_import.errors import DeviceError
from caffe_import.tf_graph.devices import set_up_devices
from caffe_import.tf_graph.threads import set_threads

found = {}
ready = set_up_devices("cpu", 3, n_threads=2)
set_threads(2)  # as for a net on a single device
found["kernels"] = tf.config.threading.get_inter_op_parallelism_threads()
found["ready"] = [ready.kind, list(ready.names), ready.is_host]
with tf.device(ready.names[2]):
    found["ran_on"] = (tf.zeros(1) + 1).backing_device[-5:]
found["threads"] = tf.config.threading.get_intra_op_parallelism_threads()
found["again"] = list(set_up_devices("cpu", 2, n_threads=2).names)
for kind, count in (("cpu", 4), ("gpu", 1)):
    try:
        set_up_devices(kind, count, n_threads=2)
    except DeviceError as error:
        found[kind] = str(error)
json.dump(found, sys.stdout)
"""


def test_a_cpu_is_split_once_and_what_comes_too_late_is_refused() -> None:
    completed = subprocess.run([sys.executable, "-c", SPLIT], capture_output=True, text=True, check=True)
    results = json.loads(completed.stdout)
    assert results["ready"] == ["cpu", [f"/device:CPU:{k}" for k in range(3)], True]
    assert results["ran_on"] == "CPU:2"
    assert results["threads"] == 2
    assert results["kernels"] == 3  # or the devices would compute one after the other
    assert results["again"] == ["/device:CPU:0", "/device:CPU:1"]
    assert results["cpu"].startswith(
        "this process was to compute on 4 logical devices of the CPU, but TensorFlow is already running in it with"
        " /device:CPU:0, /device:CPU:1, /device:CPU:2 ("
    )
    assert results["cpu"].endswith("; start a fresh process")
    assert results["gpu"].startswith("devices=gpu: TensorFlow sees no GPU in this process, 1 needed (TensorFlow ")
    assert results["gpu"].endswith("; give the worker its GPUs, or use devices=cpu")


@dataclass
class FakeConfig:
    """``tf.config`` of a machine with GPUs; keeps what was set. ``is_running``: its first operation is over."""

    gpus: Sequence[str]
    is_running: bool = False
    growth: dict[str, bool] = field(default_factory=dict)
    visible: list[str] | None = None
    tf32: bool | None = None

    @property
    def experimental(self) -> Any:
        return SimpleNamespace(
            set_memory_growth=self._set_growth,
            get_memory_growth=lambda gpu: self.growth.get(gpu, False),
            enable_tensor_float_32_execution=lambda on: setattr(self, "tf32", on),
            get_device_details=lambda gpu: {"device_name": f"model of {gpu}"},
        )

    def list_physical_devices(self, kind: str) -> list[str]:
        return list(self.gpus) if kind == "GPU" else ["cpu"]

    def list_logical_devices(self) -> list[Any]:
        return [SimpleNamespace(name="/device:CPU:0")]

    def get_visible_devices(self, kind: str) -> list[str]:
        return list(self.gpus) if self.visible is None else self.visible

    def set_visible_devices(self, chosen: list[str], kind: str) -> None:
        if self.is_running and chosen != self.visible:
            raise RuntimeError("cannot be modified after being initialized")
        self.visible = list(chosen)

    def _set_growth(self, gpu: str, on: bool) -> None:
        if self.is_running and self.growth.get(gpu) != on:
            raise RuntimeError("cannot be modified after being initialized")
        self.growth[gpu] = on


def with_gpus(monkeypatch: pytest.MonkeyPatch, *gpus: str) -> FakeConfig:
    config = FakeConfig(gpus)
    monkeypatch.setattr(devices, "tf", SimpleNamespace(**{**vars(tf), "config": config}))
    monkeypatch.setattr(devices, "set_threads", lambda n_threads, n_devices: None)
    return config


def test_gpus_grow_compute_in_float32_and_those_that_are_not_needed_stay_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = with_gpus(monkeypatch, "a", "b", "c")
    ready = set_up_devices("gpu", 2, n_threads=1)
    assert (ready.names, ready.is_host) == (("/device:GPU:0", "/device:GPU:1"), False)
    assert ready.description == "2 GPUs: model of a, model of b; float32"
    assert config.visible == ["a", "b"]
    assert config.growth == {"a": True, "b": True}
    assert config.tf32 is False


def test_tf32_is_turned_on_only_by_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    config = with_gpus(monkeypatch, "a")
    ready = set_up_devices("gpu", 1, n_threads=1, tf32=True)
    assert config.tf32 is True
    assert ready.description == "1 GPU: model of a; TensorFloat-32"


def test_a_worker_on_the_cpu_touches_no_gpu_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    config = with_gpus(monkeypatch, "a")
    ready = set_up_devices("cpu", 1, n_threads=3)
    assert (ready.kind, ready.names, ready.description) == ("cpu", (), "CPU, 3 threads")
    assert config.visible == []
    assert config.growth == {}


def test_a_second_worker_of_a_process_gets_the_same_gpus_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    config = with_gpus(monkeypatch, "a", "b")
    set_up_devices("gpu", 1, n_threads=1)
    config.is_running = True
    assert set_up_devices("gpu", 1, n_threads=1).names == ("/device:GPU:0",)
    with pytest.raises(DeviceError, match="was to compute on 2 GPUs, but TensorFlow is already running in it with"):
        set_up_devices("gpu", 2, n_threads=1)


def test_too_few_gpus_are_counted_in_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, "a")
    assert n_gpus_seen() == 1
    with pytest.raises(DeviceError, match=r"^devices=gpu: TensorFlow sees 1 GPU in this process, 2 needed \("):
        set_up_devices("gpu", 2, n_threads=1)


def test_why_there_is_no_gpu_names_build_driver_and_what_is_visible(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = SimpleNamespace(
        __version__="2.99",
        sysconfig=SimpleNamespace(get_build_info=lambda: {"cuda_version": "12.5"}),
        test=SimpleNamespace(is_built_with_cuda=lambda: True),
    )
    monkeypatch.setattr(devices, "tf", fake)
    monkeypatch.setattr(devices, "_DRIVER", tmp_path / "version")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert why_no_gpu() == (
        "TensorFlow 2.99 is built with CUDA 12.5; there is no NVIDIA driver on this host"
        f" ({tmp_path / 'version'} is missing); CUDA_VISIBLE_DEVICES=''"
    )
    (tmp_path / "version").touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert "a driver is loaded: is CUDA itself installed (extra gpu)" in why_no_gpu()
    fake.test.is_built_with_cuda = lambda: False
    assert why_no_gpu() == (
        "TensorFlow 2.99 is built without CUDA: install the extra gpu; CUDA_VISIBLE_DEVICES is not set"
    )
