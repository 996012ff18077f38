"""The devices that a process computes on: found, set up before TensorFlow's first operation, named. Process-wide."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import tensorflow as tf

from caffe_import.errors import DeviceError
from caffe_import.tf_graph.threads import set_threads

DeviceKind = Literal["cpu", "gpu"]
_DRIVER: Final = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True)
class ReadyDevices:
    """The devices of this process, set up.

    Attributes:
        kind: What they are.
        names: TensorFlow's names by number, for ``compile_training``; empty where the process has its CPU whole, which
            TensorFlow takes by itself.
        description: One line for people: kind, model, number.
        n_threads: Cores for this process.
    """

    kind: DeviceKind
    names: tuple[str, ...]
    description: str
    n_threads: int = 1

    @property
    def is_host(self) -> bool:
        """Does the first device compute in the host's memory, without copies?"""
        return self.kind == "cpu"


def set_up_devices(kind: DeviceKind, n_devices: int, *, n_threads: int, tf32: bool = False) -> ReadyDevices:
    """Choose what this process computes on. Call it once, before TensorFlow's first operation.

    GPUs take memory when needed (by default TensorFlow takes all memory at once), and multiply float32 as float32:
    TensorFloat-32, TensorFlow's own default on newer cards, keeps 10 bits of the mantissa. A process for the CPU does
    not touch a GPU. Several devices of a CPU are logical devices: all share the CPU's cores and memory.

    Args:
        kind: CPU or GPUs. Which GPUs there are says CUDA_VISIBLE_DEVICES, which is set before TensorFlow is imported.
        n_devices: How many; GPUs beyond that are left alone.
        n_threads: Cores for this process (see ``set_threads``).
        tf32: Let GPUs round the factors of convolutions and products to TensorFloat-32.

    Raises:
        DeviceError: TensorFlow sees fewer GPUs than that, or has started with other devices.
    """
    set_threads(n_threads, n_devices)
    if kind == "gpu":
        return replace(_set_up_gpus(n_devices, tf32=tf32), n_threads=n_threads)
    _hide_gpus()
    if n_devices == 1:
        return ReadyDevices("cpu", (), f"CPU, {_counted(n_threads, 'thread')}", n_threads)
    _split_cpu(n_devices)
    names = tuple(f"/device:CPU:{number}" for number in range(n_devices))
    shared = f"CPU as {n_devices} logical devices, {_counted(n_threads, 'thread')}"
    return ReadyDevices("cpu", names, shared, n_threads)


def n_gpus_seen() -> int:
    """Return how many GPUs TensorFlow sees in this process; asking fixes nothing but which are seen."""
    return len(tf.config.list_physical_devices("GPU"))


def kind_of_option(devices: Literal["auto", "cpu", "gpu"]) -> DeviceKind:
    """Return the kind of the device that an option asks for; ``auto``: a GPU where TensorFlow sees one."""
    return "gpu" if devices == "gpu" or (devices == "auto" and n_gpus_seen() > 0) else "cpu"


def why_no_gpu() -> str:
    """Return what is known about why TensorFlow sees no GPU, or no more: one clause each, joined."""
    build = tf.sysconfig.get_build_info()
    reasons = [
        f"TensorFlow {tf.__version__} is built with CUDA {build.get('cuda_version', '?')}"
        if tf.test.is_built_with_cuda()
        else f"TensorFlow {tf.__version__} is built without CUDA: install the extra gpu"
    ]
    if not _DRIVER.exists():
        reasons.append(f"there is no NVIDIA driver on this host ({_DRIVER} is missing)")
    elif tf.test.is_built_with_cuda():
        reasons.append("a driver is loaded: is CUDA itself installed (extra gpu), and the driver new enough for it?")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    reasons.append("CUDA_VISIBLE_DEVICES is not set" if visible is None else f"CUDA_VISIBLE_DEVICES='{visible}'")
    return "; ".join(reasons)


def _set_up_gpus(n_devices: int, *, tf32: bool) -> ReadyDevices:
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) < n_devices:
        gpu_state = f"TensorFlow sees {_counted(len(gpus), 'GPU') if gpus else 'no GPU'} in this process"
        finding = f"devices=gpu: {gpu_state}, {n_devices} needed ({why_no_gpu()})"
        msg = f"{finding}; give the worker its GPUs, or use devices=cpu"
        raise DeviceError(msg)
    used = gpus[:n_devices]
    try:
        tf.config.set_visible_devices(used, "GPU")
        for gpu in used:
            tf.config.experimental.set_memory_growth(gpu, True)
    except RuntimeError as error:
        if not _is_set_up(used):
            msg = _too_late(_counted(n_devices, "GPU"), error)
            raise DeviceError(msg) from error
    tf.config.experimental.enable_tensor_float_32_execution(tf32)
    names = tuple(f"/device:GPU:{number}" for number in range(n_devices))
    models = ", ".join(dict.fromkeys(_model(gpu) for gpu in used))
    arithmetic = "TensorFloat-32" if tf32 else "float32"
    return ReadyDevices("gpu", names, f"{_counted(n_devices, 'GPU')}: {models}; {arithmetic}")


def _is_set_up(used: Sequence[Any]) -> bool:
    """Whether an earlier worker of this process has chosen the same GPUs: Spark uses its Python processes again."""
    visible = tf.config.get_visible_devices("GPU")
    return list(visible) == list(used) and all(tf.config.experimental.get_memory_growth(gpu) for gpu in used)


def _hide_gpus() -> None:
    if not tf.config.list_physical_devices("GPU"):
        return
    try:
        tf.config.set_visible_devices([], "GPU")
    except RuntimeError as error:
        if tf.config.get_visible_devices("GPU"):
            msg = _too_late("its CPU alone", error)
            raise DeviceError(msg) from error


def _split_cpu(n_devices: int) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    try:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * n_devices)
    except RuntimeError as error:
        if len(tf.config.list_logical_devices("CPU")) < n_devices:
            msg = _too_late(f"{n_devices} logical devices of the CPU", error)
            raise DeviceError(msg) from error


def _too_late(devices: str, error: RuntimeError) -> str:
    present = ", ".join(device.name for device in tf.config.list_logical_devices())
    return (
        f"this process was to compute on {devices}, but TensorFlow is already running in it with {present} ({error});"
        " start a fresh process"
    )


def _model(gpu: Any) -> str:
    details = tf.config.experimental.get_device_details(gpu)
    return str(details.get("device_name", "of unknown model"))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
