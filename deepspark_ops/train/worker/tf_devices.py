"""From what a worker was assigned to TensorFlow's devices, with the notes that the run should keep about it."""

from __future__ import annotations

from caffe_import.tf_graph.devices import ReadyDevices, n_gpus_seen, set_up_devices, why_no_gpu
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.devices.assigned import AssignedDevices


def set_up_worker(assigned: AssignedDevices, config: TrainConfig, n_devices: int) -> tuple[ReadyDevices, list[str]]:
    """Set up what a worker computes on, before TensorFlow's first operation in its process.

    Args:
        assigned: What the driver or Spark gave the worker; only its GPUs are visible in the process.
        config: ``devices`` and ``tf32``.
        n_devices: Devices of the plan.

    Returns:
        The devices, and a note for each thing about them that is not one CPU as a whole.

    Raises:
        DeviceError: TensorFlow sees too few GPUs and the user insists on them, or it runs with other devices.
    """
    kind, notes = assigned.kind, []
    if kind == "gpu" and config.devices == "auto" and n_gpus_seen() < n_devices:
        kind = "cpu"
        notes.append(f"devices=auto: computes on the CPU, since TensorFlow sees too few GPUs ({why_no_gpu()})")
    ready = set_up_devices(kind, n_devices, n_threads=assigned.n_threads, tf32=config.tf32)
    if ready.names:
        notes.append(f"computes on {ready.description}")
    return ready, notes
