"""Copies between the memory of the host and of a device. Only this module moves tensors between both.

The host is TensorFlow's first CPU device. A GPU is another device, and so is each further logical device of a CPU.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tensorflow as tf

Array = npt.NDArray[Any]
HOST: Final = "device:CPU:0"
ALIGNMENT_BYTES: Final = 64
"""TensorFlow reads memory in place only at this alignment."""


def is_on(value: Any, device: str) -> bool:
    """Return whether ``value`` is a tensor in the memory of ``device``, e.g. ``/device:GPU:1``; arrays are not."""
    return isinstance(value, tf.Tensor) and value.backing_device.endswith(device.lstrip("/"))


def to_device(value: tf.Tensor | Array, device: str) -> tf.Tensor:
    """Return ``value`` in ``device``'s memory, without a copy if there already. An array may be written afterwards."""
    if is_on(value, device):
        return value
    if isinstance(value, np.ndarray) and "CPU" in device:
        value = value.copy()  # TensorFlow reads an array in place, and shares memory between devices of one CPU
    with tf.device(device):
        return tf.identity(value)


def tensor_in_memory_of(array: Array) -> tf.Tensor:
    """Return a tensor on the host in the memory of ``array``, which nobody writes any more.

    Memory that is not aligned is copied.
    TensorFlow's own conversion copies every array (2.21, ``constant_op.convert_to_eager_tensor``): a vector of 61
    million floats takes 233 MiB more, and the time of three moves of the vector.
    """
    if array.size and array.flags.c_contiguous and array.flags.writeable and array.ctypes.data % ALIGNMENT_BYTES == 0:
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    with tf.device(HOST):
        return tf.constant(array)


def to_host(value: tf.Tensor | Array) -> Array:
    """Return a read-only numpy array: a view that keeps the host's memory alive, else a copy."""
    if isinstance(value, np.ndarray):
        array = value.view()
    elif is_on(value, HOST):
        array = np.asarray(memoryview(value)).view()
    else:
        array = value.numpy()
    array.flags.writeable = False
    return array
