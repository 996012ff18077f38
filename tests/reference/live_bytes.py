"""The most bytes that a traced function keeps on each device, as TensorFlow's allocators record them.

A logical device of a CPU has records of its own, though what another device reads is not copied: it stays counted where
it was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf


def live_peaks(
    function: Any, arguments: Sequence[np.ndarray[Any, Any]], where: Sequence[str], n_devices: int
) -> list[int]:
    """Return the peak of each CPU device in bytes: what one call takes at a time, and its arguments, which stay.

    Args:
        function: A concrete function.
        arguments: One array per argument.
        where: Each argument's device, ``/device:CPU:<k>``.
        n_devices: Logical CPU devices that the function names.
    """
    threads = {"intra_op_parallelism_threads": 1, "inter_op_parallelism_threads": 1}
    config = tf.compat.v1.ConfigProto(device_count={"CPU": n_devices}, **threads)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(function.graph.as_graph_def(), name="")
        feeds = {}
        for tensor, array, device in zip(function.inputs, arguments, where, strict=True):
            graph.get_operation_by_name(tensor.op.name)._set_device(device)
            feeds[tensor.name] = array
        results = [tensor.name for tensor in function.outputs if tensor.dtype != tf.resource]
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            traced = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
            for _ in range(2):  # the first run sets up its kernels
                metadata = tf.compat.v1.RunMetadata()
                session.run(results, feeds, options=traced, run_metadata=metadata)
    peaks = [
        sum(a.nbytes for a, at in zip(arguments, where, strict=True) if _number(at) == k) for k in range(n_devices)
    ]
    for found in metadata.step_stats.dev_stats:
        peaks[_number(found.device)] += _peak(found)
    return peaks


def _number(device: str) -> int:
    return int(device.rpartition(":")[2])


def _peak(device: Any) -> int:
    records = [
        (record.alloc_micros, record.alloc_bytes)
        for node in device.node_stats
        for memory in node.memory
        for record in memory.allocation_records
    ]
    live = peak = 0
    for _, n_bytes in sorted(records):  # of one microsecond what is freed first
        live += n_bytes
        peak = max(peak, live)
    return peak
