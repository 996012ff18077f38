"""How many cores TensorFlow uses. Process-wide, and only before its first operation."""

from __future__ import annotations

import logging

import tensorflow as tf

_LOG = logging.getLogger(__name__)


def set_threads(n_threads: int) -> None:
    """Let kernels use ``n_threads`` threads and run one kernel at a time.

    One inter-op thread: a training step is a chain, and a second chain would only take the kernels' cores away.
    TensorFlow fixes both numbers at its first operation; if that has run with others, a warning says so and the old
    numbers stay. Not thread-safe; call it once per process.

    Raises:
        ValueError: ``n_threads`` is below 1.
    """
    if n_threads < 1:
        msg = f"n_threads={n_threads}: must be at least 1"
        raise ValueError(msg)
    try:
        tf.config.threading.set_intra_op_parallelism_threads(n_threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    except RuntimeError:
        present = tf.config.threading.get_intra_op_parallelism_threads()
        if present != n_threads:
            _LOG.warning(
                "n_threads=%d has no effect: TensorFlow is already running in this process with %s threads per "
                "operation; set it before the first TensorFlow operation",
                n_threads,
                present or "as many as there are cores",
            )
