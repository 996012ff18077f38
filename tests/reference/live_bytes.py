"""The most bytes that a traced function keeps on each device, and its share of the time, recorded by TensorFlow.

A logical device of a CPU has its own records. A tensor read by another device is not copied: the maker's device counts
the tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf


def recorded_call(
    function: Any, arguments: Sequence[np.ndarray[Any, Any]], where: Sequence[str], n_devices: int
) -> Any:
    """Return TensorFlow's record of a call (RunMetadata) with one thread.

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
    return metadata


def live_peaks(
    recorded: Any, arguments: Sequence[np.ndarray[Any, Any]], where: Sequence[str], n_devices: int
) -> list[int]:
    """Return the peak of each CPU device in bytes: memory of the call at a time, and the arguments, which stay."""
    placed = list(zip(arguments, map(_number, where), strict=True))
    peaks = [sum(array.nbytes for array, at in placed if at == device) for device in range(n_devices)]
    for stats in recorded.step_stats.dev_stats:
        peaks[_number(stats.device)] += _peak(stats)
    return peaks


def busy_shares(recorded: Any, n_devices: int) -> list[float]:
    """Return each CPU device's part of the time of all operations."""
    busy = [0.0] * n_devices
    for stats in recorded.step_stats.dev_stats:
        nodes = (node for node in stats.node_stats if node.node_name != "PartitionedCall")  # those inside it are listed
        busy[_number(stats.device)] += sum(node.op_end_rel_micros - node.op_start_rel_micros for node in nodes)
    return [each / sum(busy) for each in busy]


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
