"""Counts the copies between host and device: by the copying functions, behind their back, in a graph.

For a process of its own, whose device is the second logical device of the CPU.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import ops

from caffe_import.tf_graph import device_copies
from caffe_import.tf_graph.step import device_calls, whole_calls


@dataclass
class Copies:
    """Bytes of each copy, in order.

    Attributes:
        to_device: By ``to_device``.
        movers: Names of the threads that called it.
        to_host: Of any tensor that is not on the host, by whatever reads it as an array.
        readers: Names of the threads that did so.
        sent: Names of the tensors that graphs send from one device to another, each time a graph is made.
    """

    to_device: list[int] = field(default_factory=list)
    movers: list[str] = field(default_factory=list)
    to_host: list[int] = field(default_factory=list)
    readers: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)

    def clear(self) -> None:
        self.to_device.clear()
        self.movers.clear()
        self.to_host.clear()
        self.readers.clear()
        self.sent.clear()


@contextmanager
def counted_copies(*users: Any) -> Iterator[Copies]:
    """Count while the block runs. ``users``: further modules that imported ``to_device`` by name."""
    copies = Copies()
    to_device, read = device_copies.to_device, ops._EagerTensorBase._numpy

    def counted_to_device(value: Any, device: str) -> tf.Tensor:
        if not device_copies.is_on(value, device):
            copies.to_device.append(np.asarray(value).nbytes)
            copies.movers.append(threading.current_thread().name)
        return to_device(value, device)

    def counted_read(tensor: Any) -> Any:
        if not device_copies.is_on(tensor, "/device:CPU:0"):
            copies.to_host.append(tensor.dtype.size * int(np.prod(tensor.shape)))
            copies.readers.append(threading.current_thread().name)
        return read(tensor)

    modules = (device_copies, whole_calls, device_calls, *users)
    for module in modules:
        module.to_device = counted_to_device
    ops._EagerTensorBase._numpy = counted_read
    running = context.context()
    running.ensure_initialized()
    running.enable_run_metadata()
    try:
        yield copies
    finally:
        for graphs in running.export_run_metadata().function_graphs:
            nodes = (node for graph in graphs.partition_graphs for node in graph.node)
            copies.sent += [node.name for node in nodes if node.op in ("_Send", "_HostSend")]
        running.disable_run_metadata()
        ops._EagerTensorBase._numpy = read
        for module in modules:
            module.to_device = to_device
