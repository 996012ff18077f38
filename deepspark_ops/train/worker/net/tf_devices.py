"""TensorFlow's devices for a worker's assignment, and the event with these devices."""

from __future__ import annotations

from dataclasses import replace
from socket import gethostname

from caffe_import.tf_graph.devices import ReadyDevices, n_gpus_seen, set_up_devices, why_no_gpu
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.devices.assigned import AssignedDevices
from deepspark_ops.events import Event, make_event


def set_up_worker(
    assigned: AssignedDevices, config: TrainConfig, n_devices: int
) -> tuple[ReadyDevices, AssignedDevices]:
    """Set up a worker's devices, before TensorFlow's first operation in the process.

    Args:
        assigned: The worker's devices from driver or Spark; only the worker's GPUs are visible in the process.
        config: ``devices`` and ``tf32``.
        n_devices: Devices of the plan.

    Returns:
        The devices, and the assignment in use: the CPU, with a note, if TensorFlow sees too few GPUs.

    Raises:
        DeviceError: TensorFlow sees too few GPUs and the user insists on GPUs, or TensorFlow has other devices already.
    """
    if assigned.kind == "gpu" and config.devices == "auto" and n_gpus_seen() < n_devices:
        note = f"devices=auto: computes on the CPU, since TensorFlow sees too few GPUs ({why_no_gpu()})"
        assigned = replace(assigned, kind="cpu", gpus=(), note=note)
    ready = set_up_devices(assigned.kind, n_devices, n_threads=assigned.n_threads, tf32=config.tf32)
    return ready, assigned


def devices_event(ready: ReadyDevices, used: AssignedDevices, *, clock: int, worker: int) -> Event:
    """Return the event with the results of ``set_up_worker``; ``text`` is the log's line."""
    text = f"{used.line()} ({ready.description})" if used.kind == "gpu" else ready.description
    note = {"note": used.note} if used.note else {}
    gpus = list(used.gpus)
    data = {"text": text, "device": used.kind, "gpus": gpus, "n_threads": used.n_threads, "host": gethostname(), **note}
    return make_event("worker_devices", clock=clock, worker=worker, **data)
