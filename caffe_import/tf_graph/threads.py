"""How many cores TensorFlow uses. Process-wide, and only before its first operation."""

from __future__ import annotations

import logging

import tensorflow as tf

_LOG = logging.getLogger(__name__)


def set_threads(n_threads: int, n_devices: int = 1) -> None:
    """Let kernels use ``n_threads`` threads, and with more than one thread let two kernels run at a time.

    Two, because the two gradients of a layer do not wait for each other and few kernels fill several cores to the end.
    On two busy cores LeNet, cifar10_quick and a 784-1000-10 net trained 5 to 30 % faster than one kernel at a time, for
    the same processor time. More chains than that a training step hardly has.

    With several devices as many kernels as devices run at a time, else a device waits for another. An
    earlier call's number stays the least: a process with several devices may compile a net for a single device.

    TensorFlow fixes both numbers at the first operation; later calls with other numbers only log a warning. Not
    thread-safe; call it once per process.

    Raises:
        ValueError: ``n_threads`` is below 1.
    """
    if n_threads < 1:
        msg = f"n_threads={n_threads}: must be at least 1"
        raise ValueError(msg)
    try:
        tf.config.threading.set_intra_op_parallelism_threads(n_threads)
        n_current = tf.config.threading.get_inter_op_parallelism_threads()
        tf.config.threading.set_inter_op_parallelism_threads(max(min(n_threads, 2), n_devices, n_current))
    except RuntimeError:
        present = tf.config.threading.get_intra_op_parallelism_threads()
        if present != n_threads:
            _LOG.warning(
                "n_threads=%d has no effect: TensorFlow is already running in this process with %s threads per "
                "operation; set it before the first TensorFlow operation",
                n_threads,
                present or "as many as there are cores",
            )
