"""Devices of a worker's assignment; tests/unit/caffe_import/tf_graph tests TensorFlow's placement."""

from __future__ import annotations

from pathlib import Path
from socket import gethostname
from typing import Any

import pytest

from caffe_import.errors import DeviceError
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.devices.assigned import AssignedDevices
from deepspark_ops.events import format_event
from deepspark_ops.train.worker.net import tf_devices
from deepspark_ops.train.worker.net.tf_devices import devices_event, set_up_worker

pytestmark = pytest.mark.tf

GPUS = AssignedDevices("gpu", ("0", "1"), 3)


def training_config(**options: Any) -> TrainConfig:
    return TrainConfig(solver=Path("solver.prototxt"), run_dir=Path("run"), **options)


def test_one_cpu_is_left_to_tensorflow_and_needs_no_note() -> None:
    ready, used = set_up_worker(AssignedDevices(), training_config(), 1)
    assert (ready.kind, ready.names, used.note) == ("cpu", (), None)
    event = devices_event(ready, used, clock=7, worker=2)
    assert format_event(event) == "worker 2: CPU, 1 thread"
    fields = {"text": "CPU, 1 thread", "device": "cpu", "gpus": [], "n_threads": 1}
    assert event.data == fields | {"host": gethostname()}


def test_a_worker_that_must_have_its_gpu_is_refused_without() -> None:
    with pytest.raises(DeviceError, match=r"devices=gpu: TensorFlow sees no GPU in this process, 2 needed"):
        set_up_worker(GPUS, training_config(devices="gpu"), 2)


def test_a_worker_that_may_do_without_goes_on_with_the_cpu_and_says_why() -> None:
    ready, used = set_up_worker(GPUS, training_config(devices="auto"), 1)
    assert (ready.kind, ready.n_threads, used.kind, used.gpus) == ("cpu", 3, "cpu", ())
    note = devices_event(ready, used, clock=0, worker=0).data["note"]
    assert note.startswith("devices=auto: computes on the CPU, since TensorFlow sees too few GPUs (TensorFlow ")


def test_options_reach_the_devices_and_what_they_are_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def set_up(*arguments: Any, **options: Any) -> tf_devices.ReadyDevices:
        calls.append((arguments, options))
        return tf_devices.ReadyDevices("gpu", ("/device:GPU:0", "/device:GPU:1"), "2 GPUs: H100; TensorFloat-32")

    monkeypatch.setattr(tf_devices, "set_up_devices", set_up)
    monkeypatch.setattr(tf_devices, "n_gpus_seen", lambda: 2)
    event = devices_event(*set_up_worker(GPUS, training_config(tf32=True), 2), clock=0, worker=1)
    assert calls == [(("gpu", 2), {"n_threads": 3, "tf32": True})]
    assert format_event(event) == "worker 1: GPU 0, GPU 1, 3 threads (2 GPUs: H100; TensorFloat-32)"
    assert event.data["gpus"] == ["0", "1"]
